"""AdaGrad with one number for each row of a table."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ostinato.errors import ContractError
from ostinato.optim.argument_checks import require_not_negative
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules.blocks import Job
from ostinato.optim.rules.optimizer import Gradient, Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.settings import Index
from ostinato.optim.rules.step import Step


@register
class GroupAdaGrad(Optimizer):
    """``h = h + mean over the row of G^2``, ``w = w - rate*G/(sqrt(h)+epsilon)``, with G bare.

    For two-dimensional weights, such as embeddings. There is no decay. A row-sparse gradient changes the listed rows
    only; with ``use_fused_step=False`` it is made dense, which gives the same.

    :param epsilon: see above.
    """

    default_learning_rate: ClassVar[float] = 0.01
    settings: ClassVar[tuple[str, ...]] = ("epsilon",)
    cut = "rows"

    def __init__(self, *, epsilon: float = 1e-6, **common: Any) -> None:
        super().__init__(**common)
        self.epsilon = require_not_negative("epsilon", epsilon)
        self.state_names = ("history",)

    def _new_state(self, index: Index, weight: Tensor) -> State:
        self._require_table(index, weight)
        return {"history": weight.new_zeros((len(weight), 1))}

    def _require_table(self, index: Index, weight: Tensor) -> None:
        if weight.ndim != 2:
            raise ContractError(
                f"{self.name} updates tables of rows, and weight {self.label(index)} has shape {tuple(weight.shape)}.",
                advice="Train this weight with adagrad.",
                index=index,
            )

    def _check(self, index: Index, weight: Tensor, gradient: Gradient, state: State) -> None:
        self._require_table(index, weight)
        super()._check(index, weight, gradient, state)
        decay = self.wd * self._multiplier(index, "wd_mult", self.wd_mult)
        if decay:
            raise ContractError(
                f"{self.name} knows no weight decay, and that of weight {self.label(index)} is {decay}.",
                advice="Set wd or the weight's wd_mult to 0.",
                index=index,
                decay=decay,
            )

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.bare(gradient)
        history = state["history"]
        history.copy_(history + (working * working).mean(1, keepdim=True))
        weight.copy_(weight - step.rate * working / (history.sqrt() + self.epsilon))

    def _update_rows(self, job: Job, gradient: RowSparse, step: Step) -> None:
        if self.use_fused_step:
            self._update_listed_rows(job, gradient, step)
        else:
            super()._update_rows(job, gradient, step)
