"""Turning a device's out-of-memory error into advice, cheapest remedy first."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from ostinato.errors import OutOfMemoryError


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that a device or the host has no memory left."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    # The CPU allocator of torch raises a plain RuntimeError; its text is the only mark it has.
    text = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "not enough memory" in text)


@contextmanager
def memory_advice(model: str, batch_size: int, mixed_precision: bool) -> Generator[None]:
    """Translate running out of memory inside the block into :class:`~ostinato.errors.OutOfMemoryError` with advice."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if isinstance(error, OutOfMemoryError) or not is_out_of_memory(error):
            raise
        remedies = ["close other programs that use this device"]
        if batch_size > 1:
            remedies.append(f"use a smaller batch: -b {max(1, batch_size // 2)} instead of -b {batch_size}")
        if not mixed_precision:
            remedies.append("compute in half precision: --set network.mixed_precision=true")
        if model == "original":
            remedies.append("for a new run, take a smaller model: -t lightweight, or --set model.lowmem=true")
        listed = "\n".join(f"  {number}. {remedy}" for number, remedy in enumerate(remedies, start=1))
        raise OutOfMemoryError(
            f"There is not enough memory for a training step of {model} with {batch_size} faces of each side.",
            advice=(
                f"Cheapest first:\n{listed}\nThe run folder is whole; the same command with the change continues it."
            ),
            model=model,
            batch_size=batch_size,
        ) from error
