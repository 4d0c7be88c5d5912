"""What a set of labelled pictures has to offer to be trained on, and how damaged ones are skipped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ostinato.errors import ArgumentValueError, DataSetError

_log = logging.getLogger(__name__)

DEFAULT_MAX_BAD = 100
"""Damaged pictures that are skipped before training on a set is refused."""

_NAMED = 5  # how many of them an error names


class BadImages:
    """The pictures of a set that cannot be used: each is reported once, and too many are an error.

    Safe to use from several threads. Every rank counts what it meets itself.

    :param limit: how many are skipped; 0 refuses the first.
    """

    def __init__(self, limit: int = DEFAULT_MAX_BAD) -> None:
        if limit < 0:
            raise ArgumentValueError(f"max_bad_records is {limit}.", advice="Use 0 or more.")
        self.limit = limit
        self._lock = threading.Lock()
        self._errors: dict[Hashable, DataSetError] = {}

    def __len__(self) -> int:
        return len(self._errors)

    @property
    def errors(self) -> list[DataSetError]:
        """What was wrong with each, in the order in which they were met."""
        with self._lock:
            return list(self._errors.values())

    def __contains__(self, which: Hashable) -> bool:
        return which in self._errors

    def add(self, which: Hashable, error: DataSetError) -> None:
        """Note that a picture is skipped, with a warning the first time.

        :param which: what tells it from the others of its set.
        :raises DataSetError: it is one too many. Fields: ``path``, ``errors``.
        """
        with self._lock:
            if which in self._errors:
                return
            self._errors[which] = error
        self.check()
        _log.warning("Skipped: %s", error.what)

    def check(self) -> None:
        """Make sure that not too many are skipped.

        :raises DataSetError: there are. Fields: ``path``, ``errors``.
        """
        errors = self.errors
        if len(errors) <= self.limit:
            return
        first = errors[:_NAMED]
        named = "\n".join(f"  {bad.what}" for bad in first)
        more = f"\n  and {len(errors) - len(first)} more" if len(errors) > len(first) else ""
        raise DataSetError(
            f"{len(errors)} pictures cannot be used, and at most {self.limit} are skipped:\n{named}{more}",
            advice="Mend or replace the set, or allow more with max_bad_records. 'ostinato recognition inspect' "
            "lists what is wrong.",
            path=first[0].fields.get("path"),
            errors=first,
        ) from errors[-1]


class Source(Protocol):
    """Labelled pictures by number. ``read`` may be called from several threads at once."""

    labels: npt.NDArray[np.int64]
    """(n,) the class of every picture, 0 or more."""
    classes: int
    """How many classes there are: at least the largest label + 1."""
    bad: BadImages
    """What is skipped, when it was opened and since."""

    def __len__(self) -> int:
        """The number of pictures."""
        ...

    def read(self, index: int) -> tuple[npt.NDArray[np.uint8], int]:
        """Decode a picture.

        :return: (H, W, 3) uint8 RGB, and its label.
        :raises DataSetError: it cannot be used; names the file and, in a record file, the key and the byte offset.
        """
        ...

    def place(self, index: int) -> str:
        """Where a picture comes from, for messages: a file, or a file with key and offset."""
        ...

    def close(self) -> None:
        """Let go of open files. May be called more than once."""
        ...
