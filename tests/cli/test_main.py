"""The command line as a whole: the verbs, the exit statuses, and what a person reads when something is wrong."""

from __future__ import annotations

import ast
import itertools
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import typer

from ostinato import __version__
from ostinato.cli import main as command
from ostinato.errors import BadInputError, DamagedRunError, OstinatoError, UsageError

Install = Callable[[Callable[..., None]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Returns a function that makes the given function the verb ``act``."""

    def put(function: Callable[..., None]) -> None:
        module = ModuleType("ostinato_test_verb")
        module.act = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(command.VERBS, "act", command.Verb(module.__name__, "act", "Does what the test says."))

    return put


def ostinato(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", "from ostinato.cli.main import main; main()", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        env={**os.environ, **environment},
    )


def test_a_verb_that_ends_well_gives_status_0(install: Install) -> None:
    install(lambda: None)
    assert command.run(["act"]) == 0


@pytest.mark.parametrize(
    ("error", "status"),
    [(OstinatoError, 1), (UsageError, 2), (BadInputError, 3), (DamagedRunError, 4)],
)
def test_a_known_error_is_one_paragraph_on_stderr_and_its_own_status(
    install: Install, capsys: pytest.CaptureFixture[str], error: type[OstinatoError], status: int
) -> None:
    def act() -> None:
        raise error("The folder 'faces' is empty.", advice="Extract faces into it first.")

    install(act)
    assert command.run(["act"]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "Error: The folder 'faces' is empty. Extract faces into it first.\n"


@pytest.mark.parametrize("arguments", [["--debug", "act"], ["act", "--debug"]])
def test_debug_adds_the_traceback_wherever_it_stands(
    install: Install, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    def act() -> None:
        raise BadInputError("No faces.")

    install(act)
    assert command.run(arguments) == 3
    printed = capsys.readouterr().err
    assert "Traceback (most recent call last)" in printed
    assert printed.endswith("Error: No faces.\n")


def test_the_environment_can_ask_for_the_traceback(
    install: Install, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def act() -> None:
        raise BadInputError("No faces.")

    install(act)
    monkeypatch.setenv("OSTINATO_DEBUG", "1")
    command.run(["act"])
    assert "Traceback" in capsys.readouterr().err


def test_debug_after_two_dashes_belongs_to_the_verb(install: Install) -> None:
    seen: list[str] = []

    def act(words: list[str]) -> None:
        seen.extend(words)

    install(act)
    assert command.run(["act", "--", "--debug"]) == 0
    assert seen == ["--debug"]


def test_an_unforeseen_error_is_called_a_bug_and_shows_no_traceback(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    def act() -> None:
        raise KeyError("decoder")

    install(act)
    assert command.run(["act"]) == command.BUG
    printed = capsys.readouterr().err
    assert "bug in Ostinato: KeyError: 'decoder'" in printed
    assert "--debug" in printed
    assert "Traceback" not in printed
    assert len(printed.splitlines()) == 1


def test_a_refusal_of_the_operating_system_is_not_called_a_bug(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    def act() -> None:
        open("/no/such/folder/file").close()

    install(act)
    assert command.run(["act"]) == 1
    printed = capsys.readouterr().err
    assert "No such file or directory: '/no/such/folder/file'" in printed
    assert "a bug" not in printed


def test_ctrl_c_gives_130_and_one_word(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    def act() -> None:
        raise KeyboardInterrupt

    install(act)
    assert command.run(["act"]) == 130
    assert capsys.readouterr().err.strip() == "Interrupted."


def test_a_verb_that_handles_ctrl_c_itself_has_the_last_word(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    def act() -> None:
        typer.echo("Saved iteration 41,250.", err=True)
        raise typer.Exit(130)

    install(act)
    assert command.run(["act"]) == 130
    assert capsys.readouterr().err == "Saved iteration 41,250.\n"


@pytest.mark.parametrize("arguments", [["dmeo"], ["--unknown"], []])
def test_wrong_usage_gives_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(arguments) == 2
    assert "Usage: ostinato" in "".join(capsys.readouterr())


def test_a_mistyped_verb_gets_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    command.run(["swop"])
    assert "'swap'" in capsys.readouterr().err


def test_warnings_of_the_rooms_are_shown_and_chatter_is_not(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    def act() -> None:
        logging.getLogger("ostinato.runs").warning("The lock of a dead process was taken over.")
        logging.getLogger("ostinato.runs").info("Opened.")

    install(act)
    command.run(["act"])
    assert capsys.readouterr().err == "The lock of a dead process was taken over.\n"
    command.run(["act", "--debug"])
    assert "INFO ostinato.runs: Opened." in capsys.readouterr().err


def test_a_terminal_obeys_nothing_that_a_message_quotes(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    def act() -> None:
        logging.getLogger("ostinato.runs").warning("log \x1b]0;x\x07")
        raise BadInputError("The folder \x1b[31mred is empty.")

    install(act)
    command.run(["act"])
    assert capsys.readouterr().err == "log \\x1b]0;x\\x07\nError: The folder \\x1b[31mred is empty.\n"


def test_running_leaves_no_log_handler_behind(install: Install) -> None:
    install(lambda: None)
    before = list(logging.getLogger("ostinato").handlers)
    command.run(["act"])
    assert logging.getLogger("ostinato").handlers == before


def test_help_lists_every_verb_and_imports_none_of_them() -> None:
    code = (
        "import sys; from ostinato.cli.main import run; status = run(['--help']);"
        "heavy = ('torch', 'numpy', 'ostinato.cli.', 'ostinato.swap');"
        "print([name for name in sys.modules if name.startswith(heavy)]);"
        "sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for verb in command.VERBS:
        assert verb in done.stdout
    assert sorted(ast.literal_eval(done.stdout.splitlines()[-1])) == [
        f"ostinato.cli.{name}" for name in ("given_words", "main", "one_voice")
    ]


@pytest.mark.parametrize("verb", sorted(command.VERBS))
def test_every_verb_explains_itself_without_torch(verb: str) -> None:
    code = (
        f"import sys; from ostinato.cli.main import run; status = run([{verb!r}, '--help']);"
        "print('torch' in sys.modules); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"ostinato {verb}" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"


def test_version_names_the_program() -> None:
    done = ostinato("--version")
    assert (done.returncode, done.stdout) == (0, f"ostinato {__version__}\n".encode())


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"NO_COLOR": "1"},
        {"TERM": "dumb"},
        {"COLUMNS": "20"},
    ],
)
def test_poor_terminals_get_their_answer(environment: dict[str, str]) -> None:
    done = ostinato("--help", **environment)
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout
    assert ostinato("dmeo", **environment).returncode == 2


def test_a_letter_that_the_terminal_lacks_does_not_end_the_program() -> None:
    code = (
        "import sys; from ostinato.cli import main\n"
        "def act(): print('saved \\u2192 Gesichter/\\u00e4.png \\udcff')\n"
        "sys.modules['act'] = sys.modules['__main__']\n"
        "main.VERBS['act'] = main.Verb('act', 'act', '')\n"
        "sys.argv[1:] = ['act']; main.main()"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"saved \\u2192")


def test_a_reader_that_has_had_enough_gets_no_complaint() -> None:
    code = (
        "import sys; from ostinato.cli import main\n"
        "def act():\n  for line in range(50_000): print(line)\n"
        "sys.modules['act'] = sys.modules['__main__']\n"
        "main.VERBS['act'] = main.Verb('act', 'act', '')\n"
        "sys.argv[1:] = ['act']; main.main()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    complaint = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=300)
    assert complaint == b""


def test_a_long_message_is_wrapped_on_a_terminal_and_keeps_its_paragraphs() -> None:
    code = (
        "import sys; from ostinato.cli import main; from ostinato.errors import BadInputError\n"
        "def act(): raise BadInputError('word ' * 40, advice='  - ' + 'advice ' * 20 + '\\n  - short')\n"
        "sys.modules['act'] = sys.modules['__main__']\n"
        "main.VERBS['act'] = main.Verb('act', 'act', '')\n"
        "sys.argv[1:] = ['act']; main.main()"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "60", "TERM": "dumb"}
    process = subprocess.Popen([sys.executable, "-c", code], stderr=theirs, env=environment)
    os.close(theirs)
    assert process.wait(timeout=300) == 3
    lines = os.read(ours, 65536).decode().splitlines()
    os.close(ours)
    assert max(map(len, lines)) <= 60
    assert lines[-1] == "  - short"
    assert len(lines) > 5


@pytest.mark.parametrize("verb", [("swap", "train"), ("swap", "convert"), ("runs", "verify"), ("demo",)])
def test_paragraphs_of_help_are_filled_to_the_width_of_the_terminal(verb: tuple[str, ...]) -> None:
    result = ostinato(*verb, "--help", COLUMNS="80")
    prose = result.stdout.decode().split("Usage:")[1].split("\u256d")[0].splitlines()[1:]
    lines = [line.strip() for line in prose]
    for line, following in itertools.pairwise(lines):
        first_word = following.split(" ")[0]
        assert not first_word or not line or len(line) + 1 + len(first_word) > 78, f"{line!r} ends early"
