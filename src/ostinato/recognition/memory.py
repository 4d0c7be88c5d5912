"""Turning an out-of-memory error of a recognition training into advice, cheapest remedy first."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from ostinato.config import RecognitionOptions
from ostinato.dist import Group
from ostinato.errors import OutOfMemoryError
from ostinato.loop.out_of_memory import is_out_of_memory


@contextmanager
def memory_advice(options: RecognitionOptions, classes: int, group: Group) -> Generator[None]:
    """Translate running out of memory inside the block into :class:`~ostinato.errors.OutOfMemoryError` with advice."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, OutOfMemoryError) or not is_out_of_memory(error):
            raise
        listed = "\n".join(f"  {number}. {remedy}" for number, remedy in enumerate(_remedies(options, classes), 1))
        own = -(-options.batch_size // group.size)
        raise OutOfMemoryError(
            f"There is not enough memory on rank {group.rank} for an update of {options.model.backbone} with {own:,} "
            f"images and {-(-classes // group.size):,} classes.",
            advice=(
                f"Cheapest first:\n{listed}\nThe run folder is whole; the same command with the change continues it."
            ),
            rank=group.rank,
            batch_size=options.batch_size,
            classes=classes,
        ) from error


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
