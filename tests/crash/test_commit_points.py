"""A save that is disturbed, refused or killed at every single file operation.

After each of these the folder must open to a whole generation, at worst the one before.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from ostinato.errors import SaveError
from ostinato.runs import KEEP_OPTIMIZER, GenerationContent, LoadedGeneration, RunFolder
from ostinato.runs.atomic import OPERATIONS, Files, set_hook

FILES = Files(attempts=3, first_wait=0.0)


def _content(iteration: int, *, keep_optimizer: bool = False) -> GenerationContent:
    weight = torch.full((4, 3), float(iteration))
    return GenerationContent(
        iteration=iteration,
        model={"weight": weight},
        optimizer=KEEP_OPTIMIZER if keep_optimizer else {"mean": weight / 2},
        state={"position": iteration, "random": torch.arange(5) + iteration},
    )


def _save(run: RunFolder, iteration: int, *, keep_optimizer: bool = False) -> None:
    run.commit(run.pack(_content(iteration, keep_optimizer=keep_optimizer)))


def _assert_whole(loaded: LoadedGeneration | None, iteration: int) -> None:
    assert loaded is not None
    assert loaded.iteration == iteration
    assert loaded.model["weight"].eq(iteration).all()
    assert loaded.state["position"] == iteration
    assert loaded.state["random"].equal(torch.arange(5) + iteration)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two generations, so that the third save has an old one to remove."""
    path = tmp_path_factory.mktemp("runs") / "run"
    with RunFolder(path, files=FILES) as run:
        _save(run, 10)
        _save(run, 20)
    return path


@pytest.fixture(autouse=True)
def _no_hook_left() -> Iterator[None]:
    yield
    set_hook(None)


def _points(path: Path, tmp_path: Path, *, keep_optimizer: bool = False) -> list[tuple[str, str, str]]:
    """Every (moment, operation, file name) of the third save, in order."""
    copy = tmp_path / "points"
    shutil.copytree(path, copy)
    seen: list[tuple[str, str, str]] = []
    with RunFolder(copy, files=FILES) as run:
        set_hook(lambda moment, operation, file: seen.append((moment, operation, file.name)))
        _save(run, 30, keep_optimizer=keep_optimizer)
        set_hook(None)
    return seen


def _at(index: int, action: Callable[[], None], *, times: int = 1, moment: str | None = None):
    """A hook that does something at the index-th call (of that moment), and at the following ones up to ``times``."""
    count = -1

    def hook(now: str, _operation: str, _path: Path) -> None:
        nonlocal count
        if moment is not None and now != moment:
            return
        count += 1
        if index <= count < index + times:
            action()

    return hook


def _raise(number: int) -> Callable[[], None]:
    def action() -> None:
        raise OSError(number, os.strerror(number))

    return action


def _assert_recovered(path: Path, *, saved: bool | None) -> None:
    """What must hold afterwards, and that the same command goes on."""
    assert not [entry for entry in (path / "generations").iterdir() if entry.name == "damaged"]
    with RunFolder(path, files=FILES) as run:
        assert not [entry for entry in run.generations_path.iterdir() if entry.name.startswith(".")]
        loaded = run.load_newest()
        assert loaded is not None
        if saved is not None:
            assert loaded.iteration == (30 if saved else 20)
        _assert_whole(loaded, loaded.iteration)
        assert run.notices == [] or all("lock of" in notice for notice in run.notices)
        assert all(not damage for damage in run.verify().values())
        assert len(run.names()) >= 2
        _save(run, 40)
        _assert_whole(run.load_newest(), 40)


def test_a_save_passes_through_every_kind_of_operation(before: Path, tmp_path: Path) -> None:
    seen = {operation for _, operation, _ in _points(before, tmp_path, keep_optimizer=True)}
    assert seen == set(OPERATIONS)


def test_the_manifest_is_written_last_and_everything_is_flushed_before_the_rename(before: Path, tmp_path: Path) -> None:
    points = [point for point in _points(before, tmp_path) if point[0] == "before"]
    commit = points.index(("before", "rename", "00000030"))
    written = [name for _, operation, name in points[:commit] if operation == "create"]
    flushed = [name for _, operation, name in points[:commit] if operation == "flush_file"]
    assert written[-1] == "manifest.json"
    assert flushed == written
    assert points[commit - 1] == ("before", "flush_folder", ".tmp-00000030")
    assert points[commit + 1] == ("before", "flush_folder", "generations")
    # Nothing old goes before the new one was read back.
    after = [(operation, name) for _, operation, name in points[commit + 1 :]]
    first_removal = next(i for i, (operation, _) in enumerate(after) if operation in ("remove", "rename"))
    assert sum(operation == "read_back" for operation, _ in after[:first_removal]) == len(written) - 1


@pytest.mark.parametrize(("number", "keep_optimizer"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_an_error_at_any_operation_leaves_a_whole_state_and_the_run_goes_on(
    before: Path, tmp_path: Path, number: int, keep_optimizer: bool
) -> None:
    points = [p for p in _points(before, tmp_path, keep_optimizer=keep_optimizer) if p[0] == "before"]
    for index, (_, operation, name) in enumerate(points):
        copy = tmp_path / f"run{index}"
        shutil.copytree(before, copy)
        committed = index > points.index(("before", "rename", "00000030"))
        with RunFolder(copy, files=FILES) as run:
            set_hook(_at(index, _raise(number), moment="before"))
            failure = ""
            try:
                _save(run, 30, keep_optimizer=keep_optimizer)
            except SaveError as error:
                failure = str(error)
            set_hook(None)
            # An error in clean-up, in the journal, or where a link can be replaced by a copy is not one of the save.
            assert failure or committed or operation == "link", (operation, name)
            assert not failure or ("iteration 30" in failure and "untouched" in failure)
            assert not [e for e in run.generations_path.iterdir() if e.name.startswith(".tmp-")], (operation, name)
            # Without starting anew: the next save of the same process.
            _save(run, 35)
            _assert_whole(run.load_newest(), 35)
            assert len(run.names()) >= 2
        shutil.rmtree(copy)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EBUSY])
