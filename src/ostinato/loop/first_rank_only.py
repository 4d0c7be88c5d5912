"""Extensions that run on rank 0 alone, kept from waiting for the other ranks (RK-2)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ostinato.dist import RefusingGroup
from ostinato.errors import StateError

_ADVICE = "Register it with ranks='all', so that every rank takes part, or do without collectives."


@contextmanager
def refuse_collectives(trainer: Any, name: str) -> Generator[None]:
    """While an extension registered with ``ranks=0`` runs, collectives are errors that name it: those of
    ``trainer.group``, and those of torch.distributed, be they called or hidden in the forward pass of a wrapped model.

    Without this the first one would wait for ranks that do not come, or take what they meant for each other.

    :raises StateError: inside, at the collective.
    """
    who = f"Extension {name!r} is registered with ranks=0, so only rank 0 runs it"
    group = trainer.group
    trainer.group = RefusingGroup(group, who, _ADVICE)
    try:
        with _compiling_nothing(), _RefusingTorch(who):
            yield
    finally:
        trainer.group = group


class _RefusingTorch(TorchDispatchMode):
    """Looks at every operation of torch in this thread, and lets none pass that talks with other ranks.

    This costs about 10 µs an operation, in extensions that write and plot.
    """

    def __init__(self, who: str) -> None:
        super().__init__()
        self._who = who

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "c10d" in func.namespace:
            operation = func.__name__.split(".")[0].strip("_")
            raise StateError(
                f"{self._who}, and {operation} of torch.distributed waits for all ranks. The forward pass of a model "
                "wrapped in DistributedDataParallel begins with one.",
                advice=f"{_ADVICE} The model without its wrapper is in .module.",
                collective=operation,
            )
        return func(*args, **(kwargs or {}))


def _compiling_nothing() -> contextlib.AbstractContextManager[Any]:
    """Under a dispatch mode torch.compile gives a function up for good; here it only has to wait."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and importing it takes seconds
        return contextlib.nullcontext()
    return torch.compiler.set_stance("force_eager")
