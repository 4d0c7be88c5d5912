"""Saving and going on with real processes as ranks."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import RankResult, run_on_ranks
from rank_threads import on_ranks
from torch import nn

from ostinato.errors import RankFailedError, SaveError
from ostinato.extensions.save import Snapshot
from ostinato.loop import Extension, Trainer, UpdaterState
from ostinato.loop.random_state import capture_random_state, restore_random_state
from ostinato.loop.reporter import report
from ostinato.runs import RowCut, RunFolder
from ostinato.runs.atomic import set_hook

ROWS = 7


class _Updater:
    """One weight that all ranks share, moved by numbers that each rank draws for itself; and a table cut by rows."""

    def __init__(self, group: Any) -> None:
        self.state = UpdaterState()
        self.models = {"main": nn.Linear(1, 1, bias=False)}
        self.group = group
        self.first, self.last = ROWS * group.rank // group.size, ROWS * (group.rank + 1) // group.size
        self.table = torch.zeros(self.last - self.first, 2)
        with torch.no_grad():
            self.models["main"].weight.zero_()

    def update(self) -> None:
        (moved,) = self.group.sum_of([float(torch.rand(()))])
        with torch.no_grad():
            self.models["main"].weight.add_(moved)
        self.table += torch.arange(self.first, self.last)[:, None] + moved
        report("loss", torch.tensor(1.0 + self.group.rank))
        self.state.advance(1)

    def state_dict(self) -> dict[str, Any]:
        return {
            "state": self.state.state_dict(),
            "models": {"main": self.models["main"].state_dict()},
            "random": capture_random_state(),
            "table": RowCut(self.table, self.first, ROWS, file="table"),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state.load_state_dict(state["state"])
        self.models["main"].load_state_dict(state["models"]["main"])
        self.table.copy_(state["table"].read(self.first, self.last))
        restore_random_state(state["random"])


class _Seen(Extension):
    """Notes the state with which training begins."""

    trigger = None

    def initialize(self, trainer: Any) -> None:
        self.begins = _facts(trainer)

    def __call__(self, trainer: Any) -> None: ...


def _facts(trainer: Any) -> dict[str, Any]:
    updater = trainer.updater
    return {
        "iteration": updater.state.iteration,
        "weight": updater.models["main"].weight.item(),
        "rows": (updater.first, updater.table.tolist()),
        "random": torch.get_rng_state()[:64].tolist(),
    }


def train(group: Any, folder: str, limit: int, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    torch.manual_seed(100 + group.rank)
    trainer = Trainer(_Updater(group), (limit, "iteration"), out=folder, group=group)
    seen = _Seen()
    trainer.extend(seen)
    trainer.extend(Snapshot(**{"every": (2, "iteration"), **(settings or {})}))
    trainer.run()
    snapshot: Any = trainer.get_extension("snapshot")
    return {"begins": seen.begins, "ends": _facts(trainer), "saved": snapshot.last_saved, "bar": snapshot.bar.lowest}


def train_on_a_full_disk(group: Any, folder: str, limit: int, refused: list[int]) -> dict[str, Any]:
    def full(moment: str, operation: str, path: Path) -> None:
        is_refused = any(f".tmp-{iteration:08d}.rank-00001" in path.parent.name for iteration in refused)
        if operation == "write" and is_refused:
            raise OSError(28, "No space left on device", str(path))

    set_hook(full)
    return train(group, folder, limit)


def train_and_die(group: Any, folder: str, limit: int, rank: int, operation: str, place: str) -> dict[str, Any]:
    def die(moment: str, what: str, path: Path) -> None:
        if moment == "after" and what == operation and place in str(path):
            os.kill(os.getpid(), signal.SIGKILL)

    if group.rank == rank:
        set_hook(die)
    return train(group, folder, limit, {"patience": 30.0})


def train_and_fail(group: Any, folder: str, limit: int) -> dict[str, Any]:
    class Fails(Extension):
        def __call__(self, trainer: Any) -> None:
            if trainer.updater.state.iteration == 5 and group.rank == 1:
                raise ValueError("broken")

    trainer = Trainer(_Updater(group), (limit, "iteration"), out=folder, group=group)
    trainer.extend(Fails())
    trainer.extend(Snapshot(every=(2, "iteration"), snapshot_on_error=True))
    trainer.run()
    return {}


def ask_for_a_save(group: Any, folder: str) -> int | None:
    class Asks(Extension):
        def __call__(self, trainer: Any) -> None:
            if trainer.updater.state.iteration == 3 and group.rank == 1:
                trainer.get_extension("snapshot").request_save()

    trainer = Trainer(_Updater(group), (25, "iteration"), out=folder, group=group)
    trainer.extend(Asks())
    trainer.extend(Snapshot(every=(1000, "iteration"), save_last=False))
    trainer.run()
    return trainer.get_extension("snapshot").last_saved  # type: ignore[attr-defined]


def _values(results: list[RankResult]) -> list[Any]:
    for result in results:
        assert result.error is None, result.output
    return [result.value for result in results]


def _saved(folder: Path) -> list[int]:
    return [name.iteration for name in RunFolder(folder).names() if not name.error]


def _table(values: list[Any], moment: str) -> list[list[float]]:
    return [row for value in sorted(values, key=lambda v: v[moment]["rows"][0]) for row in value[moment]["rows"][1]]


def test_a_run_of_two_ranks_in_two_pieces_equals_one_in_one(tmp_path: Path) -> None:
    straight = _values(run_on_ranks(train, str(tmp_path / "one"), 9, folder=tmp_path))
    _values(run_on_ranks(train, str(tmp_path / "two"), 5, folder=tmp_path))
    resumed = _values(run_on_ranks(train, str(tmp_path / "two"), 9, folder=tmp_path))
    assert [value["ends"] for value in resumed] == [value["ends"] for value in straight]
    assert [value["begins"]["iteration"] for value in resumed] == [5, 5]
    assert straight[0]["ends"]["random"] != straight[1]["ends"]["random"]
    assert RunFolder(tmp_path / "two").scan().manifests[-1].world_size == 2


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3)])
def test_a_run_goes_on_with_another_number_of_ranks(tmp_path: Path, before: int, after: int) -> None:
    run = tmp_path / "run"
    first = _values(run_on_ranks(train, str(run), 5, folder=tmp_path, ranks=before))
    results = run_on_ranks(train, str(run), 8, folder=tmp_path, ranks=after)
    second = _values(results)
    for value in second:
        assert value["begins"]["iteration"] == 5
        assert value["begins"]["weight"] == first[0]["ends"]["weight"]
        assert value["saved"] == 8
    assert _table(second, "begins") == _table(first, "ends")
    # Ranks that were there keep their generators; new ones draw something else than any other.
    kept = min(before, after)
    assert [v["begins"]["random"] for v in second[:kept]] == [v["ends"]["random"] for v in first[:kept]]
    states = [str(value["begins"]["random"]) for value in second]
    assert len(set(states)) == after
    by = "1 rank" if before == 1 else f"{before} ranks"
    assert f"saved by {by}, and {'1 goes on' if after == 1 else f'{after} go on'} with it" in results[0].output


def test_new_ranks_begin_alike_in_every_resume(tmp_path: Path) -> None:
    run = tmp_path / "run"
    _values(run_on_ranks(train, str(run), 5, folder=tmp_path, ranks=1))
    begins = [
        [value["begins"]["random"] for value in _values(run_on_ranks(train, str(run), 5, folder=tmp_path))]
        for _ in range(2)
    ]
    assert begins[0] == begins[1]


def test_a_rank_that_cannot_write_costs_all_of_them_that_save(tmp_path: Path) -> None:
    run = tmp_path / "run"
    results = run_on_ranks(train_on_a_full_disk, str(run), 6, [4], folder=tmp_path)
    assert [value["saved"] for value in _values(results)] == [6, 6]
    for result in results:
        assert "rank 1 could not write its part" in result.output
        assert "No space left on device" in result.output
    assert _saved(run) == [2, 6]


def test_a_last_save_that_one_rank_cannot_write_is_an_error_on_all(tmp_path: Path) -> None:
    run = tmp_path / "run"
    results = run_on_ranks(train_on_a_full_disk, str(run), 5, [5], folder=tmp_path)
    for result in results:
        assert isinstance(result.error, SaveError), result.output
        assert "rank 1 could not write its part" in str(result.error)
    assert _saved(run) == [2, 4]
    assert [value["saved"] for value in _values(run_on_ranks(train, str(run), 5, folder=tmp_path))] == [5, 5]


@pytest.mark.parametrize(
    ("rank", "operation", "place", "left"),
    [
        (1, "write", ".tmp-00000004.rank-00001/table", [2]),
        (0, "write", ".tmp-00000004/manifest.json", [2]),
        (0, "rename", ".tmp-00000004/table-00001-of-00002", [2]),
        (0, "rename", "generations/00000004", [2, 4]),
    ],
)
def test_a_rank_that_is_killed_while_it_saves_ends_the_others_and_leaves_a_whole_state(
    tmp_path: Path, rank: int, operation: str, place: str, left: list[int]
) -> None:
    run = tmp_path / "run"
    results = run_on_ranks(train_and_die, str(run), 9, rank, operation, place, folder=tmp_path, timeout=60.0)
    assert results[rank].exit_code == -signal.SIGKILL
    other = results[1 - rank]
    assert isinstance(other.error, RankFailedError), other.output
    assert other.exit_code == 1
    assert _saved(run) == left
    assert all(not damage for damage in RunFolder(run).verify().values())
    straight = _values(run_on_ranks(train, str(tmp_path / "straight"), 9, folder=tmp_path))
    resumed = _values(run_on_ranks(train, str(run), 9, folder=tmp_path))
    assert [value["ends"] for value in resumed] == [value["ends"] for value in straight]
    assert not [entry.name for entry in (run / "generations").iterdir() if entry.name.startswith(".")]


def test_an_error_on_one_rank_ends_all_and_cut_tables_keep_their_last_save(tmp_path: Path) -> None:
    run = tmp_path / "run"
    results = run_on_ranks(train_and_fail, str(run), 9, folder=tmp_path, timeout=60.0)
    assert isinstance(results[1].error, ValueError)
    assert isinstance(results[0].error, RankFailedError), results[0].output
    assert _saved(run) == [2, 4]
    assert "at iteration 5, was not saved: it is cut over the ranks" in results[0].output


def test_the_best_state_is_judged_by_the_mean_over_the_ranks(tmp_path: Path) -> None:
    values = _values(run_on_ranks(train, str(tmp_path / "run"), 4, {"monitor": "loss"}, folder=tmp_path))
    assert [value["bar"] for value in values] == [1.5, 1.5]
    assert RunFolder(tmp_path / "run").scan().manifests[0].average_count == 2


def test_a_save_that_one_rank_asks_for_is_made_by_all(tmp_path: Path) -> None:
    assert _values(run_on_ranks(ask_for_a_save, str(tmp_path / "run"), folder=tmp_path)) == [10, 10]


def test_ranks_of_different_programs_do_not_hang(tmp_path: Path) -> None:
    run = tmp_path / "run"
    _values(run_on_ranks(train, str(run), 3, folder=tmp_path))
    results = run_on_ranks(train_with_another_model, str(run), folder=tmp_path, timeout=60.0)
    assert [result.exit_code for result in results] == [1, 1]
    assert "does not fit" in str(results[1].error)
    assert "Rank 1 could not go on from the saved state" in str(results[0].error)


def train_with_another_model(group: Any, folder: str) -> None:
    updater = _Updater(group)
    if group.rank == 1:
        updater.models["main"] = nn.Linear(2, 2)
    trainer = Trainer(updater, (5, "iteration"), out=folder, group=group)
    trainer.extend(_Seen())
    trainer.extend(Snapshot(every=(2, "iteration")))
    trainer.run()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_folder_may_be_moved_renamed_and_reached_by_another_path(tmp_path: Path, ranks: int) -> None:
    straight = _values(run_on_ranks(train, str(tmp_path / "straight"), 11, folder=tmp_path, ranks=ranks))
    first = tmp_path / "here" / "run"
    _values(run_on_ranks(train, str(first), 4, folder=tmp_path, ranks=ranks))
    (tmp_path / "there").mkdir()
    second = first.rename(tmp_path / "there" / "renamed run")
    _values(run_on_ranks(train, str(second), 6, folder=tmp_path, ranks=ranks))
    (tmp_path / "mount").symlink_to(tmp_path / "there")
    values = _values(run_on_ranks(train, str(tmp_path / "mount" / "renamed run"), 9, folder=tmp_path, ranks=ranks))
    assert values[0]["begins"]["iteration"] == 6
    values = _values(run_on_ranks(train_from_within, str(second), 11, folder=tmp_path, ranks=ranks))
    assert [value["ends"] for value in values] == [value["ends"] for value in straight]
    assert all(not Path(record["path"]).is_absolute() for record in RunFolder(second).journal.records())
    assert str(tmp_path) not in (second / "journal.jsonl").read_text()


def train_from_within(group: Any, folder: str, limit: int) -> dict[str, Any]:
    os.chdir(folder)
    return train(group, ".", limit)


class _Memory:
    """A store that only notes what memory it is asked to get."""

    def __init__(self) -> None:
        self.prepared: list[torch.Tensor] = []

    def prepare(self, state: Any) -> None:
        self.prepared = list(state)

    def load(self, which: Any = None) -> None: ...

    def open(self) -> None: ...

    close = hurry = settle = open

    def submit(self, content: Any) -> None: ...

    submit_alone = submit

    def add_reasons(self, generation: str, *reasons: str) -> None: ...

    def poll(self) -> list[Any]:
        return []

    flush = poll


def test_only_rank_0_gets_memory_for_what_is_common(tmp_path: Path) -> None:
    def work(group: Any) -> list[int]:
        memory = _Memory()
        trainer = Trainer(_Updater(group), (1, "iteration"), out=tmp_path, group=group)
        trainer.extend(Snapshot(store=memory, save_last=False))
        trainer.run()
        return [tensor.numel() for tensor in memory.prepared]

    first, second = on_ranks(2, work)
    assert first[:2] == [1, 3 * 2]  # the weight, then its rows of the table
    assert second[0] == 4 * 2
    assert len(second) == len(first) - 1  # what is left are the states of its own generators
