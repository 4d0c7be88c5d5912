"""How class centres are updated, as a value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ostinato.errors import ArgumentValueError, ContractError

CentreOptimizer = Literal["sgd", "adamw"]
CentreUpdate = Literal["frozen", "dense_lazy"]
MomentumForm = Literal["plain", "rate_inside"]


@dataclass(frozen=True)
class CentreRule:
    """How centres are updated.

    :param optimizer: ``"sgd"`` or ``"adamw"``.
    :param update: what happens to classes that take no part in a step. ``"frozen"``: nothing, their time stands still.
        ``"dense_lazy"``: what a gradient of zeros would do to them (momentum goes on, decay shrinks them), made up for
        when they take part again; SGD only.
    :param momentum: of SGD, 0 to below 1.
    :param weight_decay: of SGD, part of the gradient; of AdamW, apart from it.
    :param momentum_form: of SGD. ``"plain"``: ``b = momentum*b + g + weight_decay*w; w = w - rate*b``, as torch.optim
        has it. ``"rate_inside"``: ``b = momentum*b - rate*(g + weight_decay*w); w = w + b``, as MXNet has it. They
        differ after a change of the rate alone.
    :param betas: of AdamW.
    :param epsilon: of AdamW, added to the root.
    :raises ArgumentValueError: a value is not allowed.
    :raises ContractError: AdamW with ``"dense_lazy"``.
    """

    optimizer: CentreOptimizer = "sgd"
    update: CentreUpdate = "frozen"
    momentum: float = 0.9
    weight_decay: float = 5e-4
    momentum_form: MomentumForm = "plain"
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        for name, allowed in (
            ("optimizer", ("sgd", "adamw")),
            ("update", ("frozen", "dense_lazy")),
            ("momentum_form", ("plain", "rate_inside")),
        ):
            value = getattr(self, name)
            if value not in allowed:
                raise ArgumentValueError(
                    f"The centres' {name} is {value!r}.",
                    advice=f"Use one of {', '.join(map(repr, allowed))}.",
                    name=name,
                    value=value,
                )
        if not 0 <= self.momentum < 1 or not all(0 <= beta < 1 for beta in self.betas):
            raise ArgumentValueError(
                f"The centres' momentum is {self.momentum!r}, their betas are {self.betas!r}.",
                advice="Give numbers from 0 to below 1.",
                momentum=self.momentum,
                betas=self.betas,
            )
        if not 0 <= self.weight_decay < math.inf or not 0 < self.epsilon < math.inf:
            raise ArgumentValueError(
                f"The centres' weight decay is {self.weight_decay!r}, their epsilon is {self.epsilon!r}.",
                advice="Give a decay of at least 0 and an epsilon above 0, both finite.",
                weight_decay=self.weight_decay,
                epsilon=self.epsilon,
            )
        if self.optimizer == "adamw" and self.update != "frozen":
            raise ContractError(
                "AdamW cannot make up for missed steps: its steps are no products of matrices.",
                advice="Use update='frozen', or SGD.",
                update=self.update,
            )

    @property
    def table_names(self) -> tuple[str, ...]:
        """The tables beside the centres, of the same shape."""
        if self.optimizer == "adamw":
            return ("first_moment", "second_moment")
        return ("momentum",) if self.momentum else ()

    @property
    def memory(self) -> str:
        """What the tables mean: two rules with the same text can take over each other's."""
        return "adamw" if self.optimizer == "adamw" else f"sgd, momentum {self.momentum_form}"

    def matrix(self, rate: float) -> np.ndarray:
        """What a step without gradient makes of the pair (centre, momentum) of SGD: (2, 2), float64."""
        taken, moved = (-rate, 1.0) if self.momentum_form == "rate_inside" else (1.0, -rate)
        decay, momentum = taken * self.weight_decay, self.momentum
        return np.array([[1.0 + moved * decay, moved * momentum], [decay, momentum]])
