"""The class centres of one rank, and what an update does to those that took part in it.

A step costs as much as the classes that took part. Rows are copied out in blocks that stay in the cache, worked on, and
copied back, so nothing of the size of all rows, nor of all that took part, is ever made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ostinato.optim.rules.missed_steps import MissedSteps
from ostinato.optim.rules.sgd import MAX_MISSED_STEPS
from ostinato.recognition.centre_rule import CentreRule
from ostinato.recognition.collected_gradient import CollectedGradient, StepGradient
from ostinato.recognition.initial_centres import fill_initial_centres

_ELEMENTS_PER_CORE = 2**18
"""Block size per CPU thread: 512 rows of 512, of which three copies lie in the cache at a time."""
_ELEMENTS_ON_ACCELERATORS = 2**25


@dataclass
class _Rows:
    """A block of rows with what belongs to them; changed in place."""

    start: int
    """Position of its first class among those of the step."""
    end: int
    weight: Tensor
    """(classes * sub_centres, d)"""
    tables: dict[str, Tensor] = field(default_factory=dict)


class ClassCentres:
    """Classes ``first_class`` to ``last_class`` of the table of centres, ``sub_centres`` rows each.

    Memory: two tables of ``classes * sub_centres * embedding_size`` numbers with SGD, three with AdamW, and 4 bytes a
    class for AdamW and for ``"dense_lazy"``.

    :param seed: of the first values; see :func:`~ostinato.recognition.initial_centres.fill_initial_centres`.
    """

    def __init__(
        self,
        first_class: int,
        last_class: int,
        embedding_size: int,
        rule: CentreRule,
        *,
        sub_centres: int = 1,
        seed: int = 0,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.first_class = first_class
        self.last_class = last_class
        self.embedding_size = embedding_size
        self.sub_centres = sub_centres
        self.rule = rule
        self.seed = seed
        self.version = 0
        """Counts up whenever rows have changed that a forward pass may have seen."""
        classes = last_class - first_class
        shape = (classes * sub_centres, embedding_size)
        self._weight = torch.empty(shape, dtype=dtype, device=device)
        self._first_unset = first_class
        self.tables = {name: torch.zeros_like(self._weight) for name in rule.table_names}
        """(classes * sub_centres, d) each, by name: what the rule remembers beside the centres."""
        counts = rule.optimizer == "adamw" or rule.update == "dense_lazy"
        self.class_steps = torch.zeros(classes, dtype=torch.int32, device=device) if counts else None
        """(classes,) AdamW: in how many steps each class took part. ``"dense_lazy"``: how many of the steps since all
        were up to date each class has seen."""
        self._missed = MissedSteps()

    @property
    def classes(self) -> int:
        """How many classes are here."""
        return self.last_class - self.first_class

    @property
    def weight(self) -> Tensor:
        """(classes * sub_centres, d). First values are made up when somebody asks: loaded ones need none."""
        if self._first_unset < self.last_class:
            start = (self._first_unset - self.first_class) * self.sub_centres
            fill_initial_centres(self._weight[start:], self._first_unset * self.sub_centres, self.seed)
            self._first_unset = self.last_class
        return self._weight

    def to_overwrite(self, first_unset: int | None = None) -> dict[str, Tensor]:
        """All tables by name, ``"weight"`` among them, for somebody who writes into them now. No step may be missed.

        :param first_unset: from this class on, centres will not be written and get their first values; by default, all
            will be written.
        """
        self.version += 1
        self._first_unset = self.last_class if first_unset is None else max(first_unset, self.first_class)
        return {"weight": self._weight, **self.remembered()}

    def remembered(self) -> dict[str, Tensor]:
        """What the rule remembers, by name: ``(classes * sub_centres, d)`` each; of AdamW also ``"class_steps"``,
        ``(classes,)``."""
        if self.rule.optimizer == "sgd" or self.class_steps is None:
            return dict(self.tables)
        return {**self.tables, "class_steps": self.class_steps}

    # --- reading --------------------------------------------------------------------------------------------------

    def blocks(self, classes: Tensor | None) -> Iterator[tuple[int, int, Tensor]]:
        """The rows of some classes in blocks: positions of the first class and of the one past the last, and the rows.

        :param classes: (S,) int64, ascending; None: all.
        :return: rows of shape ``[(end - start) * sub_centres, d]``, valid until the next block; not to be changed.
        """
        wide = self._by_class(self.weight)
        room = None if classes is None else self._room(len(classes))
        for start, end in self.block_bounds(self.classes if classes is None else len(classes)):
            if classes is None or room is None:
                rows = wide[start:end]
            else:
                rows = torch.index_select(wide, 0, classes[start:end], out=room[: end - start])
            yield start, end, rows.view(-1, self.embedding_size)

    def block_bounds(self, total: int) -> Iterator[tuple[int, int]]:
        """The blocks in which so many classes are worked on: first position, and one past the last."""
        step = self._classes_in_block()
        for start in range(0, total, step):
            yield start, min(start + step, total)

    def bring_up_to_date(self, classes: Tensor | None = None) -> None:
        """Make up for the steps that classes have missed (``"dense_lazy"``; otherwise there are none).

        Costs as much as the classes that are behind. With all classes, the steps are forgotten afterwards.

        :param classes: (S,) int64, ascending; None: all.
        """
        if self.rule.update != "dense_lazy" or not len(self._missed):
            return
        assert self.class_steps is not None
        steps = self.class_steps if classes is None else self.class_steps[classes]
        behind = torch.nonzero(steps < len(self._missed)).reshape(-1)
        if classes is not None:
            behind = classes[behind]
        if len(behind):
            for rows in self._copied_out(behind):
                seen = self.class_steps[behind[rows.start : rows.end]].repeat_interleave(self.sub_centres)
                self._missed.make_up(rows.weight, rows.tables.get("momentum"), seen)
            self.class_steps[behind] = len(self._missed)
        if classes is None:
            self.forget_missed_steps()

    def forget_missed_steps(self) -> None:
        """Take all classes to be up to date."""
        self._missed.clear()
        if self.class_steps is not None:
            self.class_steps.zero_()

    # --- updating -------------------------------------------------------------------------------------------------

    def step(self, gradients: Sequence[CollectedGradient], rate: float, scale: float = 1.0) -> None:
        """Update the classes that took part.

        :param gradients: of any number of forward passes since the last step; all rows are as they were there.
        :param rate: the learning rate.
        :param scale: divides the gradients.
        """
        collected = StepGradient(gradients, scale, self.sub_centres, self.weight.device)
        chosen = collected.classes
        if self.rule.optimizer == "adamw":
            assert self.class_steps is not None
            self.class_steps[... if chosen is None else chosen] += 1
        room = self._room(self.classes if chosen is None else len(chosen)).view(-1, self.embedding_size)
        for rows in self._copied_out(chosen):
            gradient = room[: len(rows.weight)]
            collected.of_rows(rows.weight, rows.start, rows.end, out=gradient)
            self._update(rows, chosen, gradient, rate)
        if self.rule.update == "dense_lazy":
            self._miss(rate, chosen)
        self.version += 1

    def _update(self, rows: _Rows, chosen: Tensor | None, gradient: Tensor, rate: float) -> None:
        rule, weight = self.rule, rows.weight
        if rule.optimizer == "adamw":
            self._update_adamw(rows, chosen, gradient, rate)
            return
        taken, moved = (-rate, 1.0) if rule.momentum_form == "rate_inside" else (1.0, -rate)
        if not rule.momentum:
            weight.mul_(1.0 - rate * rule.weight_decay).add_(gradient, alpha=-rate)
            return
        momentum = rows.tables["momentum"]
        momentum.mul_(rule.momentum).add_(gradient, alpha=taken)
        if rule.weight_decay:
            momentum.add_(weight, alpha=taken * rule.weight_decay)
        weight.add_(momentum, alpha=moved)

    def _update_adamw(self, rows: _Rows, chosen: Tensor | None, gradient: Tensor, rate: float) -> None:
        """Each class counts its own steps: its moments have seen only those, and bias correction is about them."""
        rule = self.rule
        assert self.class_steps is not None
        span = slice(rows.start, rows.end)
        counts = self.class_steps[span] if chosen is None else self.class_steps[chosen[span]]
        # In double precision: of 1 - beta**steps, single precision loses the more the nearer beta is to 1.
        steps = counts.repeat_interleave(self.sub_centres).double().unsqueeze(1)
        first, second = rows.tables["first_moment"], rows.tables["second_moment"]
        beta1, beta2 = rule.betas
        first.lerp_(gradient, 1.0 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        bottom = (second / (1.0 - beta2**steps).to(second.dtype)).sqrt_().add_(rule.epsilon)
        rows.weight.mul_(1.0 - rate * rule.weight_decay)
        rows.weight.addcdiv_(first / (1.0 - beta1**steps).to(first.dtype), bottom, value=-rate)

    def _miss(self, rate: float, chosen: Tensor | None) -> None:
        """All classes but the chosen ones miss this step."""
        assert self.class_steps is not None
        self._missed.append(self.rule.matrix(rate))
        if chosen is None:  # nobody is behind: what took part was brought up to date before
            self.forget_missed_steps()
            return
        self.class_steps[chosen] = len(self._missed)
        if len(self._missed) >= MAX_MISSED_STEPS:
            self.bring_up_to_date()

    # --- blocks -----------------------------------------------------------------------------------------------------

    def _copied_out(self, classes: Tensor | None) -> Iterator[_Rows]:
        """Rows in blocks, copied back when the next one is asked for; all classes are worked on where they are."""
        tables = {name: self._by_class(table) for name, table in self.tables.items()}
        wide = self._by_class(self.weight)
        total = self.classes if classes is None else len(classes)
        rooms = {} if classes is None else {name: self._room(total) for name in ("", *tables)}
        for start, end in self.block_bounds(total):
            if classes is None:
                weight, parts = wide[start:end], {name: table[start:end] for name, table in tables.items()}
            else:
                here = classes[start:end]
                weight = torch.index_select(wide, 0, here, out=rooms[""][: end - start])
                parts = {
                    name: torch.index_select(table, 0, here, out=rooms[name][: end - start])
                    for name, table in tables.items()
                }
            shape = (-1, self.embedding_size)
            yield _Rows(start, end, weight.view(shape), {name: part.view(shape) for name, part in parts.items()})
            if classes is not None:
                here = classes[start:end]
                wide.index_copy_(0, here, weight)
                for name, part in parts.items():
                    tables[name].index_copy_(0, here, part)

    def _by_class(self, table: Tensor) -> Tensor:
        return table.view(self.classes, self.sub_centres * self.embedding_size)

    def _classes_in_block(self) -> int:
        cpu = self._weight.device.type == "cpu"
        size = _ELEMENTS_PER_CORE * torch.get_num_threads() if cpu else _ELEMENTS_ON_ACCELERATORS
        return max(1, size // (self.sub_centres * self.embedding_size))

    def _room(self, total: int) -> Tensor:
        """Memory for a block of rows, by class."""
        return self._weight.new_empty((min(total, self._classes_in_block()), self.sub_centres * self.embedding_size))
