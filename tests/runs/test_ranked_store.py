"""Several ranks, here threads, that save to one run folder and load from it."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from rank_threads import ThreadGroup, on_ranks

from ostinato.errors import ArgumentTypeError, DamagedRunError, RunError, RunLockedError, SaveError, StateError
from ostinato.runs import GenerationContent, LoadedGeneration, PerRank, RankedStore, RowCut, RunFolder, RunStore
from ostinato.runs.atomic import Files, set_hook

T = TypeVar("T")
TOTAL = 11


def _rows(iteration: int) -> torch.Tensor:
    return torch.arange(TOTAL * 2.0).reshape(TOTAL, 2) + 100 * iteration


def _mine(rank: int, size: int) -> tuple[int, int]:
    return TOTAL * rank // size, TOTAL * (rank + 1) // size


def _content(iteration: int, group: ThreadGroup, **fields: Any) -> GenerationContent:
    first, last = _mine(group.rank, group.size)
    settings: dict[str, Any] = {
        "iteration": iteration,
        "model": {"weight": torch.full((3,), float(iteration))},
        "optimizer": {"m": RowCut(-_rows(iteration)[first:last], first, TOTAL)},
        "state": {
            "position": iteration,
            "head": RowCut(_rows(iteration)[first:last], first, TOTAL, file="centres"),
            "residual": PerRank({"left": torch.tensor([group.rank, iteration])}),
        },
        "rank_state": {"random": torch.tensor([group.rank + 7]), "draws": group.rank},
    }
    return GenerationContent(**{**settings, **fields})


def _store(path: Path, group: ThreadGroup, patience: float = 60.0) -> RankedStore:
    return RankedStore(RunFolder(path, files=Files(attempts=2, first_wait=0.0)), group, patience=patience)


@contextlib.contextmanager
def _opened(path: Path, group: ThreadGroup, patience: float = 60.0) -> Iterator[RankedStore]:
    store = _store(path, group, patience)
    store.open()
    try:
        yield store
    finally:
        store.close()


def _save(path: Path, size: int, *iterations: int) -> None:
    def work(group: ThreadGroup) -> None:
        with _opened(path, group) as store:
            store.load()
            for iteration in iterations:
                store.submit(_content(iteration, group))
                (result,) = store.flush()
                assert result.error is None

    on_ranks(size, work)


def _assert_holds(loaded: LoadedGeneration | None, iteration: int, saved_by: int, rank: int, size: int) -> None:
    assert loaded is not None
    assert loaded.iteration == iteration
    assert loaded.manifest.world_size == saved_by
    assert loaded.model["weight"].eq(iteration).all()
    first, last = _mine(rank, size)
    assert loaded.state["head"].read(first, last).equal(_rows(iteration)[first:last])
    assert loaded.optimizer["m"].read(first, last).equal(-_rows(iteration)[first:last])
    assert loaded.state["residual"].world_size == saved_by
    for number in range(saved_by):
        assert loaded.state["residual"].of(number)["left"].tolist() == [number, iteration]
        assert loaded.rank_states.of(number) == {"random": torch.tensor([number + 7]), "draws": number}
    assert loaded.state["residual"].of(saved_by) is None
    assert loaded.rank_states.of(saved_by) is None


@pytest.fixture(autouse=True)
def _no_hook_left() -> Iterator[None]:
    yield
    set_hook(None)


def _names(path: Path) -> list[str]:
    return [str(name) for name in RunFolder(path).names()]


def _leftovers(path: Path) -> list[str]:
    return [entry.name for entry in (path / "generations").iterdir() if entry.name.startswith(".")]


# --- the ordinary life -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("saved_by", "loaded_by"), [(2, 2), (2, 1), (1, 2), (2, 3), (3, 2), (4, 1)])
def test_what_some_ranks_saved_any_other_number_of_ranks_loads(tmp_path: Path, saved_by: int, loaded_by: int) -> None:
    _save(tmp_path / "run", saved_by, 10, 20)
    assert _leftovers(tmp_path / "run") == []
    assert all(not damage for damage in RunFolder(tmp_path / "run").verify().values())

    def load(group: ThreadGroup) -> None:
        with _opened(tmp_path / "run", group) as store:
            _assert_holds(store.load(), 20, saved_by, group.rank, group.size)

    on_ranks(loaded_by, load)
    alone = RunStore(RunFolder(tmp_path / "run"))
    alone.open()
    _assert_holds(alone.load(), 20, saved_by, 0, 1)
    alone.close()


def test_only_the_beginning_and_the_end_of_a_save_cost_messages(tmp_path: Path) -> None:
    def work(group: ThreadGroup) -> list[int]:
        counts = []
        with _opened(tmp_path, group) as store:
            store.load()
            for step in (
                lambda: store.submit(_content(1, group)),
                lambda: [store.poll() for _ in range(100)],
                store.settle,
                store.flush,
            ):
                before = len(group.calls)
                step()
                counts.append(len(group.calls) - before)
        return counts

    assert on_ranks(2, work) == [[1, 0, 0, 2]] * 2


def test_training_goes_on_while_all_ranks_save(tmp_path: Path) -> None:
    gate = threading.Event()

    def work(group: ThreadGroup) -> Any:
        with _opened(tmp_path, group) as store:
            store.load()
            content = _content(1, group)
            if group.rank == 0:
                set_hook(lambda _moment, _operation, _path: gate.wait(120) and None)
            group.barrier()
            store.submit(content)
            content.state["head"].tensor.zero_()  # training changes it again
            group.barrier()
            gate.set()
            store.flush()
            set_hook(None)
            loaded = RunFolder(tmp_path).load_newest()
            assert loaded is not None
            return loaded.state["head"].read()

    for table in on_ranks(2, work):
        assert table.equal(_rows(1))


def test_only_the_newest_stay_and_rank_0_alone_removes_the_others(tmp_path: Path) -> None:
    _save(tmp_path, 2, 10, 20, 30)
    assert _names(tmp_path) == ["00000020", "00000030"]


def test_a_named_generation_is_loaded_by_all_and_newer_ones_are_set_aside(tmp_path: Path) -> None:
    _save(tmp_path, 2, 10, 20)

    def load(group: ThreadGroup) -> None:
        with _opened(tmp_path, group) as store:
            _assert_holds(store.load(10), 10, 2, group.rank, group.size)
            assert store.run.notices == [] or "00000020" in store.run.notices[0]

    on_ranks(2, load)
    assert _names(tmp_path) == ["00000010"]


def test_a_further_reason_is_noted_once(tmp_path: Path) -> None:
    _save(tmp_path, 2, 10)

    def mark(group: ThreadGroup) -> None:
        with _opened(tmp_path, group) as store:
            store.load()
            store.add_reasons("00000010", "session_end")
            with pytest.raises(SaveError):
                store.add_reasons("00000099", "session_end")

    on_ranks(2, mark)
    assert RunFolder(tmp_path).scan().manifests[0].reasons == ("latest", "session_end")


def test_a_rank_s_state_that_is_gone_when_it_is_asked_for_is_said_so(tmp_path: Path) -> None:
    _save(tmp_path, 2, 10)
    loaded = RunFolder(tmp_path).load_newest()
    assert loaded is not None
    (tmp_path / "generations" / "00000010" / "rank-00001-of-00002.json").unlink()
    assert loaded.rank_states.of(0)["draws"] == 0
    with pytest.raises(DamagedRunError, match=r"rank-00001-of-00002\.json is missing"):
        loaded.rank_states.of(1)


# --- what goes wrong when loading ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "file", ["centres-00001-of-00002.safetensors", "rank-00001-of-00002.json", "model.safetensors"]
)
def test_damage_that_one_rank_finds_makes_all_go_back(tmp_path: Path, file: str) -> None:
    _save(tmp_path, 2, 10, 20)
    path = tmp_path / "generations" / "00000020" / file
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)

    def load(group: ThreadGroup) -> None:
        with _opened(tmp_path, group) as store:
            _assert_holds(store.load(), 10, 2, group.rank, group.size)

    on_ranks(2, load)
    assert (tmp_path / "generations" / "damaged" / "00000020").is_dir()


def test_nothing_whole_is_an_error_on_all(tmp_path: Path) -> None:
    _save(tmp_path, 2, 10)
    (tmp_path / "generations" / "00000010" / "centres-00001-of-00002.safetensors").unlink()

    def load(group: ThreadGroup) -> None:
        with _opened(tmp_path, group) as store, pytest.raises(DamagedRunError, match=r"centres-00001-of-00002"):
            store.load()

    on_ranks(2, load)


def test_a_folder_that_is_in_use_is_an_error_on_all(tmp_path: Path) -> None:
    with RunFolder(tmp_path):

        def work(group: ThreadGroup) -> None:
            with pytest.raises(RunLockedError):
                _store(tmp_path, group).open()

        on_ranks(2, work)
    _save(tmp_path, 2, 1)


def test_ranks_that_see_different_folders_are_told_so(tmp_path: Path) -> None:
    def work(group: ThreadGroup) -> None:
        with pytest.raises(RunError, match=r"Rank\(s\) 1 do not see the run folder .* a disk that all machines share"):
            _store(tmp_path / str(group.rank), group).open()

    on_ranks(2, work)
    RunFolder(tmp_path / "0").open().close()  # the lock was given back


def test_one_lock_is_held_by_rank_0(tmp_path: Path) -> None:
    def work(group: ThreadGroup) -> bool:
        with _opened(tmp_path, group) as store:
            group.barrier()
            with pytest.raises(RunLockedError):
                RunFolder(tmp_path).open()
            group.barrier()
            return store.run.is_open

    assert on_ranks(3, work) == [True, False, False]


# --- what goes wrong when saving -------------------------------------------------------------------------------------


def _each_rank(
    path: Path, size: int, work: Callable[[ThreadGroup, RankedStore], T], *, patience: float = 60.0
) -> list[T]:
    def run(group: ThreadGroup) -> T:
        with _opened(path, group, patience) as store:
            store.load()
            return work(group, store)

    return on_ranks(size, run)


class _FullDisk:
    """No room for files in folders whose name holds a text."""

    def __init__(self, text: str, *, room_for_receipts: bool = True) -> None:
        self.text = text
        self.room_for_receipts = room_for_receipts
        self.times = 0

    def __call__(self, moment: str, operation: str, path: Path) -> None:
        if self.room_for_receipts and path.name == ".tmp-receipt.json":
            return
        if operation == "write" and moment == "before" and self.text in path.parent.name:
            self.times += 1
            raise OSError(28, "No space left on device", str(path))


@pytest.mark.parametrize("room_for_receipts", [True, False])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (".rank-00001", "rank 1 could not write its part: .*No space left on device"),
        (".rank-00002", "rank 2 could not write its part: .*No space left on device"),
        (".tmp-00000020", "No space left on device"),
    ],
)
def test_a_rank_that_cannot_write_fails_the_save_on_all_and_the_next_one_works(
    tmp_path: Path, text: str, says: str, room_for_receipts: bool
) -> None:
    _save(tmp_path, 3, 10)
    disk = _FullDisk(text, room_for_receipts=room_for_receipts)

    def work(group: ThreadGroup, store: RankedStore) -> str:
        if group.rank == 0:
            set_hook(disk)
        group.barrier()
        store.submit(_content(20, group))
        (failed,) = store.flush()
        assert failed.commit is None
        if group.rank == 0:
            set_hook(None)
        group.barrier()
        store.submit(_content(20, group))
        (result,) = store.flush()
        assert result.error is None
        return str(failed.error)

    told = _each_rank(tmp_path, 3, work, patience=1e6)
    assert disk.times
    assert len(set(told)) == 1
    assert re.search(says, told[0])
    assert "untouched" in told[0]
    assert _names(tmp_path) == ["00000010", "00000020"]
    assert _leftovers(tmp_path) == []
    assert all(not damage for damage in RunFolder(tmp_path).verify().values())


def test_a_part_that_never_comes_ends_the_save_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ostinato.runs import ranked_store

    monkeypatch.setattr(ranked_store, "write_part", lambda *_arguments: None)

    def work(group: ThreadGroup, store: RankedStore) -> str:
        store.submit(_content(20, group))
        (result,) = store.flush()
        return str(result.error)

    told = _each_rank(tmp_path, 2, work, patience=0.3)
    assert told[0] == told[1]
    assert "nothing has come from rank(s) 1" in told[0]
    assert _names(tmp_path) == []


def test_after_a_failure_nobody_waits_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ostinato.runs import ranked_store

    monkeypatch.setattr(ranked_store, "write_part", lambda *_arguments: None)
    monkeypatch.setattr(ranked_store, "PATIENCE_AFTER_FAILURE", 0.1)

    def work(group: ThreadGroup, store: RankedStore) -> list[Any]:
        store.submit(_content(20, group))
        store.hurry()
        store.settle()
        return store.poll()

    results = _each_rank(tmp_path, 2, work, patience=1e6)
    assert "nothing has come" in str(results[0][0].error)
    assert results[1] == []


def test_a_part_that_rots_before_it_is_read_back_is_never_called_saved(tmp_path: Path) -> None:
    def rot(moment: str, operation: str, path: Path) -> None:
        if (moment, operation) == ("before", "read_back") and path.name.startswith("centres-00001"):
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            path.write_bytes(content)

    def work(group: ThreadGroup, store: RankedStore) -> str:
        if group.rank == 0:
            set_hook(rot)
        group.barrier()
        store.submit(_content(20, group))
        (result,) = store.flush()
        return str(result.error)

    assert all(
        "rank 1 could not write its part" in text and "centres-00001" in text for text in _each_rank(tmp_path, 2, work)
    )
    assert _names(tmp_path) == []


def test_rows_of_one_rank_that_are_no_numbers_end_the_save_on_all(tmp_path: Path) -> None:
    def work(group: ThreadGroup, store: RankedStore) -> str:
        content = _content(20, group)
        if group.rank == 1:
            content.state["head"].tensor[0, 0] = float("nan")
        store.submit(content)
        (result,) = store.flush()
        return str(result.error)

    assert all("rank 1" in text and "not finite" in text for text in _each_rank(tmp_path, 2, work))


def test_what_one_rank_cannot_save_is_said_on_all_at_once(tmp_path: Path) -> None:
    def work(group: ThreadGroup, store: RankedStore) -> None:
        odd = {"rank_state": {"odd": object()}} if group.rank == 1 else {}
        with pytest.raises(ArgumentTypeError if group.rank == 1 else SaveError, match="odd"):
            store.submit(_content(20, group, **odd))
        store.submit(_content(20, group))
        assert store.flush()[0].error is None

    _each_rank(tmp_path, 2, work)
    assert _names(tmp_path) == ["00000020"]


def test_what_is_left_of_parts_that_were_never_taken_in_goes_at_the_next_start(tmp_path: Path) -> None:
    _save(tmp_path, 2, 10)
    for name in (".tmp-00000020.rank-00001", ".tmp-00000020", ".tmp-mine.rank-00001"):
        (tmp_path / "generations" / name).mkdir()
    _save(tmp_path, 2, 20)
    assert _leftovers(tmp_path) == [".tmp-mine.rank-00001"]


def test_a_receipt_of_another_save_is_not_taken_for_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ostinato.runs import ranked_store

    def work(group: ThreadGroup, store: RankedStore) -> str:
        if group.rank == 0:
            folder = tmp_path / "generations" / ".tmp-00000020.rank-00001"
            folder.mkdir()
            (folder / "receipt.json").write_text('{"save": "old", "files": {}, "error": null}')
        group.barrier()
        store.submit(_content(20, group))
        return str(store.flush()[0].error)

    monkeypatch.setattr(ranked_store, "write_part", lambda *_arguments: None)
    assert "nothing has come from rank(s) 1" in _each_rank(tmp_path, 2, work, patience=0.3)[0]


@pytest.mark.parametrize(
    ("name", "size", "says"),
    [
        ("../../../secret", 1, "no file of its own"),
        ("model.safetensors", 1, "no file of its own"),
        ("rank-00000-of-00002.json", 1, "no file of its own"),
        ("rank-00001-of-00002.json", 9, "instead of 9"),
    ],
)
def test_what_a_rank_has_no_right_to_write_is_not_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: int, says: str
) -> None:
    from ostinato.runs import ranked_store

    (tmp_path / "secret").write_text("s")

    def pretend(files: Files, generations: Path, ticket: Any, packed: Any) -> None:
        folder = generations / f".tmp-{ticket.name}.rank-00001"
        folder.mkdir(parents=True)
        if "/" not in name:
            (folder / name).write_text("x")
        receipt = {"save": ticket.key, "files": {name: {"bytes": size, "sha256": "0"}}, "error": None}
        files.replace(folder / "receipt.json", json.dumps(receipt).encode())

    monkeypatch.setattr(ranked_store, "write_part", pretend)

    def work(group: ThreadGroup, store: RankedStore) -> str:
        store.submit(_content(20, group))
        return str(store.flush()[0].error)

    assert all(says in told for told in _each_rank(tmp_path, 2, work))
    assert _names(tmp_path) == []
    assert (tmp_path / "secret").read_text() == "s"


# --- alone, after an error -------------------------------------------------------------------------------------------


def test_the_state_of_an_error_is_written_by_rank_0_without_a_message(tmp_path: Path) -> None:
    def work(group: ThreadGroup, store: RankedStore) -> int:
        content = _content(5, group, reasons=("error",), optimizer=None)
        content.state.pop("head")
        before = len(group.calls)
        store.submit_alone(content)
        store.settle()
        return len(group.calls) - before

    assert _each_rank(tmp_path, 2, work) == [0, 0]
    loaded = RunFolder(tmp_path).read("00000005-error")
    assert loaded.manifest.world_size == 2
    assert loaded.rank_states.of(0)["draws"] == 0
    assert loaded.rank_states.of(1) is None


def test_a_table_that_is_cut_over_the_ranks_cannot_be_in_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def work(group: ThreadGroup, store: RankedStore) -> None:
        store.submit_alone(_content(5, group, reasons=("error",)))

    _each_rank(tmp_path, 2, work)
    assert _names(tmp_path) == []
    assert "at iteration 5, was not saved: it is cut over the ranks" in caplog.text


def test_an_unexpected_fault_of_rank_0_is_an_error_on_the_others_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "open", lambda _self: 1 / 0)

    def work(group: ThreadGroup) -> None:
        with pytest.raises(ZeroDivisionError if group.rank == 0 else StateError, match="division by zero"):
            _store(tmp_path, group).open()

    on_ranks(2, work)
