"""Extensions that run on rank 0 alone, kept from waiting for the other ranks (RK-2)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from ostinato.dist import Group, RefusingGroup
from ostinato.errors import StateError
from ostinato.loop.notes import add_note

_ADVICE = "Register it with ranks='all', so that every rank takes part, or do without collectives."


@contextmanager
def refuse_collectives(trainer: Any, name: str) -> Generator[None]:
    """While an extension registered with ``ranks=0`` runs: ``trainer.group`` refuses collectives, and those that it
    begins with torch.distributed itself are an error afterwards, before they can meet one of another kind.

    :raises StateError: naming the extension.
    """
    group: Group = trainer.group
    who = f"Extension {name!r} is registered with ranks=0, so only rank 0 runs it"
    begun = group.collectives_begun()
    trainer.group = RefusingGroup(group, who, _ADVICE)
    try:
        yield
    except BaseException as error:
        if group.collectives_begun() != begun:
            add_note(error, f"{who}, and it has begun a collective of torch.distributed. {_ADVICE}")
        raise
    finally:
        trainer.group = group
    if group.collectives_begun() != begun:
        raise StateError(
            f"{who}, and it has used a collective of torch.distributed, which waits for all ranks. A forward pass of a "
            "model wrapped in DistributedDataParallel is one too.",
            advice=f"{_ADVICE} The unwrapped model is in .module.",
            extension=name,
        )
