"""Reads batches from a loader, pass after pass, and finds its place again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader

from ostinato.loop.loaders import (
    can_choose_batches,
    loader_batch_size,
    loader_generators,
    loader_parts,
    no_batch_error,
    with_batch_sampler,
)
from ostinato.loop.random_state import capture_random_state, restore_random_state

_log = logging.getLogger(__name__)

_END = object()


class BatchReader:
    """The batches of a loader, one after another, over any number of passes.

    A loader with a length is read exactly so far. One without is read one batch ahead, so that the end of a pass is
    known at its last batch. A loader that ends before its length is taken for one without, with a warning (UP-4).

    Before every pass, the first included, ``set_epoch`` is called on whichever of the loader, its batch sampler and its
    sampler has it, with the number of completed passes (UP-6). Nothing is read or made before the first batch is asked
    for.

    :param loader: any iterable that can be walked again and again.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self._iterator: Iterator[Any] | None = None
        self._ahead: Any = _END  # the batch read ahead, of a loader without length
        self._loader_before_ahead: Any = None  # the loader's own state before that was read
        self._unsized = False  # found out: the loader says a length and ends before it
        self._random_at_pass_start: dict[str, Any] | None = None
        self._resume: Mapping[str, Any] | None = None

    @property
    def length(self) -> int | None:
        """Batches of one pass; ``None`` when that is unknown."""
        if self._unsized:
            return None
        try:
            return len(self.loader)
        except (TypeError, NotImplementedError):  # what objects without length, and DataLoader over a stream, raise
            return None

    @property
    def batch_size(self) -> int | None:
        """What the loader says about the size of a batch; ``None`` when it says nothing."""
        return loader_batch_size(self.loader)

    def read(self, epoch: int, position: int, end_early: Callable[[], None]) -> Any:
        """The next batch.

        :param epoch: completed passes.
        :param position: batches of this pass that were consumed.
        :param end_early: called when a loader with a length has ended before it: the pass is over.
        :raises StateError: when a pass yields no batch at all.
        """
        if self._iterator is None:
            self._start_pass(epoch, position)
        batch = self._next()
        if batch is _END:
            if position > 0:
                self._unsized = True
                _log.warning(
                    "%s says that it has %s batches and ended after %d; from now on it counts as one without length.",
                    type(self.loader).__name__,
                    len(self.loader),
                    position,
                )
                end_early()
                epoch += 1
            self._start_pass(epoch, 0)
            batch = self._next()
            if batch is _END:
                raise no_batch_error(self.loader)
        return batch

    def pass_is_complete(self, position: int) -> bool:
        """Whether the pass is over after ``position`` of its batches; if so the next :meth:`read` starts a new one."""
        length = self.length
        complete = self._ahead is _END if length is None else position >= length
        if complete:
            self._iterator, self._ahead = None, _END
        return complete

    def state_dict(self) -> dict[str, Any]:
        """What the place in the data needs beside the counters: random states now and at the start of the pass, the
        loader's own state if it has one, and whether its length was found to be wrong."""
        if self._resume is not None:  # nothing was read since this state was loaded
            return {name: self._resume[name] for name in ("loader", "random", "unsized")}
        return {
            "unsized": self._unsized,
            "loader": self._loader_state() if self._ahead is _END else self._loader_before_ahead,
            "random": {"now": self._random_state(), "pass_start": self._random_at_pass_start},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a place in the data. The place itself is found at the next :meth:`read`."""
        self._resume = state
        self._unsized = bool(state["unsized"])
        self._iterator, self._ahead = None, _END

    def _start_pass(self, epoch: int, position: int) -> None:
        saved, self._resume = self._resume, None
        random = saved["random"] if saved is not None else None
        if random is not None:
            # An order drawn from the global generator comes out the same only from the state it was drawn from (UP-5).
            within_pass = position > 0 and random["pass_start"] is not None
            self._set_random_state(random["pass_start"] if within_pass else random["now"])
        self._set_epoch(epoch)
        self._random_at_pass_start = self._random_state()
        self._iterator = self._iterator_at(position, None if saved is None else saved["loader"])
        if self.length is None:
            self._read_ahead()
        if random is not None and position > 0:
            self._set_random_state(random["now"])

    def _iterator_at(self, position: int, loader_state: Any) -> Iterator[Any]:
        """An iterator of the loader that has passed the first ``position`` batches."""
        load = getattr(self.loader, "load_state_dict", None)
        if loader_state is not None and callable(load):
            load(loader_state)
            return iter(self.loader)
        if position == 0:
            return iter(self.loader)
        if can_choose_batches(self.loader):
            return _iterator_without_first_batches(self.loader, position)
        _log.warning("reading and dropping %d batches to find the place in the data again", position)
        iterator = iter(self.loader)
        for _ in range(position):
            if next(iterator, _END) is _END:
                break
        return iterator

    def _next(self) -> Any:
        assert self._iterator is not None
        if self.length is not None:
            return next(self._iterator, _END)
        batch = self._ahead
        if batch is not _END:
            self._read_ahead()
        return batch

    def _read_ahead(self) -> None:
        assert self._iterator is not None
        self._loader_before_ahead = self._loader_state()
        self._ahead = next(self._iterator, _END)

    def _loader_state(self) -> Any:
        save = getattr(self.loader, "state_dict", None)
        return save() if callable(save) else None

    def _random_state(self) -> dict[str, Any]:
        """The states of the generators of this process, and of those that the loader owns."""
        return {**capture_random_state(), "loader": [own.get_state() for own in loader_generators(self.loader)]}

    def _set_random_state(self, state: Mapping[str, Any]) -> None:
        restore_random_state(state)
        for own, saved in zip(loader_generators(self.loader), state.get("loader", ()), strict=False):
            own.set_state(saved.clone())  # torch wants it in memory of its own

    def _set_epoch(self, epoch: int) -> None:
        for part in loader_parts(self.loader):
            set_epoch = getattr(part, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)


class _WithoutFirst:
    """A batch sampler that leaves out the first batches; the lists of indices are drawn, no data is read."""

    def __init__(self, batch_sampler: Any, number: int) -> None:
        self._batch_sampler = batch_sampler
        self._number = number
        self.iterator: _Skipping | None = None
        """The iterator made last."""

    def __iter__(self) -> _Skipping:
        self.iterator = _Skipping(iter(self._batch_sampler), self._number)
        return self.iterator

    def __len__(self) -> int:
        return max(0, len(self._batch_sampler) - self._number)


class _Skipping:
    """An iterator that skips when it is told to, at the latest when it is first asked."""

    def __init__(self, iterator: Iterator[Any], number: int) -> None:
        self._iterator = iterator
        self._left = number

    def skip(self) -> None:
        for _ in range(self._left):
            next(self._iterator, None)
        self._left = 0

    def __iter__(self) -> _Skipping:
        return self

    def __next__(self) -> Any:
        self.skip()
        return next(self._iterator)


def _iterator_without_first_batches(loader: DataLoader[Any], number: int) -> Iterator[Any]:
    batch_sampler = _WithoutFirst(loader.batch_sampler, number)
    iterator = iter(with_batch_sampler(loader, batch_sampler))
    # A sampler draws its seed when it is first asked, which has to happen before the random states are set to the
    # present; and the loader draws one of its own before that, so the sampler cannot be asked earlier than here.
    if batch_sampler.iterator is not None:
        batch_sampler.iterator.skip()
    return iterator
