from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import ArgumentValueError, DataSetError, StateError
from ostinato.recognition.data import Augmentation, BadImages, RecognitionBatch, RecognitionLoader, open_source
from ostinato.recognition.data.loader import rank_positions
from ostinato.recognition.data.order import ShuffledOrder
from ostinato.recognition.data.synthetic import SyntheticSource


class _Rank:
    """A rank of a group that never has to talk."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size


class _Flawed(SyntheticSource):
    """A set of which some pictures cannot be read."""

    def __init__(self, broken: set[int], limit: int) -> None:
        super().__init__(5, 20, image_size=8)
        self.bad = BadImages(limit)
        self._broken = broken

    def read(self, index: int) -> tuple[Any, int]:
        if index in self._broken:
            raise DataSetError(f"picture {index} cannot be used: it is torn.", path="set")
        return super().read(index)


def _source(images: int = 23, classes: int = 5) -> SyntheticSource:
    return SyntheticSource(classes, images, image_size=8)


def _loader(source: Any, batch_size: int = 4, **options: Any) -> RecognitionLoader:
    return RecognitionLoader(source, batch_size, **{"seed": 7, "image_size": 8, "workers": 0, **options})


def _take(loader: RecognitionLoader, count: int) -> list[RecognitionBatch]:
    with loader:
        return [loader.next_batch() for _ in range(count)]


def _whole(batches: list[RecognitionBatch]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat([batch.images for batch in batches]), torch.cat([batch.labels for batch in batches])


def test_a_batch_is_uint8_channels_first_and_laid_out_channels_last() -> None:
    (batch,) = _take(_loader(_source()), 1)
    assert batch.images.shape == (4, 3, 8, 8)
    assert batch.images.dtype == torch.uint8
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    assert batch.labels.dtype == torch.int64
    assert (batch.position, batch.epoch) == (4, 0)


def test_the_pictures_are_those_of_the_source_with_their_labels() -> None:
    source = _source()
    images, labels = _whole(_take(_loader(source, 23, mirror=False), 1))
    drawn = {source.read(index)[0].tobytes(): source.read(index)[1] for index in range(23)}
    assert len(drawn) == 23
    seen = [image.permute(1, 2, 0).numpy().tobytes() for image in images]
    assert sorted(seen) == sorted(drawn)
    assert [drawn[image] for image in seen] == labels.tolist()


def test_every_picture_comes_once_per_pass_and_none_is_dropped_at_its_end() -> None:
    images, _ = _whole(_take(_loader(_source(), 4, mirror=False), 23))
    passes = [{image.numpy().tobytes() for image in images[first : first + 23]} for first in range(0, 92, 23)]
    assert all(len(each) == 23 for each in passes)
    assert not torch.equal(images[:23], images[23:46])


def test_the_epoch_counts_completed_passes() -> None:
    assert [batch.epoch for batch in _take(_loader(_source(10), 5), 4)] == [0, 1, 1, 2]
    assert [batch.epoch for batch in _take(_loader(_source(10), 25), 2)] == [2, 5]


@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 2, "prefetch": 3}])
def test_threads_do_not_change_the_batches(options: dict[str, int]) -> None:
    plain = _whole(_take(_loader(_source(), augmentation="dali_aug"), 9))
    threaded = _whole(_take(_loader(_source(), augmentation="dali_aug", **options), 9))
    assert all(map(torch.equal, plain, threaded))


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_ranks_share_what_one_would_get_alone(size: int, balanced: bool) -> None:
    options: dict[str, Any] = {"augmentation": "dali_aug", "balanced": balanced}
    alone = _take(_loader(_source(), 7, **options), 5)
    shares = [_take(_loader(_source(), 7, group=_Rank(rank, size), **options), 5) for rank in range(size)]
    for number, batch in enumerate(alone):
        images = torch.empty_like(batch.images)
        for rank in range(size):
            images[rank::size] = shares[rank][number].images
        assert torch.equal(images, batch.images)
        assert {share[number].position for share in shares} == {batch.position}


def test_more_ranks_than_samples_leave_some_with_nothing() -> None:
    batches = [_take(_loader(_source(), 2, group=_Rank(rank, 3)), 1)[0] for rank in range(3)]
    assert [len(batch.labels) for batch in batches] == [1, 1, 0]
    assert batches[2].images.shape == (0, 3, 8, 8)


@given(st.integers(0, 50), st.integers(1, 40), st.integers(1, 9))
def test_the_ranks_parts_are_even_to_one_and_cover_the_batch(start: int, count: int, size: int) -> None:
    parts = [rank_positions(start, count, rank, size) for rank in range(size)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(start, start + count))
    assert {len(part) for part in parts} <= {count // size, count // size + 1}


@pytest.mark.parametrize("balanced", [False, True])
def test_a_run_continues_exactly_on_other_ranks_with_another_batch_size(balanced: bool) -> None:
    straight = _whole(_take(_loader(_source(), 30, balanced=balanced), 1))[0]
    first = _loader(_source(), 4, group=_Rank(1, 2), workers=2, balanced=balanced)
    _take(first, 3)
    state = first.state_dict()
    parts = []
    for rank in range(3):
        loader = _loader(_source(), 9, group=_Rank(rank, 3), balanced=balanced)
        loader.load_state_dict(state)
        parts.append(_whole(_take(loader, 2))[0])
        assert loader.position == 30
    continued = torch.empty_like(straight[12:])
    for rank, part in enumerate(parts):
        continued[:9][rank::3] = part[:3]
        continued[9:][rank::3] = part[3:]
    assert torch.equal(continued, straight[12:])


def test_what_was_prepared_ahead_and_not_handed_out_is_not_counted() -> None:
    loader = _loader(_source(), 4, workers=2, prefetch=4)
    _take(loader, 1)
    assert loader.state_dict()["position"] == 4


def test_a_changed_set_is_reported_and_trained_on(caplog: pytest.LogCaptureFixture) -> None:
    state = _loader(_source(23)).state_dict()
    loader = _loader(_source(24))
    with caplog.at_level(logging.WARNING):
        loader.load_state_dict({**state, "position": 8})
    assert "images: 23 before, 24 now" in caplog.text
    assert _take(loader, 1)[0].position == 12


@pytest.mark.parametrize(("change", "text"), [({"format": 2}, "format 2"), ({"seed": 8}, "seed 8")])
def test_a_state_that_does_not_fit_is_refused(change: dict[str, int], text: str) -> None:
    loader = _loader(_source())
    with pytest.raises(StateError, match=text):
        loader.load_state_dict({**loader.state_dict(), **change})


def test_a_picture_that_cannot_be_read_is_reported_once_and_the_next_one_takes_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = _Flawed({3, 4}, limit=2)
    with caplog.at_level(logging.WARNING):
        images, labels = _whole(_take(_loader(source, 20, mirror=False), 3))
    assert [record.getMessage() for record in caplog.records].count(
        "Skipped: picture 3 cannot be used: it is torn."
    ) == 1
    assert len(source.bad) == 2
    fifth = torch.from_numpy(SyntheticSource.read(source, 5)[0]).permute(2, 0, 1)
    places = [number for number, image in enumerate(images[:20]) if torch.equal(image, fifth)]
    assert len(places) == 3
    assert labels[places].tolist() == [0, 0, 0]


def test_a_picture_that_cannot_be_read_is_not_tried_again() -> None:
    tried: list[int] = []

    class _Counted(_Flawed):
        def read(self, index: int) -> tuple[Any, int]:
            tried.append(index)
            return super().read(index)

    _take(_loader(_Counted({3}, limit=1), 20), 3)
    assert tried.count(3) == 1


def test_a_batch_that_failed_can_be_asked_for_again() -> None:
    class _Once(SyntheticSource):
        failed = False

        def read(self, index: int) -> tuple[Any, int]:
            if not self.failed:
                self.failed = True
                raise OSError("the network was away for a moment")
            return super().read(index)

    expected = _take(_loader(_source(20), 4), 1)[0]
    loader = _loader(_Once(5, 20, image_size=8), 4, workers=1)
    with loader:
        with pytest.raises(OSError, match="for a moment"):
            loader.next_batch()
        assert torch.equal(loader.next_batch().images, expected.images)


def test_an_interrupt_as_a_batch_is_handed_out_neither_repeats_nor_skips_one() -> None:
    class _Interrupted(deque):
        def popleft(self) -> Any:
            raise KeyboardInterrupt

    straight = _take(_loader(_source(), 4), 3)
    loader = _loader(_source(), 4, workers=1)
    with loader:
        loader.next_batch()
        loader._ahead = _Interrupted(loader._ahead)
        with pytest.raises(KeyboardInterrupt):
            loader.next_batch()
        loader._ahead = deque(loader._ahead)
        assert loader.position == 8
        assert torch.equal(loader.next_batch().images, straight[2].images)


def test_replacements_do_not_depend_on_what_was_met_before() -> None:
    straight = _whole(_take(_loader(_Flawed({3, 4}, 2), 20), 3))[0]
    loader = _loader(_Flawed({3, 4}, 2), 20)
    loader.seek(40)
    assert torch.equal(_whole(_take(loader, 1))[0], straight[40:])


@pytest.mark.parametrize("workers", [0, 2])
def test_too_many_pictures_that_cannot_be_read_end_the_training_and_are_named(workers: int) -> None:
    loader = _loader(_Flawed({3, 4, 5}, limit=2), 20, workers=workers)
    with loader, pytest.raises(DataSetError, match="3 pictures cannot be used, and at most 2 are skipped") as caught:
        loader.next_batch()
    assert "picture 3 cannot be used: it is torn." in str(caught.value)
    assert loader.position == 0


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_batch_that_has_one_too_many_is_the_same_however_far_the_threads_are_ahead(workers: int) -> None:
    source = _Flawed({3, 9, 11, 17}, limit=3)
    loader = _loader(source, 2, workers=workers, prefetch=8)
    place = ShuffledOrder(20, 7).indices(np.arange(20)).tolist()
    last = sorted(place.index(number) for number in (3, 9, 11, 17))[3] // 2
    with loader:
        for _ in range(last):
            loader.next_batch()
        for _ in range(2):  # it stays so
            with pytest.raises(DataSetError, match="4 pictures cannot be used"):
                loader.next_batch()
        assert loader.position == 2 * last


def test_a_set_that_has_gone_is_not_tried_to_its_end() -> None:
    tried: list[int] = []

    class _Gone(_Flawed):
        def read(self, index: int) -> tuple[Any, int]:
            tried.append(index)
            raise DataSetError(f"picture {index} cannot be read.", path="set")

    loader = _loader(_Gone(set(), limit=3), 4)
    with loader, pytest.raises(DataSetError, match="4 pictures cannot be used"):
        loader.next_batch()
    assert len(tried) == 4


def test_an_error_of_another_kind_in_a_thread_arrives_where_the_batch_is_asked_for() -> None:
    class _Broken(SyntheticSource):
        def read(self, index: int) -> tuple[Any, int]:
            raise ZeroDivisionError(f"picture {index}")

    loader = _loader(_Broken(5, 20, image_size=8), 4, workers=2)
    with loader, pytest.raises(ZeroDivisionError):
        loader.next_batch()


def test_a_set_without_any_usable_picture_is_an_error() -> None:
    loader = _loader(_Flawed(set(range(20)), limit=100), 4)
    with loader, pytest.raises(DataSetError, match="None of the pictures"):
        loader.next_batch()


def test_mirroring_stays_the_same_when_augmentation_is_switched_on() -> None:
    quiet = Augmentation(0, 0, 0, 0)
    assert torch.equal(
        _whole(_take(_loader(_source()), 3))[0], _whole(_take(_loader(_source(), augmentation=quiet), 3))[0]
    )


def test_about_half_of_the_pictures_are_mirrored() -> None:
    source = _source(400, 100)
    plain = _whole(_take(_loader(source, 400, mirror=False), 1))[0]
    mirrored = _whole(_take(_loader(source, 400), 1))[0]
    same = [torch.equal(a, b) for a, b in zip(plain, mirrored, strict=True)]
    flipped = [torch.equal(a.flip(2), b) for a, b in zip(plain, mirrored, strict=True)]
    assert all(a or b for a, b in zip(same, flipped, strict=True))
    assert 160 < sum(flipped) < 240


def test_balanced_sampling_shows_every_identity_equally_often(tmp_path: Path) -> None:
    source = SyntheticSource(3, 3, image_size=8)
    source.labels = np.array([0] * 17 + [2] * 2 + [4] * 4)
    source.read = lambda index: (np.full((8, 8, 3), index, np.uint8), int(source.labels[index]))  # pyrefly: ignore
    images, labels = _whole(_take(_loader(source, 6, balanced=True, mirror=False), 17))
    for first in range(0, 102, 3):
        assert sorted(labels[first : first + 3].tolist()) == [0, 2, 4]
    numbers = images[:, 0, 0, 0]
    assert sorted(numbers[labels == 0][:17].tolist()) == list(range(17))
    assert sorted(numbers[labels == 2][:2].tolist()) == [17, 18]
    assert _loader(source, 6, balanced=True).epoch_length == 23


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"workers": -1}, {"prefetch": 0}, {"augmentation": "lots"}])
def test_wrong_arguments_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentValueError, match=next(iter(options))):
        _loader(_source(), **options)


def test_a_loader_is_opened_before_it_is_used_and_only_once() -> None:
    loader = _loader(_source())
    with pytest.raises(StateError, match="closed"):
        loader.next_batch()
    with loader, pytest.raises(StateError, match="open already"):
        loader.open()


def test_the_synthetic_set_can_be_opened_by_its_name() -> None:
    source = open_source("synthetic", classes=6, images=13, image_size=16)
    assert (len(source), source.classes) == (13, 6)
    assert source.read(7)[1] == source.labels[7] == 1
