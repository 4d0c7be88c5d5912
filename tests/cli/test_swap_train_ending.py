"""How `ostinato swap train` ends: signals, keys, broken output, odd surroundings, and what goes wrong on the way."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_client import CommandServer, Kept, Started, assert_equal_runs
from training_fixtures import QUICK

from ostinato.runs import RunFolder

HELPERS = Path(__file__).parents[1] / "helpers"


def command(people: Path, run: Path, *further: str | Path) -> list[str | Path]:
    words: list[str | Path] = ["swap", "train", "-A", people / "a", "-B", people / "b", "-m", run, "-b", "2"]
    return [*words, "--set", "seed=1", *QUICK, *further]


SLOW = {"slow_updates": {"seconds": 0.02}}


@pytest.fixture(scope="module")
def undisturbed(commands: CommandServer, people: Path, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    status, text = commands.run(*command(people, run, "-i", "20", "-s", "3"))
    assert status == 0, text
    return Kept.read(run)


# --- signals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_saves_and_leaves_with_its_status_and_the_same_command_finishes(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept, number: signal.Signals
) -> None:
    words = command(people, tmp_path / "run", "-i", "20", "-s", "3")
    started = commands.start(*words, faults={"slow_updates": {"seconds": 0.3, "after": 4}})
    started.wait_for("saved iteration 3")
    started.kill(number)
    assert started.wait() == 128 + number
    assert "stopped at iteration " in started.text
    assert "is saved, and the same command continues from there" in started.text
    newest = RunFolder(tmp_path / "run").load_newest()
    assert newest is not None
    assert "signal" in newest.manifest.reasons
    assert f"stopped at iteration {newest.iteration}; iteration {newest.iteration} is saved" in started.text
    announced = started.text.index(f"stopping: iteration {newest.iteration} is being saved")
    assert announced < started.text.rindex("saved iteration")
    assert commands.run(*words)[0] == 0
    assert_equal_runs(Kept.read(tmp_path / "run"), undisturbed)


def test_ctrl_c_twice_leaves_at_once_and_loses_nothing_that_was_saved(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept
) -> None:
    words = command(people, tmp_path / "run", "-i", "20", "-s", "3")
    started = commands.start(*words, faults={"slow_updates": {"seconds": 600, "after": 4, "say": True}})
    started.wait_for("update 5 takes its time")
    # The save may end only now, and is told of after the update that takes its time: so look at the disk.
    generation = tmp_path / "run" / "generations" / "00000003"
    end = time.monotonic() + 300
    while not generation.exists() and time.monotonic() < end:
        time.sleep(0.05)
    started.kill(signal.SIGINT)
    time.sleep(1)
    while "left at once" not in started.text and time.monotonic() < end:
        started.kill(signal.SIGINT)  # again and again, since two signals at the same moment are one
        heard = time.monotonic() + 60
        while "left at once" not in started.text and time.monotonic() < heard:
            time.sleep(0.05)
    assert started.wait() == 130
    assert "left at once; iteration 3 is saved, and the same command continues from there" in started.text
    assert [str(name) for name in RunFolder(tmp_path / "run").names()] == ["00000003"]
    assert commands.run(*words)[0] == 0
    assert_equal_runs(Kept.read(tmp_path / "run"), undisturbed)


def test_when_the_grace_is_over_it_leaves_and_says_what_is_saved(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept
) -> None:
    words = command(people, tmp_path / "run", "-i", "20", "-s", "3")
    faults = {"slow_updates": {"seconds": 100, "after": 6, "say": True}}
    started = commands.start(*words, "--grace", "0.5", faults=faults)
    started.wait_for("update 7 takes its time")
    started.kill(signal.SIGTERM)
    assert started.wait() == 143
    assert "The run has not ended within 0.5 seconds after SIGTERM: leaving now. Iteration " in started.text
    assert "is saved, and the same command continues from there." in started.text
    assert commands.run(*words)[0] == 0
    assert_equal_runs(Kept.read(tmp_path / "run"), undisturbed)


def test_terminated_twice_still_saves(commands: CommandServer, people: Path, tmp_path: Path) -> None:
    faults = {"slow_updates": {"seconds": 1, "after": 4}}
    started = commands.start(*command(people, tmp_path / "run", "-s", "3"), faults=faults)
    started.wait_for("saved iteration 3")
    started.kill(signal.SIGTERM)
    time.sleep(0.2)
    started.kill(signal.SIGTERM)
    assert started.wait() == 143
    assert "stopped at iteration" in started.text


def test_signals_at_random_moments_end_it_soon_and_leave_a_whole_run(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    draw = random.Random(1)
    words = command(people, tmp_path / "run", "-s", "2")
    for _ in range(8):
        number = draw.choice([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
        started = commands.start(*words, faults={"slow_saves": {"seconds": draw.choice([0.0, 0.1])}})
        started.wait_for("run")  # it has said that it begins or goes on
        time.sleep(draw.uniform(0.0, 0.6))
        started.kill(number)
        # While it starts there is nothing to save, and it ends at once; a shell calls both the same.
        assert started.wait() in (128 + number, -number), started.text
        folder = RunFolder(tmp_path / "run")
        assert all(not damage for damage in folder.verify().values())


def test_under_nohup_a_closed_terminal_changes_nothing(commands: CommandServer, people: Path, tmp_path: Path) -> None:
    words = command(people, tmp_path / "run", "-i", "8", "-s", "2")
    started = commands.start(*words, faults=SLOW, ignored_signals=[signal.SIGHUP])
    started.wait_for("saved iteration 2")
    started.kill(signal.SIGHUP)
    assert started.wait() == 0
    assert Kept.read(tmp_path / "run").iteration == 8


# --- surroundings -----------------------------------------------------------------------------------------------------

PROGRAM = """
import importlib, sys
sys.path.insert(0, sys.argv.pop(1))
import tiny_model
for place in tiny_model.PLACES:
    module, name = place.rsplit(".", 1)
    setattr(importlib.import_module(module), name, tiny_model.build_tiny_model)
