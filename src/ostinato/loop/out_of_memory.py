"""Telling that memory ran out from what is raised then, and saying what helps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ostinato.errors import OutOfMemoryError


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that a device or the host has no memory left."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    # The CPU allocator of torch raises a plain RuntimeError; its text is the only mark it has.
    text = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "not enough memory" in text)


def out_of_memory(what: str, remedies: Sequence[str], **fields: Any) -> OutOfMemoryError:
    """The error that says what there was no memory for, and lists what helps.

    :param what: a sentence.
    :param remedies: cheapest first.
    :param fields: of the error.
    """
    listed = "\n".join(f"  {number}. {remedy}" for number, remedy in enumerate(remedies, start=1))
    return OutOfMemoryError(
        what,
        advice=f"Cheapest first:\n{listed}\nThe run folder is whole; the same command with the change continues it.",
        **fields,
    )


@contextmanager
def translated_out_of_memory(advice: Callable[[], OutOfMemoryError]) -> Generator[None]:
    """Raise this error instead of a foreign one when memory runs out inside the block; the foreign one is its cause."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, OutOfMemoryError) or not is_out_of_memory(error):
            raise
        raise advice() from error
