"""SIGKILL at chosen places of a training with two models, and what remains after it is started again."""

from __future__ import annotations

import itertools
import json
import signal
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from killed_training import LENGTH, SAMPLES, Plan, train
from rank_processes import run_on_ranks

PLACES = ("update", "ordinary", "late", "settled")


def start(plan: Plan) -> Any:
    (result,) = run_on_ranks(train, plan, folder=plan.folder.parent, ranks=1, opened=False)
    return result


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The final state, and the notes, of a run that nothing disturbs and that never evaluates."""

    @cache
    def run(order: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        plan = Plan(tmp_path_factory.mktemp("straight") / order, order=order)
        result = start(plan)
        assert result.exit_code == 0, result.output
        return result.value, notes(plan)

    return run


def notes(plan: Plan) -> list[dict[str, Any]]:
    return [json.loads(line) for line in plan.notes.read_text().splitlines()]


def kept_line(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the processes have noted up to where the next one started from."""
    starts = [place for place, entry in enumerate(entries) if "start" in entry]
    kept = []
    for begin, end in itertools.zip_longest(starts, starts[1:]):
        following = None if end is None else entries[end]["start"]
        kept += [entry for entry in entries[begin + 1 : end] if following is None or entry["iteration"] <= following]
    return kept


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    return sorted(path for path in found.keys() | expected.keys() if found.get(path) != expected.get(path))


kills = st.lists(st.tuples(st.integers(1, 11), st.sampled_from(PLACES)), min_size=1, max_size=3)


@settings(max_examples=8, phases=[Phase.generate])  # each example takes seconds: nothing is made smaller
@given(order=st.sampled_from(["global", "own", "epoch"]), kills=kills, evaluate_every=st.integers(1, 7))
def test_after_any_kills_the_run_ends_as_if_there_had_been_none(
    uninterrupted, tmp_path_factory, order, kills, evaluate_every
) -> None:
    folder = tmp_path_factory.mktemp("killed") / "run"
    plan = Plan(folder, order=order, evaluate_every=evaluate_every)
    for process, kill in enumerate(kills):
        result = start(replace(plan, process=process, kill=kill))
        assert result.exit_code == -signal.SIGKILL, result.output
    last = start(replace(plan, process=len(kills)))
    assert last.exit_code == 0, last.output

    state, noted = uninterrupted(order)
    assert differences(last.value, state) == []
    assert kept_line(notes(plan)) == kept_line(noted)


def test_every_trigger_fires_at_its_boundaries_and_every_pass_sees_every_sample(uninterrupted) -> None:
    """What the runs above are compared with is right itself."""
    _, noted = uninterrupted("global")
    fired: dict[str, list[int]] = {}
    samples: list[int] = []
    for entry in kept_line(noted):
        if "fired" in entry:
            fired.setdefault(entry["fired"], []).append(entry["iteration"])
        else:
            samples += entry["samples"]
    assert fired == {
        "each": list(range(1, 27)),
        "five": [5, 10, 15, 20, 25],
        "epoch": [6, 12, 18, 24],
        "half": [3, 6, 9, 12, 15, 18, 21, 24],
        "two": [12, 24],
    }
    passes = [samples[number * SAMPLES : (number + 1) * SAMPLES] for number in range(26 // LENGTH)]
    assert all(sorted(one) == list(range(SAMPLES)) for one in passes)
    assert len({tuple(one) for one in passes}) == len(passes)


@pytest.mark.parametrize(
    ("at", "place"), [(LENGTH, "settled"), (LENGTH, "late"), (LENGTH + 1, "update"), (LENGTH + 1, "settled")]
)
def test_a_kill_at_the_edge_of_a_pass(uninterrupted, tmp_path: Path, at: int, place: str) -> None:
    plan = Plan(tmp_path / "run", order="own", evaluate_every=2)
    assert start(replace(plan, kill=(at, place))).exit_code == -signal.SIGKILL
    last = start(replace(plan, process=1))
    state, noted = uninterrupted("own")
    assert differences(last.value, state) == []
    assert kept_line(notes(plan)) == kept_line(noted)
