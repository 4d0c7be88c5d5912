"""What an updater is given, looked at at once: a later error would name neither the argument nor a way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ostinato.errors import ArgumentTypeError, ArgumentValueError

Schedule = tuple[Any, str]
"""A learning-rate schedule and its unit."""

_ORDER = "An updater takes the model, the optimizer and the loader, in this order; several by name in a mapping."


def checked_models(given: Any) -> dict[str, Any]:
    """Models by name; one alone is ``main``.

    :raises ArgumentTypeError: for what trains and saves nothing.
    """
    # nn.ModuleDict is no Mapping and stays one module.
    return _with_methods(given, "model", ("train", "state_dict", "load_state_dict"), "no torch.nn.Module")


def checked_optimizers(given: Any, models: Mapping[str, Any]) -> dict[str, Any]:
    """Optimizers by name; one alone is ``main``. Where something else is given that offers one
    (:class:`~ostinato.loop.protocols.OffersOptimizer`), what it offers for these models.

    :raises ArgumentTypeError: for what is none.
    """
    offered = {
        name: value.as_optimizer(list(models.values())) if callable(getattr(value, "as_optimizer", None)) else value
        for name, value in _by_name(given).items()
    }
    return _with_methods(offered, "optimizer", ("step", "zero_grad", "state_dict", "load_state_dict"), "no optimizer")


def _with_methods(given: Any, what: str, methods: Sequence[str], none: str) -> dict[str, Any]:
    found = _by_name(given)
    for name, value in found.items():
        missing = [method for method in methods if not callable(getattr(value, method, None))]
        if missing:
            raise ArgumentTypeError(
                f"The {what} {name!r} is {_short(value)}, which has no {missing[0]}() and so is {none}.",
                advice=_ORDER,
                name=name,
                value=value,
            )
    return found


def check_loader(given: Any) -> None:
    """Make sure that batches can be read from it.

    :raises ArgumentTypeError: otherwise.
    """
    if not hasattr(given, "__iter__") and not hasattr(given, "__getitem__"):
        raise ArgumentTypeError(
            f"The loader is {_short(given)}, and nothing can be read from it.", advice=_ORDER, value=given
        )


def check_functions(given: Any, what: str) -> Any:
    """A function, several by name, or ``None``; as it was given.

    :raises ArgumentTypeError: for anything else.
    """
    functions = given.values() if isinstance(given, Mapping) else [given]
    if given is not None and not all(callable(function) for function in functions):
        raise ArgumentTypeError(f"{what} must be a function, not {_short(given)}.", value=given)
    return given


def check_scaler(given: Any) -> Any:
    """What scales losses, or ``None``; as it was given.

    :raises ArgumentTypeError: for anything else.
    """
    if given is not None and not callable(getattr(given, "scale", None)):
        raise ArgumentTypeError(
            f"The scaler is {_short(given)}, which scales nothing.",
            advice="Give a torch.amp.GradScaler, or leave it out.",
            value=given,
        )
    return given


def checked_device(given: Any) -> torch.device | None:
    """The device, if one is named.

    :raises ArgumentValueError: for one that there is not.
    """
    if given is None:
        return None
    try:
        return torch.device(given)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ArgumentValueError(
            f"There is no device {given!r}.", advice="Write 'cpu', 'cuda' or 'cuda:0', or leave it out.", value=given
        ) from error


def checked_schedules(given: Any, units: Sequence[str]) -> dict[str, Schedule]:
    """Schedules by name, each with its unit; one pair alone is ``main``.

    :raises ArgumentTypeError: for what is no pair of a schedule and a unit.
    :raises ArgumentValueError: for another unit.
    """
    found = {} if given is None else _by_name(given)
    for name, pair in found.items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ArgumentTypeError(
                f"The schedule {name!r} is {_short(pair)}, not a schedule with its unit.",
                advice=f"Write (schedule, {units[0]!r}); the units are {', '.join(units)}.",
                name=name,
                value=pair,
            )
        if pair[1] not in units:
            raise ArgumentValueError(
                f"The schedule {name!r} has the unit {pair[1]!r}.",
                advice=f"Use one of {', '.join(units)}.",
                value=pair[1],
            )
    return found


def _by_name(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {"main": value}


def _short(value: Any) -> str:
    """A value for a message: optimizers and modules show themselves over many lines."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__qualname__}"
