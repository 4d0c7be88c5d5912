"""More classes for a head that is trained already."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from ostinato.dist import Group
from ostinato.recognition.class_centres import ClassCentres
from ostinato.recognition.class_partition import class_range

_CLASSES_AT_ONCE = 2**14


def grown(centres: ClassCentres, old_classes: int, new_classes: int, group: Group) -> ClassCentres:
    """The centres of a rank after classes were added behind the last one. A collective.

    Rows of classes that were there before are the same to the bit, with all that the update rule remembers of them, on
    whichever rank they are now. New rows are what they would have been from the start. Needs memory for the old and the
    new tables at once.

    :param centres: up to date.
    :param old_classes: of the whole run, and ``new_classes`` at least as many.
    """
    first, last = class_range(new_classes, group.rank, group.size)
    result = ClassCentres(
        first,
        last,
        centres.embedding_size,
        centres.rule,
        sub_centres=centres.sub_centres,
        seed=centres.seed,
        device=centres.weight.device,
        dtype=centres.weight.dtype,
    )
    old = centres.to_overwrite()
    for name, table in result.to_overwrite(first_unset=old_classes).items():
        rows = centres.sub_centres if table.ndim == 2 else 1
        for source, target, start, end in _moves(old_classes, new_classes, group.size):
            taken = slice((start - centres.first_class) * rows, (end - centres.first_class) * rows)
            put = slice((start - first) * rows, (end - first) * rows)
            if group.rank == source == target:
                table[put] = old[name][taken]
            elif group.rank == source:
                dist.send(old[name][taken].contiguous(), target)
            elif group.rank == target:
                _receive(table[put], source)
    return result


def _receive(rows: Tensor, source: int) -> None:
    received = torch.empty_like(rows, memory_format=torch.contiguous_format)
    dist.recv(received, source)
    rows.copy_(received)


def _moves(old_classes: int, new_classes: int, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Which rank's classes go to which rank: source, target, first class, and one past the last.

    Every rank goes through them in the same order, so no two wait for each other in a ring.
    """
    for source in range(size):
        old_first, old_last = class_range(old_classes, source, size)
        for target in range(size):
            new_first, new_last = class_range(new_classes, target, size)
            first, last = max(old_first, new_first), min(old_last, new_last)
            for start in range(first, last, _CLASSES_AT_ONCE):
                yield source, target, start, min(start + _CLASSES_AT_ONCE, last)
