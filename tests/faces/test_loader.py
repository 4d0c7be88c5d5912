import dataclasses
import multiprocessing
import os
import signal
import threading
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from ostinato.config.swap import AugmentationOptions, LoaderOptions
from ostinato.errors import ArgumentValueError, FaceFileError, FaceFolderError, StateError
from ostinato.faces import prepared_faces
from ostinato.faces.loader import SwapLoader, worker_count
from ostinato.faces.sample import CropSettings, prepare_face
from ostinato.faces.scan import scan_folder

COUNTS = {"a": 5, "b": 8}
CROP = CropSettings(size=32, masks=("extended", "eye", "mouth"))


@pytest.fixture
def folders(tmp_path, write_sample, landmarks):
    random = np.random.default_rng(0)
    for side, count in COUNTS.items():
        (tmp_path / side).mkdir()
        for number in range(count):
            coarse = random.integers(40, 216, (5, 5, 3)).astype(np.uint8)
            write_sample(
                tmp_path / side / f"{side}{number}.png",
                cv2.resize(coarse, (96, 96), interpolation=cv2.INTER_CUBIC),
                points=landmarks + random.normal(0, 2, (68, 2)),
            )
    return {side: tmp_path / side for side in COUNTS}


@pytest.fixture
def make(folders, tmp_path):
    """Builds loaders and closes them at the end; ``cache=True`` gives them a common cache."""
    opened = []

    def make(*, workers=0, batch_size=3, cache=False, sides=None, opening=True, **changes):
        arguments = {
            "crop": CROP,
            "input_size": 32,
            "output_sizes": [32],
            "seed": 1,
            "loader": LoaderOptions(num_processes=workers),
            "cache_dir": tmp_path / "cache" if cache else None,
        }
        sides = sides or {side: scan_folder(folder) for side, folder in folders.items()}
        loader = SwapLoader(sides, batch_size=batch_size, **{**arguments, **changes})
        if opening:
            loader.open()
            opened.append(loader)
        return loader

    yield make
    for loader in opened:
        loader.close()


def _tensors(batch):
    return [batch.inputs, *batch.targets, *(mask for masks in batch.masks.values() for mask in masks)]


