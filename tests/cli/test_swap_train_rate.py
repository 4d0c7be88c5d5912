"""`ostinato swap train -r`: the search for the learning rate, as a user meets it."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import cv2
import pytest
from command_client import CommandServer, Kept, assert_equal_runs
from training_fixtures import QUICK

from ostinato.runs import RunFolder


def command(people: Path, run: Path, *further: str | Path) -> list[str | Path]:
    words: list[str | Path] = ["swap", "train", "-A", people / "a", "-B", people / "b", "-m", run, "-b", "2"]
    words += ["--set", "seed=1", "--set", "rate_finder.lr_finder_iterations=100", *QUICK]
    return [*words, *further]


def rate_in(run: Path) -> dict[str, Any]:
    loaded = RunFolder(run).load_newest()
    assert loaded is not None
    state: Any = loaded.state
    return state["trainer"]["updater"]["learning_rate"]


@pytest.fixture(scope="module")
def searched(commands: CommandServer, people: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of 6 iterations in two sessions that begins with a search, and what was shown."""
    folder = tmp_path_factory.mktemp("searched")
    text = ""
    for end in ("3", "6"):
        faults = {"note_steps": {"path": str(folder / f"steps_{end}.jsonl")}}
        status, shown = commands.run(*command(people, folder / "run", "-i", end, "-s", "2", "-r"), faults=faults)
        assert status == 0, shown
        text += shown
    return folder, text


def test_the_rate_that_was_found_is_shown_kept_and_used_in_every_session(searched: tuple[Path, str]) -> None:
    folder, text = searched
    state = rate_in(folder / "run")
    assert state["found"] is not None
    assert f"learning rate {state['found']:.3g}: the loss was lowest at " in text
    assert f"learning rate {state['found']:.3g}: found by the search" in text
    assert text.count("searching for the learning rate") == 1
    assert "resuming run at iteration 3 (session 2)" in text
    steps = [json.loads(line) for end in (3, 6) for line in (folder / f"steps_{end}.jsonl").read_text().splitlines()]
    assert [group["lr"] for step in steps[-6:] for group in step["groups"]] == [state["found"]] * 12
    sessions = RunFolder(folder / "run").load_newest().sessions  # type: ignore[union-attr]
    assert [session.options["optimizer.learning_rate"] for session in sessions] == [state["found"]] * 2
    assert len(list((folder / "run").glob("learning_rate_finder_*.csv"))) == 1


def test_the_run_is_the_one_that_was_given_this_rate_from_the_beginning(
    commands: CommandServer, people: Path, tmp_path: Path, searched: tuple[Path, str]
) -> None:
    """So the search has left no trace but the rate: not in weights, moments, order of faces or any random number."""
    run = searched[0] / "run"
    rate = f"optimizer.learning_rate={rate_in(run)['found']!r}"
    for end in ("3", "6"):
        words = command(people, tmp_path / "given", "-i", end, "-s", "2", "--set", rate)
        assert commands.run(*words)[0] == 0
    assert_equal_runs(Kept.read(run), Kept.read(tmp_path / "given"))


def test_killed_while_it_searches_it_has_lost_nothing_and_begins_the_search_again(
    commands: CommandServer, people: Path, tmp_path: Path, searched: tuple[Path, str]
) -> None:
    words = command(people, tmp_path / "run", "-i", "3", "-s", "2", "-r")
    started = commands.start(*words, faults={"kill_at": {"point": "update", "number": 50}})
    assert started.wait() == -signal.SIGKILL
    assert RunFolder(tmp_path / "run").names() == []
    assert commands.run(*words)[0] == 0
    assert commands.run(*command(people, tmp_path / "run", "-i", "6", "-s", "2"))[0] == 0  # the rate stays without -r
    assert_equal_runs(Kept.read(tmp_path / "run"), Kept.read(searched[0] / "run"))


