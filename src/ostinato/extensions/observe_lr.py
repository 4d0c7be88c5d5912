"""Reports the learning rates that the updates were made with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ostinato.extensions.observed_entries import check_key
from ostinato.extensions.observed_optimizers import check_optimizer, find_optimizers
from ostinato.loop import PRIORITY_WRITER, Extension, TrainerView, report


class RateObserver(Extension):
    """Reports the rate *used* for the update of this iteration; see :func:`observe_lr`.

    A schedule that is stepped at the end of an update has already set the rate of the next one when extensions run. So
    the rates are noted at the moment in which an optimizer steps. An optimizer that did not step yet (its part rests,
    or a loss scaler skipped the step) is reported with the rate that it has.
    """

    trigger = (1, "epoch")
    priority = PRIORITY_WRITER
    name = "observe_lr"

    def __init__(self, optimizer: Optimizer | str | None = None, key: str = "lr") -> None:
        self.key = check_key(key, "observe_lr")
        self._wanted = check_optimizer(optimizer, "observe_lr")
        self._optimizers: dict[str, Optimizer] = {}
        self._used: dict[str, list[Any]] = {}
        self._hooks: list[RemovableHandle] = []

    def initialize(self, trainer: TrainerView) -> None:
        """Find the optimizers and begin to note their rates.

        :raises ArgumentValueError: when the updater has no optimizer of that name.
        :raises StateError: when the updater has none.
        """
        self._optimizers = find_optimizers(trainer, self._wanted, "observe_lr")
        for name, optimizer in self._optimizers.items():
            register = getattr(optimizer, "register_step_pre_hook", None)
            if register is not None:  # what only looks like an optimizer is reported with the rate it has

                def note(optimizer: Any, *_: Any, name: str = name) -> None:
                    self._used[name] = _rates(optimizer)

                self._hooks.append(register(note))

    def __call__(self, trainer: TrainerView) -> None:
        """Report the rates of this iteration."""
        for name, optimizer in self._optimizers.items():
            rates = self._used.get(name) or _rates(optimizer)
            prefix = self.key if len(self._optimizers) == 1 else f"{self.key}/{name}"
            for number, rate in enumerate(rates):
                report(prefix if len(rates) == 1 else f"{prefix}/{number}", rate)

    def finalize(self, trainer: TrainerView) -> None:
        """Let go of the optimizers."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


def observe_lr(optimizer: Optimizer | str | None = None, key: str = "lr") -> RateObserver:
    """An extension that reports the learning rate used for the update, at the end of every epoch unless told otherwise.

    One optimizer with one group of parameters is reported under ``key``; several groups under ``key/0``, ``key/1`` and
    so on; several optimizers under ``key/<name>``, each with its groups.

    :param optimizer: a torch optimizer, or the name of one of the updater's; ``None``: all of them.
    :param key: the name of the value in the observation.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: when the key is empty.
    """
    return RateObserver(optimizer, key)


def _rates(optimizer: Any) -> list[Any]:
    return [_fixed(group) for group in optimizer.param_groups]


def _fixed(group: Mapping[str, Any]) -> Any:
    rate = group["lr"]
    # A rate kept as a tensor is changed in place by its schedule.
    return rate.detach().clone() if isinstance(rate, torch.Tensor) else rate