from ostinato.cli.main import main
main()
"""


def program(*words: str | Path | bytes) -> list[str | bytes]:
    """The real program as a process of its own, with the tiny model."""
    return [sys.executable, "-c", PROGRAM, str(HELPERS), *(w if isinstance(w, bytes) else str(w) for w in words)]


def test_with_a_silent_pipe_as_input_it_ends_by_itself(people: Path, tmp_path: Path, face_cache: Path) -> None:
    read, write = os.pipe()
    words = program(*command(people, tmp_path / "run", "-i", "4", "-s", "2", "-w"))
    environment = {**os.environ, "XDG_CACHE_HOME": str(face_cache)}
    done = subprocess.run(words, stdin=read, capture_output=True, text=True, timeout=300, env=environment)
    os.close(write)
    os.close(read)
    assert done.returncode == 0, done.stderr
    assert "finished: all 4 iterations" in done.stdout
    assert "keys:" not in done.stdout


def test_without_streams_and_without_an_environment_it_ends_by_itself(people: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    words = program(*command(people, tmp_path / "run", "-i", "4", "-s", "2"))
    shell = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words]
    done = subprocess.run(shell, timeout=300, env={"OMP_NUM_THREADS": "1"}, cwd=home)
    assert done.returncode == 0
    assert Kept.read(tmp_path / "run").iteration == 4


def test_a_reader_of_its_output_that_goes_away_does_not_end_it(
    people: Path, tmp_path: Path, face_cache: Path, undisturbed: Kept
) -> None:
    words = program(*command(people, tmp_path / "run", "-i", "20", "-s", "3"))
    environment = {**os.environ, "XDG_CACHE_HOME": str(face_cache)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        child.stderr.read()
        assert child.wait(300) == 0
    assert_equal_runs(Kept.read(tmp_path / "run"), undisturbed)


def test_odd_names_everywhere_in_a_poor_locale(people: Path, tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    odd = "얼굴 😀 e\u0301 é".encode()
    faces = os.path.join(root, b"trailing \xff\xfe" + odd)
    shutil.copytree(os.fsencode(people / "a"), faces)
    for number, name in enumerate([b"new\nline.png", b"\xfc\xfd.png", odd + b".png", "한글.png".encode(), b" .png"]):
        os.rename(os.path.join(faces, b"drawn_%06d_0.png" % number), os.path.join(faces, name))
    with open(os.path.join(faces, b"br\noken\xff.png"), "wb") as file:
        file.write(b"no picture")
    run = os.path.join(root, b"run \n\xff " + odd)
    words = [b"swap", b"train", b"-A", faces, b"-B", os.fsencode(people / "b"), b"-m", run, b"-b", b"2", b"-i", b"4"]
    words += [b"-s", b"2", b"--skip-bad-faces", b"-F", os.path.join(root, b"log\xff"), b"--cache", root + b"/c\xff"]
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(program(*words), capture_output=True, timeout=300, env={**environment, "HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode("ascii")
    assert "br\\noken\\xff.png is left out: " in text
    assert Kept.read(Path(os.fsdecode(run))).iteration == 4
    assert os.path.getsize(os.path.join(root, b"log\xff")) > 0
    # The faces that a failing batch names are readable too.
    words[words.index(b"-i") + 1] = b"9"
    done = subprocess.run(program(*words, b"-L", b"debug"), capture_output=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


# --- keys -------------------------------------------------------------------------------------------------------------


class Terminal:
    """A terminal with a training in it."""

    def __init__(self, commands: CommandServer, words: list[str | Path]) -> None:
        self.leader, self.follower = os.openpty()
        self.shown = ""
        self.process: Started = commands.start(
            *words, faults={"slow_updates": {"seconds": 0.05}}, terminal=os.ttyname(self.follower)
        )

    def press(self, keys: str) -> None:
        os.write(self.leader, keys.encode())

    def wait_for(self, text: str, count: int = 1) -> None:
        end = time.monotonic() + 300
        while self.shown.count(text) < count:
            assert time.monotonic() < end, self.shown
            if select.select([self.leader], [], [], 0.1)[0]:
                self.shown += os.read(self.leader, 65536).decode(errors="replace")

    def close(self) -> None:
        os.close(self.leader)
        os.close(self.follower)


def test_keys_on_a_terminal(commands: CommandServer, people: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    latest = run / "previews" / "latest.png"
    terminal = Terminal(commands, command(people, run, "-s", "1000000"))
    try:
        terminal.wait_for("keys: Enter save and quit, S save, R new preview, M mask in the preview")
        terminal.wait_for("iteration 1")
        assert not latest.exists()
        terminal.press("r")
        wait_until(latest.exists)
        first = latest.read_bytes()
        assert RunFolder(run).names() == []
        terminal.press("m")
        wait_until(lambda: latest.read_bytes() != first)
        terminal.press("S")
        terminal.wait_for("saved iteration")
        saved = RunFolder(run).names()
        assert len(saved) == 1
        terminal.press("\r")
        terminal.wait_for("stopped at iteration")
        assert terminal.process.wait() == 0
        newest = RunFolder(run).load_newest()
        assert newest is not None
        assert newest.iteration > saved[0].iteration
        assert "session_end" in newest.manifest.reasons
    finally:
        terminal.close()


def test_a_terminal_that_goes_away_saves_and_ends_it(commands: CommandServer, people: Path, tmp_path: Path) -> None:
    terminal = Terminal(commands, command(people, tmp_path / "run", "-s", "2"))
    terminal.wait_for("saved iteration 2")
    terminal.close()
    assert terminal.process.wait() == 128 + signal.SIGHUP
    newest = RunFolder(tmp_path / "run").load_newest()
    assert newest is not None
    assert "signal" in newest.manifest.reasons


def wait_until(condition) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_full_disk_costs_saves_and_not_the_training(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept
) -> None:
    faults = {"fail_writes": {"error": "ENOSPC", "first": 6, "last": 12}}
    status, text = commands.run(*command(people, tmp_path / "run", "-i", "20", "-s", "3"), faults=faults)
    assert status == 0, text
    for iteration in (6, 9, 12):
        assert (
            f"The state at iteration {iteration} could not be saved in {tmp_path / 'run'}: No space left on device "
            "(model.safetensors). Free some space; the next save tries again."
        ) in text
        assert f"saved iteration {iteration}," not in text
    assert text.index("saved iteration 3,") < text.index("The state at iteration 6") < text.index("saved iteration 15,")
    assert not list((tmp_path / "run" / "generations").glob(".*"))
    assert_equal_runs(Kept.read(tmp_path / "run"), undisturbed)


def test_when_nothing_at_all_can_be_written_training_goes_on_and_catches_up(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    words = ["-i", "40", "-s", "5"]
    assert commands.run(*command(people, tmp_path / "free", *words))[0] == 0
    faults = {"no_room": {"first": 19, "last": 31, "size": 6000}}
    status, text = commands.run(*command(people, tmp_path / "run", *words), faults=faults)
    assert status == 0, text
    for what in ("The state at iteration 30 could not be saved", "metrics.jsonl cannot be written", "No preview at"):
        assert what in text
    assert "saved iteration 35," in text
    assert_equal_runs(Kept.read(tmp_path / "run"), Kept.read(tmp_path / "free"))


def test_a_disk_that_stays_full_keeps_the_generation_before_and_says_so_once_at_the_end(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept
) -> None:
    words = command(people, tmp_path / "run", "-i", "20", "-s", "3")
    status, text = commands.run(*words, faults={"fail_writes": {"error": "ENOSPC", "first": 13, "last": 99}})
    assert status == 1
    assert text.count("The state at iteration 20 could not be saved") == 1
    assert "The newest saved state is that of iteration 12. Remove the cause and start the same command again" in text
    newest = RunFolder(tmp_path / "run").load_newest()
    assert newest is not None
    assert newest.iteration == 12
    assert commands.run(*words)[0] == 0
    assert_equal_runs(Kept.read(tmp_path / "run"), undisturbed)


@pytest.mark.parametrize("error", ["EBUSY", "EPERM"])
def test_a_file_that_is_held_for_a_moment_costs_nothing(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept, error: str
) -> None:
    words = command(people, tmp_path / "run", "-i", "20", "-s", "3")
    status, text = commands.run(*words, faults={"busy_file": {"error": error, "times": 2}})
    assert status == 0, text
    assert text.count("; trying again") == 1
    assert_equal_runs(Kept.read(tmp_path / "run"), undisturbed)


def test_a_loss_that_is_no_number_names_side_loss_iteration_files_and_the_good_state(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    words = command(people, tmp_path / "run", "-i", "20", "-s", "3")
    status, text = commands.run(*words, faults={"nan_loss": {"iteration": 8, "side": 1}})
    assert status == 1
    assert "The loss is not a finite number at iteration 8: loss/b is nan, loss/b/ssim is nan, " in text
    assert "Side b: output 64 x 64 pixels, loss functions ssim, mse. The batch: a: " in text
    assert f"; b: {people / 'b'}/drawn_" in text
    assert "The newest good state is generation 00000006, and the same command goes on from it." in text
    assert [name.iteration for name in RunFolder(tmp_path / "run").names()] == [3, 6]


def test_a_learning_rate_of_100_is_stopped_before_it_is_saved(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    words = command(people, tmp_path / "run", "-i", "200", "-s", "5", "--set", "optimizer.learning_rate=100")
    status, text = commands.run(*words)
    assert status == 1
    assert "The loss is not a finite number at iteration" in text
    for name in RunFolder(tmp_path / "run").names():
        model = RunFolder(tmp_path / "run").read(str(name)).model
        assert all(tensor.isfinite().all() for tensor in model.values())


SAVED_OPTIMIZER = ("optimizer.json", "optimizer.safetensors")


def optimizers_in(run: Path) -> dict[int, int | None]:
    """For each generation, of which iteration its optimizer state is; None where it has none."""
    found = {}
    for manifest in RunFolder(run).scan().manifests:
        folder = run / "generations" / manifest.generation
        has = {name for name in SAVED_OPTIMIZER if (folder / name).exists()}
        assert has in (set(), set(SAVED_OPTIMIZER))
        assert bool(has) == (manifest.optimizer_iteration is not None)
        found[manifest.iteration] = manifest.optimizer_iteration
    return found


def test_an_optimizer_that_is_always_saved_is_in_every_generation(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    words = ["-i", "6", "-s", "2", "--set", "optimizer.save_optimizer=always"]
    assert commands.run(*command(people, tmp_path / "run", *words))[0] == 0
    found = optimizers_in(tmp_path / "run")
    assert len(found) >= 2
    assert all(iteration == of for iteration, of in found.items())


def test_an_optimizer_saved_at_the_end_continues_exactly_and_after_a_kill_with_the_older_one(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept
) -> None:
    run = tmp_path / "run"
    words = command(people, run, "-i", "20", "-s", "3", "--set", "optimizer.save_optimizer=exit")
    first = [word if word != "20" else "7" for word in words]
    assert commands.run(*first)[0] == 0
    found = optimizers_in(run)
    assert found.pop(7) == 7
    assert set(found.values()) == {None}
    assert commands.run(*words)[0] == 0
    assert_equal_runs(Kept.read(run), undisturbed)
    # Without a proper end the newest weights go on with what the optimizer was at the last one, and that is said.
    later = [word if word != "20" else "40" for word in words]
    started = commands.start(*later, faults={"kill_at": {"point": "update", "number": 10}})
    assert started.wait() == -signal.SIGKILL
    newest = max(optimizers_in(run))
    assert newest > 20
    assert optimizers_in(run)[newest] == 20
    status, text = commands.run(*[word if word != "20" else "31" for word in words])
    assert status == 0, text
    assert f"The optimizer state is of iteration 20, the weights are of iteration {newest}" in text
    assert optimizers_in(run)[31] == 31


def test_an_optimizer_that_is_never_saved_begins_anew_in_every_session(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept
) -> None:
    run = tmp_path / "run"
    words = command(people, run, "-i", "7", "-s", "3", "--set", "optimizer.save_optimizer=never")
    assert commands.run(*words)[0] == 0
    assert set(optimizers_in(run).values()) == {None}
    assert Kept.read(run).losses[7] == undisturbed.losses[7]
    words[words.index("7")] = "20"
    status, text = commands.run(*words)
    assert status == 0, text
    kept = Kept.read(run)
    assert kept.losses[8] == undisturbed.losses[8]  # the same weights and the same faces
    assert kept.losses[20] != undisturbed.losses[20]  # and other steps from there
    assert set(optimizers_in(run).values()) == {None}


def test_no_memory_in_a_step_gives_advice_and_leaves_the_run_whole(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept
) -> None:
    words = command(people, tmp_path / "run", "-i", "20", "-s", "3")
    status, text = commands.run(*words, faults={"no_memory": {"iteration": 5}})
    assert status == 1
    assert "There is not enough memory for a training step of original with 2 faces of each side." in text
    assert "use a smaller batch: -b 1 instead of -b 2" in text
    assert commands.run(*words)[0] == 0
    assert_equal_runs(Kept.read(tmp_path / "run"), undisturbed)


def test_no_memory_for_the_model_gives_the_same_advice_and_makes_no_run(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    status, text = commands.run(*command(people, tmp_path / "run", "-i", "20"), faults={"no_memory_for_model": {}})
    assert (status, (tmp_path / "run").exists()) == (1, False)
    assert "not enough memory" in text
    assert "take a smaller model: -t lightweight" in text
