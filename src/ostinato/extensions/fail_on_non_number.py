"""Stops a run when a loss, a gradient or a parameter is no longer a finite number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ostinato.errors import ArgumentTypeError, ArgumentValueError, NonFiniteError, NonFiniteLossError
from ostinato.extensions.models_by_name import find_models, parameters_by_name
from ostinato.extensions.non_number_guard import NonNumberGuard
from ostinato.extensions.pending_losses import NotedLosses, PendingLosses
from ostinato.loop import PRIORITY_WRITER, TrainerView, read_scalars

KINDS = ("loss", "grad", "param")

_SHOWN = 8  # names in the message; all of them are in the fields
_ADVICE = (
    "Nothing of this was saved. Start the same command again to go on from the newest saved state; if it happens "
    "again, lower the learning rate, switch gradient clipping on, or train without mixed precision."
)


class FailOnNonNumber(NonNumberGuard):
    """Raises an error that names what is not finite, where, and in which iteration, before it can be saved.

    It looks when ``check_trigger`` fires, and always when the state of the run is about to be saved, whoever saves.
    Losses are noted in every iteration, so the iteration is the right one however seldom it looks; gradients and
    parameters are looked at in the iteration of the check. On an accelerator a check makes the processor wait; a seldom
    one spares it. Where a loss scaler is at work gradients are its business: it skips the update when they overflow.

    For a recipe that wants to say more about its losses there is ``NanGuard``.

    :param what: any of ``loss``, ``grad`` and ``param``.
    :param check_trigger: when it looks.
    :param losses: the observed losses; ``None``: those that the update reports as ``main`` or under a name that
        contains ``loss``.
    :param models: a module, or modules by name; ``None``: those of the updater.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: for another kind, or none at all.
    """

    priority = PRIORITY_WRITER + 50  # before an evaluator: here are the losses of the update alone
    name = "fail_on_non_number"

    def __init__(
        self,
        what: str | Iterable[str] = KINDS,
        *,
        check_trigger: Any = (1, "iteration"),
        losses: Iterable[str] | None = None,
        models: nn.Module | Mapping[str, nn.Module] | None = None,
    ) -> None:
        super().__init__(check_trigger)
        self.what = _checked_kinds(what)
        self._losses = None if losses is None else frozenset([losses] if isinstance(losses, str) else losses)
        self._wanted_models = models
        self._models: dict[str, nn.Module] = {}
        self._updater: Any = None
        self._pending = PendingLosses()

    def initialize(self, trainer: TrainerView) -> None:
        """Find the models.

        :raises StateError: when gradients or parameters are to be looked at and the updater has no models.
        """
        super().initialize(trainer)
        self._updater = trainer.updater
        if "grad" in self.what or "param" in self.what:
            self._models = find_models(trainer, self._wanted_models, "FailOnNonNumber")

    def note(self, trainer: TrainerView) -> bool:
        """Keep the losses of this iteration."""
        if "loss" in self.what:
            losses = {name: value for name, value in trainer.observation.items() if self._is_watched(name)}
            if losses:
                self._pending.note(NotedLosses(trainer.updater.state.iteration, losses))
        return self._pending.is_full

    def find(self) -> NonFiniteError | None:
        """Look at everything now; the error about what is not finite, if there is something."""
        noted = self._pending.take_first_not_finite()
        if noted is not None:
            return self._describe_loss(noted)
        if "grad" in self.what and not _scales_losses(self._updater):
            wrong = _not_finite(parameters_by_name(self._models), gradients=True)
            if wrong:
                return self._describe("grad", "gradient", wrong)
        if "param" in self.what:
            wrong = _not_finite(parameters_by_name(self._models), gradients=False)
            if wrong:
                return self._describe("param", "parameter", wrong)
        return None

    def _is_watched(self, name: str) -> bool:
        return name == "main" or "loss" in name if self._losses is None else name in self._losses

    def _describe_loss(self, noted: NotedLosses) -> NonFiniteLossError:
        values = noted.read()
        wrong = {name: value for name, value in values.items() if not math.isfinite(value)}
        listed = ", ".join(f"{name} is {value}" for name, value in list(wrong.items())[:_SHOWN])
        return NonFiniteLossError(
            f"The loss is not a finite number at iteration {noted.iteration}: {listed}.",
            advice=_ADVICE,
            kind="loss",
            names=list(wrong),
            losses=values,
            iteration=noted.iteration,
        )

    def _describe(self, kind: str, noun: str, names: list[str]) -> NonFiniteError:
        iteration = self._updater.state.iteration
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        whose = f"{noun} {', '.join(names[:_SHOWN])}" if kind == "param" else f"{noun} of {', '.join(names[:_SHOWN])}"
        return NonFiniteError(
            f"Not all numbers are finite at iteration {iteration}: {whose}{more}.",
            advice=_ADVICE,
            kind=kind,
            names=names,
            iteration=iteration,
        )


def _checked_kinds(what: Any) -> tuple[str, ...]:
    listed = [what] if isinstance(what, str) else what
    if not isinstance(listed, Iterable):
        raise ArgumentTypeError(
            f"FailOnNonNumber: what must be names among {', '.join(KINDS)}, not {what!r}.", name="what", value=what
        )
    listed = list(listed)
    unknown = [kind for kind in listed if kind not in KINDS]
    if unknown or not listed:
        found = f"{unknown[0]!r} in what" if unknown else "what is empty"
        raise ArgumentValueError(
            f"FailOnNonNumber: {found}.", advice=f"Use any of {', '.join(KINDS)}.", name="what", value=what
        )
    return tuple(kind for kind in KINDS if kind in listed)


def _scales_losses(updater: Any) -> bool:
    scaler = getattr(updater, "scaler", None)
    return scaler is not None and bool(getattr(scaler, "is_enabled", lambda: True)())


def _not_finite(parameters: Mapping[str, nn.Parameter], *, gradients: bool) -> list[str]:
    """The names of the parameters that are not finite, or whose gradients are not. One transfer per device."""
    names: list[str] = []
    flags: list[torch.Tensor] = []
    for name, parameter in parameters.items():
        tensor = parameter.grad if gradients else parameter
        # Eight-bit floats have no test of their own; what cannot be tested is not looked at.
        if (
            tensor is None
            or isinstance(tensor, nn.UninitializedParameter)
            or not (tensor.is_floating_point() or tensor.is_complex())
            or tensor.element_size() < 2
        ):
            continue
        tensor = tensor.detach()
        if tensor.is_sparse:
            tensor = tensor.coalesce().values()
        names.append(name)
        flags.append(torch.isfinite(tensor).all())
    return [name for name, is_finite in zip(names, read_scalars(flags), strict=True) if not is_finite]