def _take(loader, samples, batch_size):
    """``samples`` samples per side in one piece, per tensor, and the file names."""
    batches = [loader.next_batch() for _ in range(samples // batch_size)]
    tensors = [torch.cat(parts, dim=1) for parts in zip(*map(_tensors, batches), strict=True)]
    files = [[path.name for batch in batches for path in batch.files[side]] for side in range(len(batches[0].files))]
    return tensors, files


def _assert_same(one, other):
    assert one[1] == other[1]
    for left, right in zip(one[0], other[0], strict=True):
        assert torch.equal(left, right)


# --- what a batch is -------------------------------------------------------------------------------------------------


def test_batches_have_the_promised_shapes(make):
    loader = make(crop=dataclasses.replace(CROP, size=64), input_size=32, output_sizes=[32, 64])
    batch = loader.next_batch()
    assert batch.inputs.shape == (2, 3, 32, 32, 3)
    assert [target.shape for target in batch.targets] == [(2, 3, 32, 32, 3), (2, 3, 64, 64, 3)]
    assert list(batch.masks) == ["face", "eye", "mouth"]
    for masks in batch.masks.values():
        assert [mask.shape for mask in masks] == [(2, 3, 32, 32, 1), (2, 3, 64, 64, 1)]
    assert all(tensor.dtype == torch.uint8 and tensor.is_contiguous() for tensor in _tensors(batch))
    assert [len(files) for files in batch.files] == [3, 3]


def test_masks_are_named_by_what_they_are(make):
    # Elsewhere the second mask counts as the eyes' whatever it is.
    everything = make().next_batch()
    fewer = make(crop=dataclasses.replace(CROP, masks=("mouth", "extended"))).next_batch()
    assert list(fewer.masks) == ["mouth", "face"]
    assert torch.equal(fewer.masks["mouth"][0], everything.masks["mouth"][0])
    assert torch.equal(fewer.masks["face"][0], everything.masks["face"][0])
    assert make(crop=dataclasses.replace(CROP, masks=())).next_batch().masks == {}


def test_two_masks_of_one_kind_are_refused(make):
    with pytest.raises(ArgumentValueError, match="at most one face mask"):
        make(crop=dataclasses.replace(CROP, masks=("extended", "components")))


def test_with_all_changes_off_a_batch_holds_the_prepared_faces(make):
    still = AugmentationOptions(zoom_amount=0, rotation_range=0, shift_range=0)
    batch = make(augmentation=still, flip=False, color=False, warp=False).next_batch()
    for side in range(2):
        for row in range(3):
            face = prepare_face(batch.files[side][row], CROP)
            for tensor in (batch.inputs, batch.targets[0]):
                np.testing.assert_array_equal(tensor[side, row], face.image)
            for channel, kind in enumerate(("face", "eye", "mouth")):
                np.testing.assert_array_equal(batch.masks[kind][0][side, row, :, :, 0], face.masks[..., channel])


@pytest.mark.parametrize("number", [1, 3])
def test_any_number_of_sides(make, folders, number):
    folder = scan_folder(folders["a"])
    batch = make(sides=dict.fromkeys("abc"[:number], folder)).next_batch()
    assert batch.inputs.shape[0] == number
    assert len(batch.files) == number


def test_a_list_of_paths_is_a_side(make, folders):
    paths = {side: sorted(folder.iterdir()) for side, folder in folders.items()}
    _assert_same(_take(make(sides=paths), 6, 3), _take(make(), 6, 3))


# --- what a batch depends on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bend", [False, True])
@pytest.mark.parametrize(("workers", "pre_fetch"), [(1, 1), (2, 1), (2, 5)])
def test_workers_and_prefetching_do_not_change_the_batches(make, workers, pre_fetch, bend):
    expected = _take(make(warp_to_landmarks=bend), 24, 3)
    options = LoaderOptions(num_processes=workers, pre_fetch=pre_fetch)
    _assert_same(_take(make(loader=options, cache=True, warp_to_landmarks=bend), 24, 3), expected)


@pytest.mark.parametrize("batch_size", [1, 4, 12, 24])
def test_the_batch_size_only_cuts_the_row_of_samples_differently(make, batch_size):
    _assert_same(_take(make(batch_size=batch_size), 24, batch_size), _take(make(), 24, 3))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_continued_loader_gives_what_an_undisturbed_one_gives(make, workers):
    straight = make(workers=workers)
    _take(straight, 9, 3)
    state = straight.state_dict()
    continued = make(workers=workers)
    continued.next_batch()
    continued.load_state_dict(state)
    assert continued.position == 9
    _assert_same(_take(continued, 12, 3), _take(straight, 12, 3))


def test_a_batch_size_changed_on_resuming_goes_on_with_the_same_samples(make):
    first = make()
    _take(first, 6, 3)
    second = make(batch_size=2)
    second.load_state_dict(first.state_dict())
    _assert_same(_take(second, 6, 2), _take(first, 6, 3))


def test_cached_and_uncached_batches_are_equal(make):
    expected = _take(make(), 24, 3)
    cached = make(cache=True)
    _assert_same(_take(cached, 24, 3), expected)
    cached.seek(0)
    _assert_same(_take(cached, 24, 3), expected)


def test_after_one_pass_no_face_is_prepared_again(make, tmp_path, write_sample, picture, monkeypatch):
    for side in ("c", "d"):  # the same names in both folders
        (tmp_path / side).mkdir()
        for number in range(4):
            write_sample(tmp_path / side / f"{number}.png", np.roll(picture, number + ord(side), axis=0))
    prepared = []

    def counted(path, settings):
        prepared.append(path)
        return prepare_face(path, settings)

    monkeypatch.setattr(prepared_faces, "prepare_face", counted)
    loader = make(sides={side: scan_folder(tmp_path / side) for side in ("c", "d")}, batch_size=4, cache=True)
    for _ in range(4):
        loader.next_batch()
    assert sorted(prepared) == sorted((tmp_path / side / f"{number}.png") for side in "cd" for number in range(4))


def test_another_seed_gives_other_batches(make):
    one, other = make().next_batch(), make(seed=2).next_batch()
    assert not torch.equal(one.inputs, other.inputs)


def test_the_same_face_is_changed_differently_each_time(make, folders):
    paths = [folders["a"] / "a0.png"]
    batch = make(sides={"a": paths, "b": paths}, batch_size=2).next_batch()
    pictures = batch.targets[0].reshape(4, -1)
    assert len({tuple(picture.tolist()) for picture in pictures}) == 4


# --- passes ----------------------------------------------------------------------------------------------------------


def test_a_pass_is_one_walk_over_the_larger_side(make):
    loader = make(batch_size=4)
    assert loader.epoch_length == 8
    batches = [loader.next_batch() for _ in range(5)]
    assert [batch.position for batch in batches] == [4, 8, 12, 16, 20]
    assert [batch.epoch for batch in batches] == [0, 1, 1, 2, 2]
    for number in range(2):
        names = [path.name for batch in batches[2 * number : 2 * number + 2] for path in batch.files[1]]
        assert sorted(names) == sorted(f"b{index}.png" for index in range(8))


def test_nothing_is_dropped_at_the_end_of_a_pass(make):
    _, files = _take(make(), 24, 3)  # 8 faces, batches of 3
    for number in range(3):
        assert len(set(files[1][number * 8 : number * 8 + 8])) == 8


def test_a_batch_may_be_larger_than_the_folders(make):
    batch = make(batch_size=20).next_batch()
    assert batch.inputs.shape[:2] == (2, 20)
    assert batch.epoch == 2
    assert len(set(batch.files[0])) == 5


# --- what can go wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_vanishes_is_named_and_the_place_is_kept(make, folders, workers):
    loader = make(workers=workers)
    loader.next_batch()
    kept = {path: path.read_bytes() for path in folders["b"].iterdir()}
    stats = {path: path.stat().st_mtime_ns for path in kept}
    for path in kept:
        path.unlink()
    with pytest.raises(FaceFileError, match=r"b\d\.png"):
        _take(loader, 18, 3)
    position = loader.position
    for path, data in kept.items():
        path.write_bytes(data)
        os.utime(path, ns=(stats[path], stats[path]))
    batch = loader.next_batch()
    straight = make()
    straight.seek(position)
    assert torch.equal(batch.inputs, straight.next_batch().inputs)


def test_an_undecodable_file_is_named(make, folders):
    path = folders["a"] / "a2.png"
    data = bytearray(path.read_bytes())
    data[-40:-20] = bytes(20)
    path.write_bytes(data)
    loader = make(sides={"a": [path]}, workers=2)
    with pytest.raises(FaceFileError, match=r"a2\.png"):
        loader.next_batch()


def test_an_interrupt_while_waiting_loses_no_batch(make, monkeypatch):
    expected = make().next_batch()
    waiting, interrupted = threading.Event(), threading.Event()

    def slow(path, settings):
        waiting.set()
        interrupted.wait(120)  # the batch is not ready before the signal is on its way
        return prepare_face(path, settings)

    monkeypatch.setattr(prepared_faces, "prepare_face", slow)
    loader = make(workers=2)

    def interrupt():
        waiting.wait()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        interrupted.set()

    thread = threading.Thread(target=interrupt)
    # A shell that starts the tests in the background has Ctrl-C ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            loader.next_batch()
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert loader.position == 0
    assert torch.equal(loader.next_batch().inputs, expected.inputs)


def test_closing_leaves_no_threads_and_opencv_as_it_was(make):
    before = cv2.getNumThreads()
    threads = set(threading.enumerate())
    first, second = make(workers=2), make(workers=2)
    first.next_batch()
    assert cv2.getNumThreads() == 1
    first.close()
    assert cv2.getNumThreads() == 1
    second.close()
    second.close()
    assert cv2.getNumThreads() == before
    assert set(threading.enumerate()) == threads


def test_a_loader_can_be_opened_again(make):
    loader = make(workers=2, cache=True)
    first = loader.next_batch()
    loader.close()
    with pytest.raises(StateError, match="closed"):
        loader.next_batch()
    loader.seek(0)
    with loader:
        assert torch.equal(loader.next_batch().inputs, first.inputs)
        with pytest.raises(StateError, match="open already"):
            loader.open()


def test_a_failed_opening_closes_everything(make, folders):
    before = cv2.getNumThreads()
    loader = make(sides={"a": [folders["a"] / "gone.png"]}, cache=True, opening=False)
    with pytest.raises(FaceFileError, match=r"gone\.png"):
        loader.open()
    assert cv2.getNumThreads() == before
    loader.close()


def test_constructing_touches_nothing(make, tmp_path):
    before = set(threading.enumerate())
    make(workers=2, cache=True, opening=False)
    assert set(threading.enumerate()) == before
    assert not (tmp_path / "cache").exists()


def test_wrong_arguments_are_refused(make, folders):
    with pytest.raises(ArgumentValueError, match=r"batch_size is 0"):
        make(batch_size=0)
    with pytest.raises(ArgumentValueError, match=r"crop\.size is 32"):
        make(output_sizes=[64])
    with pytest.raises(FaceFolderError, match=r"Side b has no faces"):
        make(sides={"a": scan_folder(folders["a"]), "b": []})
    with pytest.raises(ArgumentValueError, match="only one side"):
        make(sides={"a": scan_folder(folders["a"])}, warp_to_landmarks=True)
    with pytest.raises(ArgumentValueError, match="position is -1"):
        make().seek(-1)


def test_warp_to_landmarks_needs_landmarks(make, folders, write_sample):
    write_sample(folders["a"] / "plain.png", metadata=None)
    loader = make(crop=dataclasses.replace(CROP, masks=()), warp_to_landmarks=True, opening=False)
    with pytest.raises(FaceFileError, match=r"plain\.png.*68 landmarks"):
        loader.open()


def test_state_of_another_seed_or_format_is_refused(make):
    loader = make()
    with pytest.raises(StateError, match="seed 5"):
        loader.load_state_dict({**loader.state_dict(), "seed": 5})
    with pytest.raises(StateError, match="format 9"):
        loader.load_state_dict({**loader.state_dict(), "format": 9})


def test_a_changed_number_of_faces_is_reported(make, caplog):
    loader = make()
    loader.load_state_dict({**loader.state_dict(), "position": 6, "counts": {"a": 4, "b": 8}})
    assert loader.position == 6
    assert "number of faces has changed" in caplog.text


def test_workers_are_bounded_by_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4), raising=False)
    assert [worker_count(asked) for asked in (0, 1, 4, 5, 32)] == [0, 1, 4, 3, 3]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(1))
    assert [worker_count(asked) for asked in (0, 1, 4)] == [0, 1, 1]


