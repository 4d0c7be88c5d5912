"""Batches of labelled pictures for training, the same whatever the number of ranks and threads.

The row of samples of a run is a function of the seed, the set and the options. Ranks, threads, batch sizes and the
place where a run was continued only cut that row differently.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ostinato.data.jpeg import ImageError
from ostinato.data.loader_state import STATE_FORMAT, check_loader_state
from ostinato.dist.group import Alone, Group
from ostinato.errors import ArgumentValueError, DataSetError, StateError
from ostinato.faces.loader import worker_count
from ostinato.recognition.data.augmentation import Augmentation, PictureChanges, augmentation_by_name
from ostinato.recognition.data.fitting import fit_to_square
from ostinato.recognition.data.order import BalancedOrder, ImageOrder, ShuffledOrder
from ostinato.recognition.data.source import Source

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecognitionBatch:
    """This rank's part of one batch: B pictures."""

    images: torch.Tensor
    """(B, 3, size, size) uint8 RGB, laid out channels last in memory."""
    labels: torch.Tensor
    """(B,) int64."""
    epoch: int
    """Completed passes once this batch is used."""
    position: int
    """Samples that the whole run (all ranks) has consumed once this batch is used."""


class _Built(NamedTuple):
    batch: RecognitionBatch | None
    """None: there were too few usable pictures."""
    bad: dict[int, DataSetError]
    """Pictures that could not be used for it, and why."""


