"""Decisions and checks in a world of several ranks, row by row (RK-1 to RK-4). Here ranks are threads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from loop_stand_ins import CountingUpdater
from rank_threads import ThreadGroup, on_threads

from ostinato.errors import StateError
from ostinato.loop import TimeTrigger, Trainer, report
from ostinato.loop.triggers import MinValueTrigger, from_counters


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def rows(golden: Path) -> list[dict[str, Any]]:
    return json.loads((golden / "training-loop" / "ranks.rule.json").read_text(encoding="utf-8"))["cases"]


def rows_about(rows: list[dict[str, Any]], trigger: str) -> list[dict[str, Any]]:
    found = [row for row in rows if row.get("trigger", "").startswith(trigger)]
    assert found
    return found


def decisions(trigger: Any, elapsed_by_rank: list[list[float]], ranks: int) -> list[list[bool]]:
    """What each rank decides in each iteration."""

    def rank(group: ThreadGroup) -> list[bool]:
        now = [0.0]
        fired: list[bool] = [False] * len(elapsed_by_rank)

        class Clocked(CountingUpdater):
            def update(self) -> None:
                now[0] = elapsed_by_rank[self.state.iteration][group.rank]
                super().update()

        trainer = Trainer(Clocked(), (len(fired), "iteration"), group=group, agree_every=1, clock=lambda: now[0])
        trainer.extend(
            lambda t: fired.__setitem__(t.updater.state.iteration - 1, True), "decides", trigger=trigger(), priority=50
        )
        trainer.run()
        return fired

    return on_threads(rank, ranks)


def test_time(rows) -> None:
    for row in rows_about(rows, "TimeTrigger(10)"):
        elapsed = row["elapsed_by_rank"]
        assert decisions(lambda: TimeTrigger(10), elapsed, 2) == [row["decision_on_every_rank"]] * 2, row
        (alone,) = decisions(lambda: TimeTrigger(10), [[second] for _, second in elapsed], 1)
        assert alone == row["what_rank_1_alone_would_say"], row


def test_counters(rows) -> None:
    (row,) = rows_about(rows, "(5, 'iteration')")
    assert row["decision_on_every_rank"] == "computed locally, no communication"

    def rank(group: ThreadGroup) -> tuple[list[str], list[int]]:
        before: list[str] = []
        fired: list[int] = []
        trainer = Trainer(CountingUpdater(), (11, "iteration"), group=group, agree_every=1000)
        trainer.extend(lambda t: before.extend(group.calls), "first", trigger=(1, "iteration"), priority=1000)
        trainer.extend(lambda t: fired.append(t.updater.state.iteration), "decides", trigger=(5, "iteration"))
        trainer.run()
        return group.calls[4:], fired  # the checks before the first update come first

    assert on_threads(rank) == [([], [5, 10])] * 2


def test_values(rows) -> None:
    (row,) = rows_about(rows, "MinValueTrigger")
    assert row["decision_on_every_rank"] == "from the mean over ranks, weighted by the weights"
    # By rank and iteration: value and weight. The weighted means are 2.5, 1.6, 1.9, the plain ones 3, 4, 1.
    values = [[(2.0, 3), (1.0, 9), (1.9, 1)], [(4.0, 1), (7.0, 1), (0.1, 0)]]

    def rank(group: ThreadGroup) -> list[int]:
        class Reporting(CountingUpdater):
            def update(self) -> None:
                report("loss", values[group.rank][self.state.iteration])
                super().update()

        fired: list[int] = []
        trainer = Trainer(Reporting(), (3, "iteration"), group=group)
        trigger = MinValueTrigger("loss", (1, "iteration"))
        trainer.extend(lambda t: fired.append(t.updater.state.iteration), "decides", trigger=trigger)
        trainer.run()
        return fired

    assert on_threads(rank) == [[1, 2], [1, 2]]


def test_plain_callables(rows) -> None:
    (row,) = rows_about(rows, "a plain callable")
    assert row["decision_on_every_rank"].startswith("computed by rank 0 and sent to all, unless the callable is marked")

    def rank(group: ThreadGroup) -> tuple[list[int], list[int]]:
        fired: dict[bool, list[int]] = {True: [], False: []}
        for marked in (True, False):

            def decide(trainer: Any) -> bool:
                return trainer.updater.state.iteration == 2 + group.rank

            trainer = Trainer(CountingUpdater(), (5, "iteration"), group=group)
            trainer.extend(
                lambda t, mine=fired[marked]: mine.append(t.updater.state.iteration),
                "decides",
                trigger=from_counters(decide) if marked else decide,
            )
            trainer.run()
        return fired[True], fired[False]

    assert on_threads(rank) == [([2], [2]), ([3], [2])]  # marked: each for itself, so the mark must be true


def test_registrations(rows) -> None:
    for row in (row for row in rows if "registered" in row):
        registered = list(row["registered"].values())
        ran: list[tuple[str, int]] = []

        def rank(group: ThreadGroup, registered: Any = registered, ran: Any = ran) -> int | StateError:
            trainer = Trainer(CountingUpdater(), (1, "iteration"), group=group)
            for entry in registered[group.rank]:
                name, _, rest = entry.partition(" ")
                period = re.search(r"every (\d+)", rest)
                trainer.extend(
                    lambda t, name=name: ran.append((name, group.rank)),
                    name,
                    trigger=(int(period[1]), "iteration") if period else None,
                    ranks=0 if "ranks=0" in rest else "all",
                )
            try:
                trainer.run()
            except StateError as error:
                assert trainer.updater.state.iteration == 0
                return error
            return trainer.updater.state.iteration

        results = on_threads(rank, len(registered))
        if row["result"].startswith("ok"):
            assert results == [1, 1], row
            assert sorted(ran) == [("snapshot", 0), ("snapshot", 1), ("writer", 0)], row
            continue
        assert row["result"].startswith("RuntimeError on every rank")
        for result in results:
            assert isinstance(result, RuntimeError), row
            named = re.search(r"naming (\w+)(?: and (\w+))?", row["result"])
            for name in named.groups(default="") if named else ["the order differs"]:
                assert name in str(result), row
        assert ran == []
