"""What the parts of the loop see of each other.

Triggers and extensions are written against these protocols and not against the classes, so none of them imports the
trainer, and a test can hand them a stand-in of a few lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from ostinato.dist import Group
from ostinato.loop.updater_state import UpdaterState

Status = Literal["created", "running", "finished", "stopped", "failed"]


class Updater(Protocol):
    """What one update does. These four members are all that the trainer requires (UP-12).

    Optional members, used where they exist: ``initialize(trainer)`` before any extension is initialized;
    ``finalize()`` as the very last call of a run; ``updates_per_epoch``, ``batch_read_time``, ``batch_time`` (seconds)
    and ``last_files`` for extensions that report them.
    """

    state: UpdaterState

    def update(self) -> None:
        """Read one batch, do one parameter update, then count it in ``state``."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes the next update: a tree of dict, list, JSON values, tensors and arrays."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a tree that :meth:`state_dict` has returned."""
        ...


class StepsParameters(Protocol):
    """What an updater asks of an optimizer. Those of ``torch.optim`` have it."""

    param_groups: Any

    def step(self) -> Any:
        """Update the parameters by their gradients."""
        ...

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything but the parameters that the next step depends on."""
        ...

    def load_state_dict(self, state_dict: Any, /) -> None:
        """Continue from a tree that :meth:`state_dict` has returned."""
        ...


class OffersOptimizer(Protocol):
    """Something that updates parameters in another way, and offers an optimizer that stands for it in the loop: an
    :class:`ostinato.kvstore.ParameterTrainer` is one."""

    def as_optimizer(self, models: Sequence[Any]) -> StepsParameters:
        """What an updater of these models steps in its place."""
        ...


WrapCall = Callable[[str | None, Callable[..., Any]], Callable[..., Any]]
"""Given the name of an extension, or ``None`` for the update, and what the loop would call: what it calls instead."""


class TrainerView(Protocol):
    """The trainer as triggers and extensions see it."""

    updater: Updater
    out: Path
    observation: dict[str, Any]
    group: Group

    @property
    def status(self) -> Status:
        """``created``, ``running``, ``finished``, ``stopped`` or ``failed``."""
        ...

    @property
    def elapsed_time(self) -> float:
        """Seconds of training, all processes of this run together."""
        ...

    @property
    def max_iteration(self) -> int | None:
        """The iteration at which the run will end, where that can be known."""
        ...

    @property
    def stop_reason(self) -> str | None:
        """Why a stop was requested; ``None`` while it was not."""
        ...

    def wrap_calls(self, wrap: WrapCall) -> None:
        """Let something else be called in place of the update and of every extension."""
        ...

    def request_stop(self, reason: str = "request") -> None:
        """End the run after the current iteration."""
        ...


TriggerFunction = Callable[[Any], bool]
"""Anything that answers "now?" when it is called with the trainer."""

ExtensionFunction = Callable[[Any], Any]
"""Anything that can be called with the trainer."""
