"""A run of several ranks that is killed within an interval decides as an undisturbed one, saved to a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loop_stand_ins import CountingUpdater
from rank_threads import ThreadGroup, on_ranks

from ostinato.extensions import Snapshot
from ostinato.loop import EarlyStoppingTrigger, MinValueTrigger, Trainer, report

# Rank 1 gets better while rank 0 gets worse; the weighted mean over both has its own ups and downs.
VALUES = [
    [(5, 1), (6, 2), (7, 1), (9, 1), (8, 3), (9, 1), (9, 1), (9, 2)],
    [(9, 2), (7, 1), (6, 3), (1, 2), (8, 1), (8, 1), (8, 1), (8, 1)],
]
CHECK = (2, "iteration")


class Updater(CountingUpdater):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def update(self) -> None:
        report("v", VALUES[self.rank][self.state.iteration])
        super().update()


def process(group: ThreadGroup, folder: Path, until: int | None = None) -> tuple[list[int], int, float]:
    """Where the best mean was, where the run ended, and the best mean that early stopping knows."""
    stopping = EarlyStoppingTrigger(CHECK, "v", patience=2, max_trigger=(8, "iteration"))
    trainer = Trainer(Updater(group.rank), stopping, folder, group=group, agree_every=1)
    fired: list[int] = []
    trainer.extend(lambda t: fired.append(t.updater.state.iteration), name="best", trigger=MinValueTrigger("v", CHECK))
    trainer.extend(Snapshot(save_last=False), trigger=(1, "iteration"))
    if until is not None:
        trainer.extend(lambda t: t.request_stop(), name="stop", trigger=(until, "iteration"))
    trainer.run()
    return fired, trainer.updater.state.iteration, stopping.best


@pytest.mark.parametrize("killed_after", [1, 3, 5])
def test_it_goes_on_with_the_sums_of_every_rank(tmp_path: Path, killed_after: int) -> None:
    (undisturbed, *_) = expected = on_ranks(2, lambda group: process(group, tmp_path / "whole"))
    assert expected == [undisturbed] * 2
    first = on_ranks(2, lambda group: process(group, tmp_path / "killed", killed_after))
    second = on_ranks(2, lambda group: process(group, tmp_path / "killed"))
    resumed: list[Any] = [(early[0] + late[0], *late[1:]) for early, late in zip(first, second, strict=True)]
    assert resumed == expected