def test_a_signal_ends_the_search_and_the_same_command_begins_it_again(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    words = command(people, tmp_path / "run", "-i", "3", "-r")
    started = commands.start(*words, faults={"hold_update": {"after": 2, "path": str(tmp_path / "go")}})
    started.wait_for("update 3 waits")
    started.kill(signal.SIGTERM)
    (tmp_path / "go").touch()
    assert started.wait() == 128 + signal.SIGTERM
    assert "the search for the learning rate was stopped at batch 3; nothing has changed" in started.text
    assert RunFolder(tmp_path / "run").names() == []
    status, text = commands.run(*words)
    assert status == 0, text
    assert "searching for the learning rate" in text


def test_graph_and_exit_leaves_a_picture_and_the_same_command_trains_with_the_rate(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = command(people, run, "-i", "2", "-r", "--set", "rate_finder.lr_finder_mode=graph_and_exit")
    status, text = commands.run(*words)
    assert status == 0, text
    assert "leaving, as lr_finder_mode graph_and_exit says" in text
    assert [name.iteration for name in RunFolder(run).names()] == [0]
    (picture,) = run.glob("learning_rate_finder_*.png")
    assert cv2.imread(str(picture)) is not None
    found = rate_in(run)["found"]
    status, text = commands.run(*words)
    assert status == 0, text
    assert "searching" not in text
    assert f"learning rate {found:.3g}: found by the search" in text
    assert rate_in(run)["found"] == found
    assert Kept.read(run).iteration == 2


def test_a_run_that_has_been_trained_is_searched_only_when_that_is_asked_for_twice(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    assert commands.run(*command(people, run, "-i", "3", "-s", "2"))[0] == 0
    status, text = commands.run(*command(people, run, "-i", "5", "-s", "2", "-r"))
    assert status == 0, text
    assert "-r/--use-lr-finder is for new runs, and this one has 3 iterations" in text
    assert "--find-lr-again" in text
    assert rate_in(run)["found"] is None
    status, text = commands.run(*command(people, run, "-i", "7", "-s", "2", "--find-lr-again"))
    assert status == 0, text
    found = rate_in(run)["found"]
    assert found is not None
    # Where it was searched does not show either.
    assert commands.run(*command(people, whole, "-i", "5", "-s", "2"))[0] == 0
    words = command(people, whole, "-i", "7", "-s", "2", "--set", f"optimizer.learning_rate={found!r}")
    assert commands.run(*words)[0] == 0
    assert_equal_runs(Kept.read(run), Kept.read(whole))


def test_who_has_looked_at_the_curve_and_asks_for_a_rate_gets_it_and_no_second_search(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = command(people, run, "-i", "2", "-r", "--set", "rate_finder.lr_finder_mode=graph_and_exit")
    assert commands.run(*words)[0] == 0
    status, text = commands.run(*words, "--set", "optimizer.learning_rate=3e-5")
    assert status == 0, text
    assert "searching" not in text
    assert "learning rate 3e-05, as asked for now" in text
    assert Kept.read(run).iteration == 2
    assert rate_in(run)["found"] is None


def test_that_the_same_rate_cannot_be_asked_for_again_is_said(
    commands: CommandServer, people: Path, tmp_path: Path, searched: tuple[Path, str]
) -> None:
    run = Path(shutil.copytree(searched[0] / "run", tmp_path / "run"))
    found = rate_in(run)["found"]
    status, text = commands.run(*command(people, run, "-i", "7", "--set", "optimizer.learning_rate=5e-5"))
    assert status == 0, text
    assert (
        f"learning rate {found:.3g}: found by the search; optimizer.learning_rate=5e-05 is what was asked for before, "
        "and changes nothing (another value does)"
    ) in text
    assert rate_in(run)["found"] == found


def test_a_run_can_be_searched_again_with_other_options_of_the_search(
    commands: CommandServer, people: Path, tmp_path: Path, searched: tuple[Path, str]
) -> None:
    run = Path(shutil.copytree(searched[0] / "run", tmp_path / "run"))
    found = rate_in(run)["found"]
    changes = ["--set", "rate_finder.lr_finder_strength=extreme", "--set", "rate_finder.lr_finder_iterations=200"]
    status, text = commands.run(*command(people, run, "-i", "7", "-r"), *changes)
    assert status == 0, text
    assert (
        "rate_finder.lr_finder_iterations, rate_finder.lr_finder_strength: acts in the next search, and this run keeps "
        "the rate it has found. --find-lr-again searches anew."
    ) in text
    assert rate_in(run)["found"] == found
    status, text = commands.run(*command(people, run, "-i", "8", "--find-lr-again", "-b", "8"), *changes)
    assert status == 0, text
    assert "searching for the learning rate: 200 batches" in text
    assert "the strength extreme takes two fifths of that" in text
    assert "acts in the next search" not in text
    assert rate_in(run)["found"] != found


def test_another_rate_that_is_asked_for_wins(
    commands: CommandServer, people: Path, tmp_path: Path, searched: tuple[Path, str]
) -> None:
    run = Path(shutil.copytree(searched[0] / "run", tmp_path / "run"))
    path = tmp_path / "steps.jsonl"
    words = command(people, run, "-i", "8", "--set", "optimizer.learning_rate=3e-5")
    status, text = commands.run(*words, faults={"note_steps": {"path": str(path)}})
    assert status == 0, text
    steps = [json.loads(line) for line in path.read_text().splitlines()]
    assert {group["lr"] for step in steps for group in step["groups"]} == {3e-5}
    found = rate_in(searched[0] / "run")["found"]
    assert (f"learning rate 3e-05, as asked for now; before, this run had {found:.3g}, found by the search") in text
    assert rate_in(run)["found"] is None
