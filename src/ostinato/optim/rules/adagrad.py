"""Steps that shrink with the gradients seen so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.errors import ArgumentValueError
from ostinato.optim.argument_checks import require_not_negative
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules.adam import spreads
from ostinato.optim.rules.blocks import Block, Job
from ostinato.optim.rules.optimizer import Gradient, Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.settings import Index
from ostinato.optim.rules.step import Step


@register
class AdaGrad(Optimizer):
    """``h = h + G^2``, ``w = w - rate*G/(sqrt(h)+epsilon)``, with G coupled. (Duchi, Hazan and Singer, 2011.)

    A row-sparse gradient changes the listed rows only; decay would reach the others too and is refused then. With
    ``use_fused_step=False`` the dense rule is used instead.

    :param epsilon: see above.
    """

    default_learning_rate: ClassVar[float] = 0.01
    settings: ClassVar[tuple[str, ...]] = ("epsilon",)
    deprecated_keywords: ClassVar[Mapping[str, str]] = {"eps": "epsilon"}

    def __init__(self, *, epsilon: float = 1e-6, **common: Any) -> None:
        super().__init__(**common)
        self.epsilon = require_not_negative("epsilon", epsilon)
        self.state_names = ("history",)

    def _check(self, index: Index, weight: Tensor, gradient: Gradient, state: State) -> None:
        super()._check(index, weight, gradient, state)
        decay = self.wd * self._multiplier(index, "wd_mult", self.wd_mult)
        if isinstance(gradient, RowSparse) and self.use_fused_step and decay:
            raise ArgumentValueError(
                f"The gradient of weight {self.label(index)} is row-sparse, and {self.name} cannot decay the rows that "
                f"it does not list; its decay is {decay}.",
                advice="Set wd or the weight's wd_mult to 0, or use use_fused_step=False.",
                index=index,
                decay=decay,
            )

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.coupled(gradient, weight)
        history = state["history"]
        history.copy_(history + working * working)
        weight.copy_(weight - step.rate * working / (history.sqrt() + self.epsilon))

    def _fast(self, block: Block, step: Step) -> None:
        working = step.coupled_list(block.gradients, block.weights)
        histories = block.states["history"]
        torch._foreach_addcmul_(histories, working, working)
        torch._foreach_addcdiv_(block.weights, working, spreads(histories, self.epsilon), value=-step.rate)

    def _update_rows(self, job: Job, gradient: RowSparse, step: Step) -> None:
        if self.use_fused_step:
            self._update_listed_rows(job, gradient, step)
        else:
            super()._update_rows(job, gradient, step)