class RecognitionLoader:
    """Delivers this rank's part of each batch in order, prepared ahead by threads.

    One *batch* is that of all ranks together: ``batch_size`` samples, of which rank k of K gets those at places k,
    k + K, k + 2K, ... So the number of ranks does not change what is trained on in which step, and the ranks' parts
    differ by at most one where K does not divide it. Passes follow each other without a seam: the last samples of a
    pass and the first of the next may share a batch, and no sample is dropped.

    A picture that cannot be used is reported, once, and the next usable one of the set (in the set's own order, with
    its own label) takes its place, so that batches keep their size. What the source allows bounds how often.

    Decoding and OpenCV let go of the interpreter lock, so threads serve as well as processes. Memory: besides the
    source and the order, ``workers * prefetch`` batches of B * size * size * 3 bytes.

    :param source: the pictures, see :func:`~ostinato.recognition.data.opening.open_source`; the caller closes it.
    :param batch_size: samples of one batch over all ranks; may exceed the number of pictures.
    :param seed: where order, mirroring and augmentation derive from.
    :param group: the ranks; None is one alone.
    :param workers: threads; 0 lets the calling thread do the work. At most about as many as there are cores.
    :param prefetch: batches ahead for each thread.
    :param mirror: mirror half of the pictures, by chance.
    :param augmentation: further changes, by name (``"none"``, ``"dali_aug"``) or in detail.
    :param balanced: every identity equally often, instead of every picture once per pass.
    :param image_size: pixels a side. Other pictures are resized (shorter side, bicubic) and cut to the middle square.
    """

    def __init__(
        self,
        source: Source,
        batch_size: int,
        *,
        seed: int,
        group: Group | None = None,
        workers: int = 2,
        prefetch: int = 2,
        mirror: bool = True,
        augmentation: Augmentation | str | None = None,
        balanced: bool = False,
        image_size: int = 112,
    ) -> None:
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("workers", workers, 0),
            ("prefetch", prefetch, 1),
            ("image_size", image_size, 1),
        ):
            if value < least:
                raise ArgumentValueError(f"{name} is {value}.", advice=f"Use {least} or more.")
        if not len(source):
            raise ArgumentValueError("The set has no pictures.", advice="Give a set with pictures.")
        self.batch_size = batch_size
        """Samples of one batch over all ranks."""
        self._source = source
        self._seed = seed
        self._group: Group = group if group is not None else Alone()
        self._workers = workers
        self._prefetch = prefetch
        self._balanced = balanced
        self._image_size = image_size
        self._changes = PictureChanges(
            seed,
            mirror=mirror,
            augmentation=augmentation_by_name(augmentation) if isinstance(augmentation, str) else augmentation,
        )
        self._order: ImageOrder = BalancedOrder(source.labels, seed) if balanced else ShuffledOrder(len(source), seed)
        self._position = 0
        self._opened = False
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: deque[tuple[int, Future[_Built]]] = deque()

    # --- opening and closing -----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start the threads."""
        if self._opened:
            raise StateError("This loader is open already.")
        self._opened = True
        if self._workers:
            self._pool = ThreadPoolExecutor(worker_count(self._workers), thread_name_prefix="pictures")

    def close(self) -> None:
        """Stop the threads. May be called at any time, and more than once."""
        self._opened = False
        self._drop_ahead()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def __enter__(self) -> RecognitionLoader:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- position ----------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Samples handed out to all ranks since the beginning of the run."""
        return self._position

    @property
    def epoch_length(self) -> int:
        """Samples of one pass: the number of pictures, with ``balanced`` too."""
        return len(self._source)

    def seek(self, position: int) -> None:
        """Go on at another position; what was prepared ahead is dropped."""
        if position < 0:
            raise ArgumentValueError(f"position is {position}.", advice="Positions count from 0.")
        self._drop_ahead()
        self._position = position

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on at the same place, on any number of ranks; the same on every rank."""
        return {
            "format": STATE_FORMAT,
            "position": self._position,
            "seed": self._seed,
            "images": len(self._source),
            "classes": self._source.classes,
            "balanced": self._balanced,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another loader stood. Batch size, number of ranks and augmentation may have changed.

        A changed set or way of sampling is reported and accepted: the position is kept, what follows is new.

        :raises StateError: the state is of another format, or of a run with another seed.
        """
        check_loader_state(state, self._seed)
        now = self.state_dict()
        changed = [name for name in ("images", "classes", "balanced") if state[name] != now[name]]
        if changed:
            _log.warning(
                "The training pictures have changed (%s). Training goes on at the same position, in a new order.",
                ", ".join(f"{name}: {state[name]} before, {now[name]} now" for name in changed),
            )
        self.seek(state["position"])

    # --- batches -----------------------------------------------------------------------------------------------------

    def next_batch(self) -> RecognitionBatch:
        """The next batch. An interrupt while waiting loses nothing: the next call gives the same batch.

        :raises DataSetError: more pictures than allowed cannot be used. The position stays.
        """
        if not self._opened:
            raise StateError("The loader is closed.", advice="Call open() first.")
        self._source.bad.check()
        try:
            batch = self._next()
        except Exception:
            self._drop_ahead()
            raise
        self._position = batch.position
        if self._ahead:
            self._ahead.popleft()
        return batch

    def _next(self) -> RecognitionBatch:
        """The batch at the present position, which stays first among those that are prepared ahead."""
        if self._pool is None:
            built = self._build(self._position)
        else:
            if self._ahead and self._ahead[0][0] != self._position:  # an interrupt came just as a batch was handed out
                self._drop_ahead()
            in_flight = worker_count(self._workers) * self._prefetch
            while len(self._ahead) < in_flight:
                start = self._position + len(self._ahead) * self.batch_size
                self._ahead.append((start, self._pool.submit(self._build, start)))
            built = self._ahead[0][1].result()
        # Counted here and not where they are met: how far the threads are ahead must not decide when a run ends.
        for index, error in built.bad.items():
            self._source.bad.add(index, error)
        if built.batch is None:
            raise DataSetError("None of the pictures of the set can be used.", advice="The warnings above say why.")
        return built.batch

    def _build(self, start: int) -> _Built:
        positions = rank_positions(start, self.batch_size, self._group.rank, self._group.size)
        chosen = self._order.indices(positions)
        draws = self._changes.draws(positions)
        size = self._image_size
        images = np.empty((len(positions), size, size, 3), dtype=np.uint8)
        labels = np.empty(len(positions), dtype=np.int64)
        bad: dict[int, DataSetError] = {}
        for row, index in enumerate(chosen):
            found = self._usable(int(index), bad)
            if found is None:
                return _Built(None, bad)
            images[row] = self._changes.apply(found[0], draws[row])
            labels[row] = found[1]
        position = start + self.batch_size
        batch = RecognitionBatch(
            torch.from_numpy(images).permute(0, 3, 1, 2),
            torch.from_numpy(labels),
            epoch=position // self.epoch_length,
            position=position,
        )
        return _Built(batch, bad)

    def _usable(self, index: int, bad: dict[int, DataSetError]) -> tuple[npt.NDArray[np.uint8], int] | None:
        """The picture ``index`` in the right size, or the next one of the set that can be used, with its label.

        None when there is none, or when ``bad``, which collects those that cannot be used, holds more than are allowed:
        a set on a disk that has gone is not read to its end.
        """
        known = self._source.bad
        count = len(self._source)
        for number in range(index, index + count):
            which = number % count
            if which in bad or which in known:
                continue
            try:
                image, label = self._source.read(which)
                return fit_to_square(image, self._image_size), label
            except ImageError as error:
                place = self._source.place(which)
                bad[which] = DataSetError(f"{place} cannot be used: {error}.", path=place)
            except DataSetError as error:
                bad[which] = error
            if len(bad) > known.limit:
                return None
        return None

    def _drop_ahead(self) -> None:
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()


def rank_positions(start: int, count: int, rank: int, size: int) -> npt.NDArray[np.int64]:
    """The positions that a rank takes from a batch: every ``size``-th, beginning with the ``rank``-th.

    :param start: position of the batch's first sample.
    :param count: samples of the batch over all ranks.
    :return: between ``count // size`` and one more, ascending.
    """
    return np.arange(start + rank, start + count, size, dtype=np.int64)
