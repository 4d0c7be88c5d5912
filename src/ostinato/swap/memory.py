"""Turning an out-of-memory error of a swap training into advice, cheapest remedy first."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ostinato.errors import OutOfMemoryError
from ostinato.loop.out_of_memory import out_of_memory, translated_out_of_memory


def memory_advice(model: str, batch_size: int, mixed_precision: bool) -> AbstractContextManager[None]:
    """Translate running out of memory inside the block into :class:`~ostinato.errors.OutOfMemoryError` with advice."""
    return translated_out_of_memory(lambda: _error(model, batch_size, mixed_precision))


def _error(model: str, batch_size: int, mixed_precision: bool) -> OutOfMemoryError:
    remedies = ["close other programs that use this device"]
    if batch_size > 1:
        remedies.append(f"use a smaller batch: -b {max(1, batch_size // 2)} instead of -b {batch_size}")
    if not mixed_precision:
        remedies.append("compute in half precision: --set network.mixed_precision=true")
    if model == "original":
        remedies.append("for a new run, take a smaller model: -t lightweight, or --set model.lowmem=true")
    return out_of_memory(
        f"There is not enough memory for a training step of {model} with {batch_size} faces of each side.",
        remedies,
        model=model,
        batch_size=batch_size,
    )
