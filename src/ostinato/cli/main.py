"""The command ``ostinato``: finds the verb, runs it, and turns every error into one paragraph and an exit status.

A verb's module is imported only when that verb is asked for, so that ``ostinato --help`` and ``ostinato runs list``
answer at once: neither needs torch. The others appear in the list of commands by the line kept here.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer
import typer.core

from ostinato import __version__
from ostinato.cli.given_words import as_meant
from ostinato.cli.one_voice import OneVoice, said_by_all
from ostinato.data.file_names import shown_text
from ostinato.errors import OstinatoError

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 plus the number of SIGINT, as shells expect it."""

BUG = 70
"""Exit status of an error that nobody foresaw (``EX_SOFTWARE`` of sysexits.h)."""


@dataclass(frozen=True)
class Verb:
    """Where a verb of the command line lives, and its line in the list of commands."""

    module: str
    attribute: str
    help: str

    def add_to(self, app: typer.Typer, name: str) -> None:
        """Import the verb and hang it into ``app``: a ``typer.Typer`` as a group, a function as a command."""
        found = getattr(importlib.import_module(self.module), self.attribute)
        if isinstance(found, typer.Typer):
            for command in found.registered_commands:
                if command.callback is not None and command.help is None:
                    command.help = _unwrapped(command.callback.__doc__)
            app.add_typer(found, name=name, help=self.help)
        else:
            app.command(name, help=_unwrapped(found.__doc__))(found)

    def add_line_to(self, app: typer.Typer, name: str) -> None:
        """Hang only the verb's line in the list of commands into ``app``, importing nothing."""
        app.command(name, help=self.help)(_only_listed)


def _unwrapped(docstring: str | None) -> str:
    """The text with each paragraph on one line: ``--help`` keeps line ends, which were made for the source's width."""
    paragraphs = inspect.cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _only_listed() -> None:
    raise AssertionError("a verb that was asked for is imported before the command line is read")


VERBS = {
    "demo": Verb("ostinato.cli.demo", "demo", "Draw two people, train a swap, and show what it learned in minutes."),
    "swap": Verb("ostinato.cli.swap", "app", "Train a face-swap model, and swap faces with it."),
    "recognition": Verb("ostinato.cli.recognition", "app", "Train face recognition with very many identities."),
    "runs": Verb("ostinato.cli.runs", "app", "Look at run folders: list, show, verify, restore, compare."),
    "launch": Verb("ostinato.cli.launch", "launch", "Start the ranks of a training, on this machine or on several."),
}


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """Return the command line for ``arguments``: the verb they name in full, of the other verbs only their line."""
    app = typer.Typer(
        name="ostinato",
        cls=_Root,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    # The options before the verb take no values, so the first word that is no option is the verb. The shell asks for
    # completions through an environment variable, and then any verb may be meant.
    asked = next((word for word in arguments if not word.startswith("-")), None)
    completing = "_OSTINATO_COMPLETE" in os.environ
    for name, verb in VERBS.items():
        if completing or name == asked:
            verb.add_to(app, name)
        else:
            verb.add_line_to(app, name)
    return app


class _Root(typer.core.TyperGroup):
    """The whole command line. Of several ranks that are called in a wrong way, one shows it."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            told = getattr(error, "format_message", None)  # of all errors that typer shows itself
            if told is not None and not ctx.obj.may_say(told()):
                raise typer.Exit(getattr(error, "exit_code", 2)) from None
            raise


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ostinato {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where errors come from. OSTINATO_DEBUG=1 does the same.")
    ] = False,
) -> None:
    """Training that keeps going: face swaps and face recognition, killed at any moment and continued exactly."""


def run(arguments: Sequence[str]) -> int:
    """Run the command line ``arguments`` (without the program's name) and return the exit status.

    0 done, 1 failed, 2 wrong usage, 3 bad input, 4 damaged run, 70 a bug, 130 and 143 interrupted by a signal.
    """
    arguments, debug = _take_debug(arguments)
    _print_whatever_the_terminal_can()
    voice = OneVoice()
    try:
        return _run(arguments, debug, voice)
    finally:
        voice.done()


def _run(arguments: Sequence[str], debug: bool, voice: OneVoice) -> int:
    with _warnings_on_stderr(debug):
        try:
            arguments = as_meant(arguments)
            build_app(arguments)(args=list(arguments), prog_name="ostinato", obj=voice)
        except SystemExit as leaving:
            # Typer turns Ctrl-C into a silent exit; a command that handles Ctrl-C itself has said its own word.
            if leaving.code == INTERRUPTED and _was_interrupted(leaving):
                _say("Interrupted.")
            return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        except KeyboardInterrupt:
            _say("Interrupted.")
            return INTERRUPTED
        except OstinatoError as error:
            told, is_echo = said_by_all(error)
            if debug or voice.may_say(told, is_echo=is_echo):
                _say(f"Error: {error}", debug)
            return error.exit_code
        except OSError as error:
            if debug or voice.may_say(str(error)):
                _say(f"Error: the operating system refused: {error}. --debug shows where it happened.", debug)
            return 1
        except Exception as error:
            _say(
                f"Error: this was not foreseen, so it is a bug in Ostinato: {type(error).__name__}: {error}. What was "
                "saved before is untouched. Please report it with the text that the same command prints with --debug.",
                debug,
            )
            return BUG
    return 0


def main() -> None:
    """Run the process' own command line and leave with its exit status."""
    _open_missing_streams()
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output (`| head`) has had enough. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def _open_missing_streams() -> None:
    """Give a process that was started without standard streams silent ones.

    Otherwise the next file that is opened, such as a lock or a log, would get the number of the missing stream, and
    whatever a library prints would be written into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _take_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Return the arguments without ``--debug``, which may stand anywhere before ``--``, and whether it was there."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [word for word in arguments[:end] if word != "--debug"]
    debug = len(kept) < end or os.environ.get("OSTINATO_DEBUG", "") not in ("", "0")
    return [*kept, *arguments[end:]], debug


def _print_whatever_the_terminal_can() -> None:
    # A face's file name or a quotation mark that the terminal's encoding lacks must not end a training.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


class _ShownFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return shown_text(super().format(record))


@contextmanager
def _warnings_on_stderr(debug: bool) -> Generator[None, None, None]:
    """Show what the rooms log: warnings, and with ``debug`` everything."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_ShownFormatter("%(levelname)s %(name)s: %(message)s" if debug else "%(message)s"))
    logger = logging.getLogger("ostinato")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _was_interrupted(error: BaseException) -> bool:
    cause = error.__cause__ or error.__context__
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _say(message: str, with_traceback: bool = False) -> None:
    """Print ``message`` on stderr, wrapped where a person reads it, and before it the traceback if asked for."""
    if with_traceback:
        traceback.print_exc()
    message = shown_text(message)
    if sys.stderr.isatty():
        width = max(40, shutil.get_terminal_size().columns - 1)
        message = "\n".join(_wrap(line, width) for line in message.splitlines())
    print(message, file=sys.stderr, flush=True)


def _wrap(line: str, width: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line, width, subsequent_indent=indent, replace_whitespace=False, break_long_words=False, break_on_hyphens=False
    )
