"""A swap training that is killed again and again is equal, bit for bit, to one that never was."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_client import CommandServer, Kept, assert_equal_runs
from training_fixtures import QUICK

ITERATIONS = 40
KILLS_IN_A_TEST = 6


def command(people: Path, run: Path, workers: int, *further: str) -> list[str]:
    """The one command that starts, continues and finishes a run."""
    words = ["swap", "train", "-A", str(people / "a"), "-B", str(people / "b"), "-m", str(run), "-b", "2"]
    words += ["-i", str(ITERATIONS), "-s", "4", "-I", "10", "--set", "seed=7", *QUICK]
    return [*words, "--set", f"loader.num_processes={workers}", *further]


@pytest.fixture(scope="module")
def undisturbed(commands: CommandServer, people: Path, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    status, text = commands.run(*command(people, run, 2))
    assert status == 0, text
    return Kept.read(run)


def finish_killed(
    commands: CommandServer, words: list[str], run: Path, faults: list[Mapping[str, Mapping[str, Any]]]
) -> int:
    """Start the command with each fault in turn, then without one until it ends; how often it was killed."""
    kills = 0
    for fault in [*faults, {}]:
        status, text = commands.run(*words, faults=fault)
        assert status in (0, -signal.SIGKILL), text
        kills += status == -signal.SIGKILL
    assert status == 0, text
    assert Kept.read(run).iteration == ITERATIONS
    return kills


VARIANTS = {
    "accumulation and autoclip": [
        *("--set", "optimizer.gradient_accumulation=3", "--set", "optimizer.gradient_clipping=autoclip"),
        *("--set", "optimizer.clipping_value=5", "-a", "20"),
    ],
    "bfloat16 and a learned mask": ["--set", "network.mixed_precision=true", "--set", "mask.learn_mask=true", "-M"],
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_with_other_options(commands: CommandServer, people: Path, tmp_path: Path, variant: str) -> None:
    whole = tmp_path / "whole"
    status, text = commands.run(*command(people, whole, 2, *VARIANTS[variant]))
    assert status == 0, text
    words = command(people, tmp_path / "run", 1, *VARIANTS[variant])
    # Saves are at every fourth iteration and steps at every third, so most saves are amid an accumulation.
    faults = [{"kill_at": {"point": "update", "number": number}} for number in (5, 7, 6)]
    assert finish_killed(commands, words, tmp_path / "run", faults) == 3
    assert_equal_runs(Kept.read(tmp_path / "run"), Kept.read(whole))


# Before and after each step of the training. The numbers let each start come to a save or just not. Saves are made in
# the background, so only a second one tells that the first is on the disk: the second purge of a start needs the log of
# an earlier session, and the ninth step of the optimizer lies behind two saves.
POINTS = [
    ("update", 5, False),
    ("update", 3, True),
    ("batch", 6, False),
    ("optimizer", 8, True),
    ("metrics", 0, False),
    ("metrics", 1, True),
    ("purge", 0, False),
    ("preview", 0, False),
    ("preview", 0, True),
    ("submit", 0, False),
    ("submit", 1, True),
    ("commit", 0, False),
    ("commit", 1, True),
    ("purge", 1, True),
]


@pytest.mark.parametrize(("workers", "part"), [(0, 0), (3, 1)])
def test_killed_at_steps_of_the_training(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept, workers: int, part: int
) -> None:
    run = tmp_path / "run"
    points = POINTS[part::2]
    faults = [{"kill_at": {"point": point, "number": number, "after": after}} for point, number, after in points]
    kills = finish_killed(commands, command(people, run, workers), run, faults)
    assert kills == len(points)
    assert_equal_runs(Kept.read(run), undisturbed)


# Each step of a commit, before and after it; the second save of a start, so that each start gets on.
GENERATION = r"\d{8}"
STEPS = [
    ("before", "make_folder", rf"\.tmp-{GENERATION}", 1),
    ("before", "create", r"model\.safetensors", 1),
    ("after", "write", r"model\.safetensors", 1),
    ("after", "flush_file", r"optimizer\.safetensors", 1),
    ("before", "create", r"manifest\.json", 1),
    ("after", "flush_file", r"manifest\.json", 1),
    ("before", "flush_folder", rf"\.tmp-{GENERATION}", 1),
    ("after", "flush_folder", rf"\.tmp-{GENERATION}", 1),
    ("before", "rename", GENERATION, 1),
    ("after", "rename", GENERATION, 0),
    ("after", "flush_folder", "generations", 0),
    ("after", "read_back", r"model\.safetensors", 0),
    ("before", "append", r"journal\.jsonl", 0),
    ("after", "append", r"journal\.jsonl", 0),
    ("before", "rename", rf"\.trash-{GENERATION}", 0),
    ("after", "remove", "model.*", 0),
    ("before", "remove_folder", rf"\.trash-{GENERATION}", 0),
    ("before", "rename", r"config\.yaml", 0),
]


@pytest.mark.parametrize(("workers", "part"), [(0, 0), (1, 1)])
def test_killed_at_steps_of_a_commit(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept, workers: int, part: int
) -> None:
    run = tmp_path / "run"
    steps = STEPS[part::2]
    faults = [
        {"kill_at_operation": dict(zip(("moment", "operation", "name", "number"), s, strict=True))} for s in steps
    ]
    assert finish_killed(commands, command(people, run, workers), run, faults) == len(steps)
    assert_equal_runs(Kept.read(run), undisturbed)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_killed_at_random_moments(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept, workers: int
) -> None:
    draw = random.Random(workers)
    run = tmp_path / "run"
    words = command(people, run, workers)
    kills = 0
    while True:
        started = commands.start(*words)
        if kills < KILLS_IN_A_TEST:
            if draw.random() < 0.8:  # else a kill during the start
                started.wait_for("saved iteration")
            time.sleep(draw.uniform(0.0, 0.3))
            started.kill()
        status = started.wait()
        assert status in (0, -signal.SIGKILL), started.text
        if status == 0:
            break
        kills += 1
    assert kills >= KILLS_IN_A_TEST // 2
    assert_equal_runs(Kept.read(run), undisturbed)
