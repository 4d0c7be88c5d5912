"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ostinato.errors import ArgumentValueError, ContractError
from ostinato.optim.argument_checks import require_flag, require_fused, require_not_negative
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import fused_kernels
from ostinato.optim.rules.blocks import Block, Job, chosen_row_blocks
from ostinato.optim.rules.missed_steps import MISSED_STEPS, MissedSteps
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.settings import Index
from ostinato.optim.rules.step import Step

RowUpdate = Literal["dense", "frozen", "dense_lazy"]

MAX_MISSED_STEPS = 2**20
"""After so many steps every row is caught up in passing, so that the steps can be forgotten (32 MiB of them)."""


@register
class SGD(Optimizer):
    """``m = momentum*m - rate*G``, ``w = w + m``, with G coupled; ``w = w - rate*G`` without momentum.

    The rate is inside the momentum, so a change of rate does not reach what was accumulated before it. This differs
    from :class:`torch.optim.SGD`, which multiplies the whole momentum by the rate of the moment.

    :param momentum: at least 0.
    :param lazy_update: True is ``update="frozen"``.
    :param update: what a row-sparse gradient does to the rows that it does not list.

        ``"dense"``
            what a dense gradient of zeros would do: momentum goes on moving them, and decay shrinks them. A step costs
            as much as the table is large.
        ``"frozen"``
            nothing. A step costs as much as the listed rows; a row's time stands still while it is not listed, so the
            results differ from the dense ones.
        ``"dense_lazy"``
            the results of ``"dense"`` (to rounding) at the cost of ``"frozen"``: rows are brought up to date when they
            are listed, and by :meth:`catch_up`, which has to come before rows are read, and before all are saved. On an
            accelerator the host waits once per update, to learn which steps the rows missed.
    """

    default_learning_rate: ClassVar[float] = 0.1
    settings: ClassVar[tuple[str, ...]] = ("momentum",)

    def __init__(
        self, *, momentum: float = 0.0, lazy_update: bool = False, update: RowUpdate | None = None, **common: Any
    ) -> None:
        super().__init__(**common)
        self.momentum = require_not_negative("momentum", momentum)
        self.state_names = ("momentum",) if self.momentum else ()
        self.row_update: RowUpdate = _row_update(update, require_flag("lazy_update", lazy_update))
        if self.row_update == "dense_lazy":
            self.cut = "rows"  # of each row it is known which updates it has missed
        if self.row_update == "frozen":
            require_fused(self.name, self.use_fused_step, self.multi_precision)

    @property
    def lazy_update(self) -> bool:
        """True when a row-sparse gradient leaves the rows alone that it does not list."""
        return self.row_update == "frozen"

    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "update": self.row_update}

    # --- the rule -----------------------------------------------------------------------------------------------

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.coupled(gradient, weight)
        if not self.momentum:
            weight.copy_(weight - step.rate * working)
            return
        momentum = state["momentum"]
        momentum.copy_(self.momentum * momentum - step.rate * working)
        weight.copy_(weight + momentum)

    def _is_one_walk(self, step: Step) -> bool:
        scale = abs(step.rate * step.rescale)
        return step.clip is None and (not self.momentum or scale >= fused_kernels.SMALLEST_SCALE[torch.float32])

    def _fast(self, block: Block, step: Step) -> None:
        weights, momenta = block.weights, block.states.get("momentum", [])
        gradients, scale = (
            (block.gradients, step.rescale) if step.clip is None else (step.bare_list(block.gradients), 1)
        )
        # m - rate*(s*g + decay*w) and w + m, said as m + scale*(g + decay/s*w) and w - (-1)*m.
        if fused_kernels.sgd(
            weights,
            gradients,
            momenta,
            rate=-1.0 if momenta else step.rate,
            scale=-step.rate * scale if momenta else scale,
            decay=step.decay / scale,
            momentum=self.momentum,
        ):
            return
        if not momenta:
            torch._foreach_mul_(weights, 1.0 - step.rate * step.decay)
            torch._foreach_add_(weights, gradients, alpha=-step.rate * scale)
            return
        torch._foreach_mul_(momenta, self.momentum)
        torch._foreach_add_(momenta, gradients, alpha=-step.rate * scale)
        if step.decay:
            torch._foreach_add_(momenta, weights, alpha=-step.rate * step.decay)
        torch._foreach_add_(weights, momenta)

    # --- row-sparse gradients -----------------------------------------------------------------------------------

    def _new_state(self, index: Index, weight: Tensor) -> State:
        state = super()._new_state(index, weight)
        if self.row_update == "dense_lazy" and weight.ndim:
            state["row_step"] = torch.zeros(len(weight), dtype=torch.int64, device=weight.device)
            state[MISSED_STEPS] = MissedSteps()
        return state

    def _update_dense(self, jobs: list[Job], step: Step) -> None:
        for job in jobs:
            self.catch_up(job.index, job.weight, job.state)
        super()._update_dense(jobs, step)

    def _update_rows(self, job: Job, gradient: RowSparse, step: Step) -> None:
        if self.row_update == "frozen":
            self._update_listed_rows(job, gradient, step)
        elif self.row_update == "dense_lazy":
            self._update_late_rows(job, gradient, step)
        else:
            super()._update_rows(job, gradient, step)

    def _update_late_rows(self, job: Job, gradient: RowSparse, step: Step) -> None:
        """Catch the listed rows up and update them by the dense rule; let all others miss this step."""
        missed: MissedSteps = job.state[MISSED_STEPS]
        if len(missed) >= MAX_MISSED_STEPS:
            self.catch_up(job.index, job.weight, job.state)
        row_step: Tensor = job.state["row_step"]
        for rows, block in chosen_row_blocks(job, gradient.indices, gradient.values, self.state_names):
            missed.make_up(block.weights[0], block.states.get("momentum", [None])[0], row_step[rows])
            self._fast(block, step)
        missed.append(self._matrix(step))
        row_step[gradient.indices] = len(missed)

    def catch_up(self, index: Index, weight: Tensor, state: State, rows: Tensor | None = None) -> None:
        """Give rows what the dense rule would have given them in the steps that they missed.

        Costs as much as the rows that are behind. With all rows, the steps are forgotten afterwards.
        """
        missed: MissedSteps | None = state.get(MISSED_STEPS)
        if missed is None or not len(missed):
            return
        row_step: Tensor = state["row_step"]
        if rows is None:
            chosen = torch.nonzero(row_step < len(missed)).reshape(-1)
        else:
            unique = torch.unique(rows.reshape(-1))
            chosen = unique[row_step[unique] < len(missed)]
        job = Job(index, weight, weight, state)
        with torch.no_grad():
            for here, block in chosen_row_blocks(job, chosen, None, self.state_names):
                missed.make_up(block.weights[0], block.states.get("momentum", [None])[0], row_step[here])
            row_step[chosen] = len(missed)
        if rows is None:
            missed.clear()
            row_step.zero_()

    def _matrix(self, step: Step) -> np.ndarray:
        """One step without gradient: what it makes of (weight, momentum)."""
        shrink = step.rate * step.decay
        return np.array([[1.0 - shrink, self.momentum], [-shrink, self.momentum]])


def _row_update(update: RowUpdate | None, lazy_update: bool) -> RowUpdate:
    if update is None:
        return "frozen" if lazy_update else "dense"
    if update not in ("dense", "frozen", "dense_lazy"):
        raise ArgumentValueError(
            f"There is no update called {update!r}.", advice="Use 'dense', 'frozen' or 'dense_lazy'.", update=update
        )
    if lazy_update and update != "frozen":
        raise ContractError(
            f"lazy_update=True means update='frozen', and update is {update!r}.", advice="Leave lazy_update out."
        )
    return update
