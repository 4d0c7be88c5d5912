"""Turning an out-of-memory error of a recognition training into advice, cheapest remedy first."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ostinato.config import RecognitionOptions
from ostinato.dist import Group
from ostinato.errors import OutOfMemoryError
from ostinato.loop.out_of_memory import out_of_memory, translated_out_of_memory


def memory_advice(options: RecognitionOptions, classes: int, group: Group) -> AbstractContextManager[None]:
    """Translate running out of memory inside the block into :class:`~ostinato.errors.OutOfMemoryError` with advice."""
    return translated_out_of_memory(lambda: _error(options, classes, group))


def _error(options: RecognitionOptions, classes: int, group: Group) -> OutOfMemoryError:
    own = -(-options.batch_size // group.size)
    return out_of_memory(
        f"There is not enough memory on rank {group.rank} for an update of {options.model.backbone} with {own:,} "
        f"images and {-(-classes // group.size):,} classes.",
        _remedies(options, classes),
        rank=group.rank,
        batch_size=options.batch_size,
        classes=classes,
    )


def _remedies(options: RecognitionOptions, classes: int) -> list[str]:
    remedies = ["close other programs that use this device"]
    batch, accumulation = options.batch_size, options.optimizer.accumulation
    if batch > 3:
        remedies.append(
            f"use a smaller batch and collect more of them, for the same update: -b {batch // 2} --set "
            f"optimizer.accumulation={2 * accumulation}"
        )
    if options.model.mixed_precision == "no":
        remedies.append("compute in half precision, on a graphics card: --set model.mixed_precision=bf16")
    if not options.model.checkpointing:
        remedies.append("keep less of the network in between: --set model.checkpointing=true")
    if options.head.sampling_rate > 0.1 and classes > 10_000:
        remedies.append("let fewer classes take part in an update: --set head.sampling_rate=0.1")
    remedies.append("train with more processes: classes and images are cut over them")
    return remedies
