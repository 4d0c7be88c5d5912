"""A save of two ranks, here threads, that is killed or refused at any file operation of either of them."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from rank_threads import ThreadGroup, on_ranks

from ostinato.runs import GenerationContent, LoadedGeneration, RankedStore, RowCut, RunFolder
from ostinato.runs.atomic import Files, set_hook

FILES = Files(attempts=2, first_wait=0.0)
ROWS = 5
STRIDE = 3
"""Every so many-th operation is tried; their order differs from run to run anyway."""


def _table(iteration: int) -> torch.Tensor:
    return torch.arange(ROWS * 2.0).reshape(ROWS, 2) + iteration


def _content(iteration: int, group: ThreadGroup) -> GenerationContent:
    first, last = ROWS * group.rank // group.size, ROWS * (group.rank + 1) // group.size
    return GenerationContent(
        iteration,
        {"weight": torch.full((3,), float(iteration))},
        {"m": RowCut(_table(iteration)[first:last], first, ROWS)},
        {"position": iteration},
        rank_state={"random": torch.tensor([group.rank, iteration])},
    )


def _save(path: Path, *iterations: int) -> list[list[str | None]]:
    """Save on two ranks, and what went wrong with each save on each rank."""

    def work(group: ThreadGroup) -> list[str | None]:
        store = RankedStore(RunFolder(path, files=FILES), group, patience=60.0)
        store.open()
        try:
            store.load()
            told = []
            for iteration in iterations:
                store.submit(_content(iteration, group))
                (result,) = store.flush()
                told.append(None if result.error is None else str(result.error))
            return told
        finally:
            store.close()

    return on_ranks(2, work)


def _assert_whole(loaded: LoadedGeneration | None) -> int:
    assert loaded is not None
    iteration = loaded.iteration
    assert loaded.model["weight"].eq(iteration).all()
    assert loaded.optimizer["m"].read().equal(_table(iteration))
    assert [loaded.rank_states.of(rank)["random"].tolist() for rank in range(2)] == [[0, iteration], [1, iteration]]
    return iteration


class _At:
    """Does something at one operation of one save, counted over both ranks."""

    def __init__(self, index: int, action: Callable[[str, Path], None]) -> None:
        self._index = index
        self._action = action
        self._lock = threading.Lock()
        self.count = 0

    def __call__(self, moment: str, operation: str, path: Path) -> None:
        if moment != "before" or path.name in ("lock", "run.json"):
            return
        with self._lock:
            self.count += 1
            is_now = self.count == self._index
        if is_now:
            self._action(operation, path)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    assert _save(path, 10, 20) == [[None, None]] * 2
    return path


@pytest.fixture(scope="module")
def operations(before: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """About how many operations a save has, the opening of the folder included."""
    copy = tmp_path_factory.mktemp("runs") / "counted"
    shutil.copytree(before, copy)
    hook = _At(-1, lambda _operation, _path: None)
    set_hook(hook)
    _save(copy, 30)
    set_hook(None)
    assert hook.count > 30
    return hook.count


@pytest.fixture(autouse=True)
def _no_hook_left() -> Iterator[None]:
    yield
    set_hook(None)


def test_killed_at_any_point_the_newest_state_is_whole_on_all_ranks(
    before: Path, operations: int, tmp_path: Path
) -> None:
    for index in range(1, operations + 1, STRIDE):
        copy = tmp_path / f"run{index}"
        shutil.copytree(before, copy)
        child = os.fork()
        if child == 0:
            try:
                set_hook(_At(index, lambda _operation, _path: os.kill(os.getpid(), signal.SIGKILL)))
                _save(copy, 30)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert all(not damage for damage in RunFolder(copy).verify().values()), index
        assert _assert_whole(RunFolder(copy).load_newest()) in (20, 30)
        assert _save(copy, 40) == [[None]] * 2
        assert not [entry for entry in (copy / "generations").iterdir() if entry.name.startswith(".")], index
        assert _assert_whole(RunFolder(copy).load_newest()) == 40
        shutil.rmtree(copy)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_error_at_any_point_is_told_to_all_ranks_alike_and_the_next_save_works(
    before: Path, operations: int, tmp_path: Path, number: int
) -> None:
    for index in range(1, operations + 1, STRIDE):
        copy = tmp_path / f"run{index}"
        shutil.copytree(before, copy)
        done: list[str] = []

        def fail(operation: str, path: Path, done: list[str] = done) -> None:
            done.append(f"{operation} {path}")
            raise OSError(number, os.strerror(number), str(path))

        hook = _At(index, fail)

        def work(group: ThreadGroup, copy: Path = copy, hook: _At = hook) -> list[str | None]:
            store = RankedStore(RunFolder(copy, files=FILES), group, patience=60.0)
            store.open()
            try:
                store.load()
                if group.rank == 0:
                    set_hook(hook)
                group.barrier()
                told = []
                for iteration in (30, 40):
                    store.submit(_content(iteration, group))
                    (result,) = store.flush()
                    told.append(None if result.error is None else str(result.error))
                    if group.rank == 0:
                        set_hook(None)
                    group.barrier()
                return told
            finally:
                store.close()

        first, second = on_ranks(2, work)
        assert first == second
        assert first[1] is None, (done, first)
        assert first[0] is None or "untouched" in first[0], done
        assert _assert_whole(RunFolder(copy).load_newest()) == 40
        assert all(not damage for damage in RunFolder(copy).verify().values()), done
        shutil.rmtree(copy)