def test_a_disturbance_that_passes_costs_nothing(before: Path, tmp_path: Path, number: int) -> None:
    points = [p for p in _points(before, tmp_path) if p[0] == "before"]
    for index in range(len(points)):
        copy = tmp_path / f"run{index}"
        shutil.copytree(before, copy)
        with RunFolder(copy, files=FILES) as run:
            set_hook(_at(index, _raise(number), moment="before"))
            _save(run, 30)
            set_hook(None)
            _assert_whole(run.load_newest(), 30)
            assert [str(name) for name in run.names()] == ["00000020", "00000030"], points[index]
        shutil.rmtree(copy)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EBUSY, errno.ESTALE])
def test_a_disturbance_that_stays_fails_that_save_only(before: Path, tmp_path: Path, number: int) -> None:
    copy = tmp_path / "run"
    shutil.copytree(before, copy)
    with RunFolder(copy, files=FILES) as run:
        set_hook(lambda moment, operation, _path: _raise(number)() if operation == "rename" else None)
        with pytest.raises(SaveError, match="The next save tries again"):
            _save(run, 30)
        set_hook(None)
    _assert_recovered(copy, saved=False)


def _in_child(action: Callable[[], None]) -> int:
    """Run something in a forked process; its wait status."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException:
            os._exit(99)
        os._exit(0)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("keep_optimizer", [False, True])
def test_killed_at_every_point_the_newest_state_is_whole(before: Path, tmp_path: Path, keep_optimizer: bool) -> None:
    points = _points(before, tmp_path, keep_optimizer=keep_optimizer)
    renamed = points.index(("after", "rename", "00000030"))
    for index, point in enumerate(points):
        copy = tmp_path / f"run{index}"
        shutil.copytree(before, copy)

        def save_and_die(copy: Path = copy, index: int = index) -> None:
            with RunFolder(copy, files=FILES) as run:
                set_hook(_at(index, lambda: os.kill(os.getpid(), signal.SIGKILL)))
                _save(run, 30, keep_optimizer=keep_optimizer)

        status = _in_child(save_and_die)
        assert os.WIFSIGNALED(status), point
        _assert_recovered(copy, saved=index >= renamed)
        shutil.rmtree(copy)


def test_the_first_save_of_all_killed_anywhere_leaves_a_new_run_or_a_whole_one(tmp_path: Path) -> None:
    for index in range(1000):
        path = tmp_path / f"run{index}"

        def begin_and_die(path: Path = path, index: int = index) -> None:
            set_hook(_at(index, lambda: os.kill(os.getpid(), signal.SIGKILL)))
            with RunFolder(path, files=FILES) as run:
                _save(run, 10)

        status = _in_child(begin_and_die)
        with RunFolder(path, files=FILES) as run:
            loaded = run.load_newest()
            if loaded is not None:
                _assert_whole(loaded, 10)
            _save(run, 20)
            _assert_whole(run.load_newest(), 20)
        if not os.WIFSIGNALED(status):
            assert status == 0
            assert index > 20
            return
    raise AssertionError("the save never came to its end")


def test_a_file_size_limit_fails_the_save_and_nothing_else(before: Path, tmp_path: Path) -> None:
    import resource

    copy = tmp_path / "run"
    shutil.copytree(before, copy)

    def save_with_limit() -> None:
        with RunFolder(copy, files=FILES) as run:
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
            with pytest.raises(SaveError, match="may not become so large"):
                _save(run, 30)
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert [str(name) for name in run.names()] == ["00000010", "00000020"]
            _save(run, 30)

    assert _in_child(save_with_limit) == 0
    _assert_recovered(copy, saved=True)


def test_what_the_disk_gave_back_wrongly_is_never_called_saved(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(before, copy)

    def rot(moment: str, operation: str, path: Path) -> None:
        if (moment, operation, path.name) == ("after", "rename", "00000030"):
            content = bytearray((path / "model.safetensors").read_bytes())
            content[-1] ^= 1
            (path / "model.safetensors").write_bytes(content)

    with RunFolder(copy, files=FILES) as run:
        set_hook(rot)
        with pytest.raises(SaveError, match=r"read back.*model\.safetensors"):
            _save(run, 30)
        set_hook(None)
        assert [str(name) for name in run.names()] == ["00000010", "00000020"]
        assert (run.generations_path / "damaged" / "00000030").is_dir()
        _save(run, 30)
        _assert_whole(run.load_newest(), 30)


def test_an_old_generation_that_cannot_be_removed_is_a_warning(before: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(before, copy)
    with RunFolder(copy, files=FILES) as run:
        set_hook(lambda _moment, operation, _path: _raise(errno.EIO)() if operation == "remove" else None)
        done = run.commit(run.pack(_content(30)))
        set_hook(None)
        assert any("00000010 could not be removed" in text for text in done.warnings)
        done = run.commit(run.pack(_content(40)))
        assert done.warnings == ()
        assert done.deleted == ("00000010", "00000020")
        assert [str(name) for name in run.names()] == ["00000030", "00000040"]
        assert not [entry for entry in run.generations_path.iterdir() if entry.name.startswith(".")]
