"""Descent that makes up for the delay of asynchronous gradients."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ostinato.optim.argument_checks import require_not_negative
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.settings import Index
from ostinato.optim.rules.step import Step


@register
class DCASGD(Optimizer):
    """``d = G + lamda*G*G*(w - p)``, ``m = momentum*m - rate*d``, ``p = w``, ``w = w + m``, with G coupled.

    p is the weight as it was when the gradient was computed: the second term is a cheap guess at how the gradient would
    have changed since. (Zheng and others, 2017.) By itself p is the weight before the last update by anybody. A store
    that several workers push to keeps ``previous_weight`` for each worker apart, see
    :attr:`~ostinato.optim.rules.optimizer.Optimizer.per_worker_states`: the weight that the worker pulled last.

    :param momentum: at least 0.
    :param lamda: how much of the delay to make up for.
    """

    default_learning_rate: ClassVar[float] = 0.1
    settings: ClassVar[tuple[str, ...]] = ("momentum", "lamda")
    per_worker_states: ClassVar[tuple[str, ...]] = ("previous_weight",)

    def __init__(self, *, momentum: float = 0.0, lamda: float = 0.04, **common: Any) -> None:
        super().__init__(**common)
        self.momentum = require_not_negative("momentum", momentum)
        self.lamda = lamda
        self.state_names = ("momentum", "previous_weight") if self.momentum else ("previous_weight",)

    def _new_state(self, index: Index, weight: Tensor) -> State:
        return {**super()._new_state(index, weight), "previous_weight": weight.clone()}

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.coupled(gradient, weight)
        change = -step.rate * (working + self.lamda * working * working * (weight - state["previous_weight"]))
        if self.momentum:
            change = self.momentum * state["momentum"] + change
            state["momentum"].copy_(change)
        state["previous_weight"].copy_(weight)
        weight.copy_(weight + change)
