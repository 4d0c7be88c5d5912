"""What a :class:`~ostinato.loop.parts_updater.PartsUpdater` trains, declared as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor
from torch.nn import Parameter

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.loop.triggers.time_text import parse_time
from ostinato.loop.updater_state import UpdaterState

if TYPE_CHECKING:
    from ostinato.loop.turn import Turn

Threshold = int | tuple[int, str] | str
"""A number of completed iterations, or a pair or text such as ``(30, "epoch")`` or ``"30ep"``."""

LossFunction = Callable[[Any, "Turn"], "Tensor | Mapping[str, Tensor]"]
"""From a batch and the turn to a loss, or to losses by name."""


class Clipper(Protocol):
    """Limits gradients; :class:`ostinato.optim.GradientClipper` is one."""

    def clip(self, parameters: Iterable[Parameter]) -> Tensor | None:
        """Limit the gradients in place; returns their norm before that, where it is known."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What the next limit depends on."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        ...


@dataclass(frozen=True)
class Part:
    """One thing that an update trains: a loss, and the optimizers that make it smaller.

    ::

        Part("discriminator", discriminator_loss, start=100_000)

    :param name: its name; reports carry it: ``discriminator/loss``.
    :param loss: called with the batch and the :class:`~ostinato.loop.turn.Turn`.
    :param optimizers: the optimizers it steps, by name; by default the one that has the name of the part. Only their
        parameters get gradients from the loss.
    :param start: trained from here on. ``start=n``: update n + 1 is the first one. ``(30, "epoch")`` or ``"30ep"``:
        from the first update after 30 completed passes on.
    :param stop: trained up to here. ``stop=n``: update n is the last one. From then on the parameters are frozen that
        no other part goes on to train.
    :param every: trained in the first update after ``start`` and then in each ``every``-th.
    :param repeat: how often in one update.
    :param clip: the largest norm that all its gradients together may have, or a clipper.
    :param report_norm: report ``<name>/grad_norm``, the norm of all its gradients before clipping.
    """

    name: str
    loss: LossFunction
    optimizers: str | Sequence[str] | None = None
    _: KW_ONLY
    start: Threshold = 0
    stop: Threshold | None = None
    every: int = 1
    repeat: int = 1
    clip: float | Clipper | None = None
    report_norm: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ArgumentTypeError(f"The name of a part must be a text that is not empty, not {self.name!r}.")
        if not callable(self.loss):
            raise ArgumentTypeError(
                f"The loss of the part {self.name!r} cannot be called: {self.loss!r}.",
                advice="Give a function of the batch and the turn.",
                name=self.name,
                value=self.loss,
            )
        for what, least in (("every", 1), ("repeat", 1)):
            _check_whole(getattr(self, what), what, self.name, least)
        start, start_unit = _threshold(self.start, "start", self.name, 0)
        object.__setattr__(self, "start", (start, start_unit))
        if self.stop is not None:
            stop, stop_unit = _threshold(self.stop, "stop", self.name, 1)
            object.__setattr__(self, "stop", (stop, stop_unit))
            if start_unit == stop_unit and stop <= start:
                raise ArgumentValueError(
                    f"The part {self.name!r} stops at {stop} and starts at {start}, so it would never be trained.",
                    advice="Make stop larger than start, or leave the part out.",
                    name=self.name,
                )
        if not _is_limit(self.clip):
            raise ArgumentTypeError(
                f"The part {self.name!r} limits its gradients with {self.clip!r}.",
                advice="Give the largest norm, a number above 0, or a clipper such as ostinato.optim.GradientClipper.",
                name=self.name,
                value=self.clip,
            )
        if isinstance(self.clip, int | float) and not self.clip > 0:
            raise ArgumentValueError(
                f"The part {self.name!r} limits its gradients to {self.clip!r}.",
                advice="Give a norm above 0, or leave clip out.",
                name=self.name,
            )

    @property
    def optimizer_names(self) -> tuple[str, ...]:
        """The optimizers it steps."""
        if self.optimizers is None:
            return (self.name,)
        return (self.optimizers,) if isinstance(self.optimizers, str) else tuple(self.optimizers)

    def is_finished(self, state: UpdaterState) -> bool:
        """Whether it will not be trained any more."""
        return self.stop is not None and _is_reached(self.stop, state)

    def is_active(self, state: UpdaterState) -> bool:
        """Whether the next update lies between its start and its stop."""
        return _is_reached(self.start, state) and not self.is_finished(state)


def _is_reached(threshold: Any, state: UpdaterState) -> bool:
    number, unit = threshold
    return (state.epoch if unit == "epoch" else state.iteration) >= number


def _threshold(value: Any, what: str, name: str, least: int) -> tuple[int, str]:
    number, unit = (value, "iteration") if isinstance(value, int) else value if _is_pair(value) else (None, "iteration")
    if isinstance(value, str):
        number, unit = parse_time(value)
        number = int(number) if number.denominator == 1 else number
    if unit not in ("iteration", "epoch"):
        raise ArgumentValueError(
            f"The {what} of the part {name!r} has the unit {unit!r}.", advice="Use 'iteration' or 'epoch'.", value=unit
        )
    if number is None:
        raise ArgumentTypeError(
            f"The {what} of the part {name!r} is {value!r}.",
            advice="Give a number of iterations, or a text such as '30ep'.",
            value=value,
        )
    _check_whole(number, what, name, least, shown=value)
    return int(number), unit


def _is_limit(value: Any) -> bool:
    if value is None or callable(getattr(value, "clip", None)):
        return True
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


def _check_whole(value: Any, what: str, name: str, least: int, shown: Any = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        given = value if shown is None else shown
        raise ArgumentTypeError(f"The {what} of the part {name!r} must be a whole number, not {given!r}.", value=given)
    if value < least:
        raise ArgumentValueError(f"The {what} of the part {name!r} is {value}; the least is {least}.", value=value)