# --- several processes -----------------------------------------------------------------------------------------------


def _train(folders: dict[str, Path], cache: Path, results, endless: bool) -> None:
    sides = {side: scan_folder(folder) for side, folder in folders.items()}
    loader = SwapLoader(
        sides,
        crop=CROP,
        input_size=32,
        output_sizes=[32],
        batch_size=4,
        seed=1,
        loader=LoaderOptions(num_processes=2),
        cache_dir=cache,
    )
    with loader:
        results.put("open")
        taken = [loader.next_batch().inputs for _ in range(6)]
        results.put(torch.stack(taken).numpy().tobytes())
        while endless:
            loader.seek(0)
            loader.next_batch()


def test_trainings_that_share_a_cache_see_the_same_faces_also_when_one_is_killed(folders, make, tmp_path):
    straight = make(batch_size=4)
    expected = torch.stack([straight.next_batch().inputs for _ in range(6)]).numpy().tobytes()
    context = multiprocessing.get_context("spawn")
    queues = [context.Queue() for _ in range(2)]
    processes = [
        context.Process(target=_train, args=(folders, tmp_path / "cache", queue, number == 0))
        for number, queue in enumerate(queues)
    ]
    for process in processes:
        process.start()
    try:
        assert queues[0].get(timeout=300) == "open"
        processes[0].kill()
        assert queues[1].get(timeout=300) == "open"
        assert queues[1].get(timeout=300) == expected
        processes[1].join(timeout=300)
        assert processes[1].exitcode == 0
    finally:
        for process in processes:
            process.kill()
            process.join()
    later = make(batch_size=4, cache=True)
    assert torch.stack([later.next_batch().inputs for _ in range(6)]).numpy().tobytes() == expected
