"""A recognition training that is killed again and again is equal, bit for bit, to one that never was."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from killed_recognition import UPDATES, Kill, Plan, train
from rank_processes import RankResult, run_on_ranks

from ostinato.runs import RunFolder

LAZY = ("head.update=dense_lazy", "head.sampling_rate=0.1", "head.sub_centres=3", "weight_decay=0.02", "batch_size=11")
ADAMW = ("optimizer=adamw", "learning_rate=0.01", "head.sampling_rate=0.3", "accumulation=2", "augmentation=dali_aug")
BALANCED = ("data.balanced=true", "head.sampling_rate=0", "model.mixed_precision=fp16")


def _start(plan: Plan, folder: Path, ranks: int) -> list[RankResult]:
    return run_on_ranks(train, plan, folder=folder, ranks=ranks, opened=False)


def _ends(results: list[RankResult]) -> list[dict[str, str]]:
    for result in results:
        assert result.error is None, result.output
        assert result.exit_code == 0, result.output
    return [result.value[1] for result in results]


def _lines(run: Path) -> list[dict[str, Any]]:
    """What was reported of each update, without what is measured by the clock."""
    lines = [
        json.loads(line)
        for path in sorted(run.glob("logs/session_*/metrics.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert [line["iteration"] for line in lines] == list(range(1, UPDATES + 1)), "each update has exactly one line"
    clock = ("elapsed_time", "images_per_second")
    return [{key: v for key, v in line.items() if key not in clock and not key.startswith("time/")} for line in lines]


@pytest.mark.parametrize(
    ("ranks", "plan", "kills"),
    [
        pytest.param(
            1,
            Plan(Path(), LAZY),
            # Number 20 of the file operations lies in the first save. Saves are made in the background, so each start
            # begins where it can; all of these points are reached in any case.
            [[(0, Kill("file", 20))], [(0, Kill("update", 4))], [(0, Kill("head", 2))]],
            id="one rank, sgd, dense_lazy, sub-centres",
        ),
        pytest.param(1, Plan(Path(), BALANCED), [[(0, Kill("batch", 7))]], id="one rank, sgd, balanced, fp16"),
        pytest.param(
            1,
            Plan(Path(), ("optimizer=adamw", "learning_rate=0.005"), transformer=True),
            [[(0, Kill("head", 7))]],
            id="one rank, a transformer with drop path and masks",
        ),
        pytest.param(
            2,
            Plan(Path(), ADAMW),
            [
                [(1, Kill("file", 3))],
                [(0, Kill("file", 30))],
                [(0, Kill("exchange", 4)), (1, Kill("exchange", 4))],
                [(1, Kill("head", 2))],
            ],
            id="two ranks, adamw, sampled, accumulation",
        ),
    ],
)
def test_killed_at_any_point_and_continued(
    tmp_path: Path, ranks: int, plan: Plan, kills: list[list[tuple[int, Kill]]]
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    undisturbed = _ends(_start(replace(plan, folder=whole), tmp_path, ranks))
    for some in kills:
        results = _start(replace(plan, folder=run, kills=tuple(some)), tmp_path, ranks)
        for result in results:
            assert result.exit_code, f"rank {result.rank} has ended as if nothing were\n{result.output}"
        for rank, _ in some:
            assert results[rank].exit_code == -signal.SIGKILL, results[rank].output
    assert _ends(_start(replace(plan, folder=run), tmp_path, ranks)) == undisturbed
    assert _lines(run) == _lines(whole)
    assert not any(RunFolder(run).verify().values())


def test_a_damaged_file_of_one_rank_costs_a_generation_and_nothing_else(tmp_path: Path) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    plan = Plan(whole, LAZY)
    undisturbed = _ends(_start(plan, tmp_path, 2))
    # The last save that is on the disk for certain is that of the end; a copy is damaged and trained to its end again.
    shutil.copytree(whole, run, ignore=shutil.ignore_patterns("lock"))
    newest = RunFolder(run).names()[-1]
    (centres,) = (run / "generations" / str(newest)).glob("centres-00001-of-00002.safetensors")
    whole_bytes = centres.read_bytes()
    centres.write_bytes(whole_bytes[:-4] + bytes([whole_bytes[-4] ^ 1]) + whole_bytes[-3:])
    results = _start(replace(plan, folder=run), tmp_path, 2)
    assert _ends(results) == undisturbed
    assert centres.name in results[0].output
    (kept,) = (run / "generations" / "damaged").rglob(centres.name)
    assert kept.read_bytes() != whole_bytes
    assert _lines(run) == _lines(whole)
