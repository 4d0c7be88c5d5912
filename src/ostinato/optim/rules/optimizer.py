"""The base of all optimizers: common settings, counts, rates, master copies, and the way from a call to a rule."""

from __future__ import annotations

import inspect
import logging
import math
import warnings
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError, ContractError, UpdateRefusedError
from ostinato.optim.nearest_names import did_you_mean
from ostinato.optim.rate_schedules import RateSchedule, schedule_from_state
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import fused_kernels
from ostinato.optim.rules.blocks import (
    HALF_PRECISION,
    UNCUT,
    Block,
    Job,
    chosen_row_blocks,
    computing_dtype,
    element_blocks,
)
from ostinato.optim.rules.step import Step

log = logging.getLogger(__name__)

FORMAT = 1

Index: TypeAlias = int | str
"""What a weight is known by: its position in the trainer, or a store's key."""

Gradient: TypeAlias = Tensor | RowSparse
"""A dense tensor, a ``torch.sparse_coo`` tensor with one sparse dimension, or chosen rows."""

State: TypeAlias = dict[str, Any]
"""What an optimizer keeps for one weight: tensors and numbers by name. ``master_weight`` is the float32 copy."""

Schedule: TypeAlias = Callable[[int], float]

MASTER = "master_weight"


class Optimizer:
    """Changes weights by gradients, each by its own rate and decay.

    A weight is known by its *index*. Its state is made by :meth:`create_state` and handed to every :meth:`update`; an
    :class:`~ostinato.optim.rules.updater.Updater` keeps states and does both. Optimizers keep no tensors themselves,
    so several updaters share one and see every change to its settings at their next update.

    :param learning_rate: the rate. With a schedule it overwrites the schedule's base rate; without both, the class'
        own default holds. Not given together with a schedule, the schedule's base rate stays.
    :param wd: weight decay.
    :param rescale_grad: gradients are multiplied by this first; a trainer sets it at every step. Finite and not 0.
    :param clip_gradient: after rescaling, elements are cut to plus or minus this; None for no cut. Above 0.
    :param lr_scheduler: a function from the number of updates to the rate, see :mod:`ostinato.optim.rate_schedules`.
    :param begin_num_update: the count to start from; the first update of a weight counts this + 1.
    :param multi_precision: keep a float32 master copy of every float16 and bfloat16 weight.
    :param aggregate_num: how many weights at most an updater hands over in one call; ``math.inf`` for no limit. It
        changes speed, not results. None, the default, leaves it to the updater; :attr:`aggregate_num` then reads the
        number on which the trainer's choice of where to update rests.
    :param use_fused_step: False runs the equations tensor by tensor, as they are written. True, the default, gives the
        same results to rounding, faster.
    :param param_idx2name: names by index, for rules and multipliers that go by name.
    :param param_dict: parameters by index, held by reference: ``lr_mult`` and ``wd_mult`` attributes are read at every
        update.
    :raises ArgumentValueError: a value is out of range.
    :raises ContractError: arguments exclude each other.
    """

    name: str = ""
    """The name by which :func:`~ostinato.optim.rules.registry.create` knows the class."""
    default_learning_rate: ClassVar[float] = 0.01
    default_aggregate_num: ClassVar[int] = 1
    max_aggregate_num: ClassVar[float] = math.inf
    state_names: tuple[str, ...] = ()
    """The tensors of a state that a rule works on, in the order of MXNet's files. May differ between objects."""
    settings: ClassVar[tuple[str, ...]] = ()
    """The class' own arguments, as far as they are attributes of the same names."""
    cut: ClassVar[Literal["elements", "rows", "tensors"]] = "elements"
    """Where a weight may be cut without changing the result: between any elements, between rows of the first
    dimension, or nowhere, because the rule looks at the whole tensor."""
    deprecated_keywords: ClassVar[Mapping[str, str]] = {}
    """Keywords of old releases, and what they are called today."""
    divides_by_rate: ClassVar[bool] = False
    """True for rules that have no meaning at a rate of 0, and leave weight and state alone there."""
    per_worker_states: ClassVar[tuple[str, ...]] = ()
    """States that belong to the worker a gradient comes from, where several workers update one weight in turn."""

    def __init__(
        self,
        *,
        learning_rate: float | None = None,
        wd: float = 0.0,
        rescale_grad: float = 1.0,
        clip_gradient: float | None = None,
        lr_scheduler: Schedule | None = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
        aggregate_num: float | None = None,
        use_fused_step: bool = True,
        param_idx2name: Mapping[Index, str] | None = None,
        param_dict: Mapping[Index, Any] | None = None,
    ) -> None:
        if aggregate_num is not None and aggregate_num > self.max_aggregate_num:
            raise ContractError(
                f"{self.name} aggregates at most {self.max_aggregate_num:g} weights, and aggregate_num is "
                f"{aggregate_num:g}.",
                advice=f"Give at most {self.max_aggregate_num:g}, or leave it out.",
            )
        self.lr_scheduler = lr_scheduler
        if lr_scheduler is not None and learning_rate is not None:
            _overwrite_base_rate(lr_scheduler, learning_rate)
        self.lr = self.default_learning_rate if learning_rate is None else float(learning_rate)
        self.wd = float(wd)
        self.rescale_grad = float(rescale_grad)
        self.clip_gradient = clip_gradient
        self.begin_num_update = begin_num_update
        self.num_update = self.begin_num_update
        self.multi_precision = multi_precision
        self.explicit_aggregate_num = aggregate_num
        self.use_fused_step = use_fused_step
        self.idx2name: dict[Index, str] = dict(param_idx2name or {})
        self.param_dict: Mapping[Index, Any] = {} if param_dict is None else param_dict
        self.lr_mult: dict[Index, float] = {}
        self.wd_mult: dict[Index, float] = {}
        self._counts: dict[str, dict[Index, int]] = {}

    # --- settings -----------------------------------------------------------------------------------------------

    @property
    def clip_gradient(self) -> float | None:
        """Rescaled gradients are cut to plus or minus this; None for no cut."""
        return self._clip_gradient

    @clip_gradient.setter
    def clip_gradient(self, value: float | None) -> None:
        if value is not None and not value > 0:
            raise ArgumentValueError(
                f"clip_gradient is {value}, which would leave nothing of a gradient.",
                advice="Give a value above 0, or None for no cut.",
            )
        self._clip_gradient = None if value is None else float(value)

    @property
    def aggregate_num(self) -> float:
        """How many weights are updated in one call, as far as the place of the update depends on it."""
        return self.default_aggregate_num if self.explicit_aggregate_num is None else self.explicit_aggregate_num

    @property
    def learning_rate(self) -> float:
        """The rate of the last update, before multipliers: the schedule's at :attr:`num_update`, or the fixed one."""
        return self.lr if self.lr_scheduler is None else float(self.lr_scheduler(self.num_update))

    def set_learning_rate(self, rate: float) -> None:
        """Replace the fixed rate, from the next update on.

        :raises UpdateRefusedError: a schedule decides the rate. It is a UserWarning too.
        """
        if self.lr_scheduler is not None:
            raise UpdateRefusedError(
                f"The learning rate cannot be set to {rate}, because a schedule decides it.",
                advice="Assign the schedule's base_lr, or build the optimizer without lr_scheduler.",
            )
        self.lr = float(rate)

    def set_lr_mult(self, multipliers: Mapping[Index, float]) -> None:
        """Multiply the rate of single weights, known by index or by name. Replaces what was set before.

        A multiplier of 0 freezes the weight: neither it nor its state changes. An ``lr_mult`` other than 1 on the
        parameter itself wins.

        :raises ArgumentValueError: no weight has this index or name.
        """
        self.lr_mult = self._known(multipliers)

    def set_wd_mult(self, multipliers: Mapping[Index, float]) -> None:
        """Multiply the decay of single weights; otherwise as :meth:`set_lr_mult`."""
        self.wd_mult = self._known(multipliers)

    def _known(self, multipliers: Mapping[Index, float]) -> dict[Index, float]:
        names = set(self.idx2name.values())
        indices = set(self.param_dict) | set(self.idx2name)
        for key in multipliers:
            if key in names or key in indices or (isinstance(key, int) and not indices):
                continue
            raise ArgumentValueError(
                f"No weight is called {key!r}.",
                advice=did_you_mean(str(key), [*names, *map(str, indices)])
                if names or indices
                else "Names come from param_idx2name, or from the trainer.",
                key=key,
            )
        return {key: float(value) for key, value in multipliers.items()}

    def _multiplier(self, index: Index, attribute: str, table: Mapping[Index, float]) -> float:
        own = getattr(self.param_dict.get(index), attribute, 1.0)
        if own != 1.0:
            return float(own)
        if index in table:
            return table[index]
        return table.get(self.idx2name.get(index, ""), 1.0)

    # --- state --------------------------------------------------------------------------------------------------

    def create_state(self, index: Index, weight: Tensor) -> State:
        """Make the state of a weight: tensors of its shape on its device, and the master copy where one is kept.

        States of 16-bit weights are float32. Without a master copy a UserWarning says so: the rule then runs in
        float32 and its result is rounded into the weight at every update, which loses small changes.
        """
        reference = weight.detach()
        state: State = {}
        if weight.dtype in HALF_PRECISION:
            reference = reference.float()
            if self.multi_precision:
                state[MASTER] = reference
            else:
                warnings.warn(
                    f"Weight {index!r} is {str(weight.dtype).removeprefix('torch.')} and is updated without a float32 "
                    "master copy, which loses changes that are small beside it. Use multi_precision=True.",
                    UserWarning,
                    stacklevel=2,
                )
        state.update(self._new_state(index, reference))
        return state

    def _new_state(self, index: Index, weight: Tensor) -> State:
        """Make what the rule keeps for a weight; zeros for each of :attr:`state_names` unless a class says otherwise.

        :param weight: the weight in the computing dtype.
        """
        return {name: torch.zeros_like(weight) for name in self.state_names}

    def adopt_state(self, index: Index, weight: Tensor, state: State) -> State:
        """Give a loaded state the form that a fresh one has: device, dtype and memory layout of its weight.

        What the optimizer no longer keeps is dropped; a master copy that is missing is taken from the weight.

        :raises ArgumentValueError: a tensor is missing or has another shape.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # fresh states warn; this one is only looked at
            fresh = self.create_state(index, torch.empty_like(weight, device="meta"))
        adopted: State = {}
        for name, example in fresh.items():
            value = state.get(name)
            if value is None and name == MASTER:
                adopted[name] = weight.detach().float()
                continue
            if value is None or getattr(value, "shape", ()) != getattr(example, "shape", ()):
                found = "none" if value is None else f"one of shape {tuple(getattr(value, 'shape', ()))}"
                raise ArgumentValueError(
                    f"{self.name} needs the state {name!r} of shape {tuple(getattr(example, 'shape', ()))} for weight "
                    f"{index!r}, and there is {found}.",
                    advice="The state was saved for other weights, or with other settings of the optimizer.",
                    index=index,
                    state=name,
                )
            if isinstance(example, Tensor):
                dense = value.to_dense() if isinstance(value, RowSparse) else value
                adopted[name] = torch.empty_like(example, device=weight.device).copy_(dense)
            else:
                adopted[name] = value
        if len(adopted) < len(state):
            log.info("Of the saved state of weight %r, %s is no longer used", index, sorted(set(state) - set(adopted)))
        return adopted

    def catch_up(self, index: Index, weight: Tensor, state: State, rows: Tensor | None = None) -> None:
        """Bring rows whose update was put off up to date; see ``update="dense_lazy"`` of :class:`SGD`.

        :param rows: row numbers, any shape, repeats allowed; None for all rows.
        """

    # --- updating -----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def update(
        self,
        indices: Sequence[Index],
        weights: Sequence[Tensor],
        gradients: Sequence[Gradient],
        states: Sequence[State],
        *,
        counts: MutableMapping[Index, int] | None = None,
    ) -> None:
        """Update weights and their states in place. Gradients are not changed.

        :param indices: one for each weight.
        :param weights: any shapes and devices; floating point.
        :param gradients: of the weights' shapes, on their devices; any floating point dtype.
        :param states: as :meth:`create_state` made them, one for each weight.
        :param counts: updates so far by index; every listed index counts one up. Without it the optimizer counts by
            itself, for each device apart.
        :raises ArgumentValueError: something does not fit together. Nothing has changed then.
        """
        prepared = [as_gradient(gradient) for gradient in gradients]
        self._check_settings()
        for index, weight, gradient, state in zip(indices, weights, prepared, states, strict=True):
            self._check(index, weight, gradient, state)
        groups: dict[Hashable, tuple[Step, list[Job]]] = {}
        sparse: list[tuple[Step, Job, RowSparse]] = []
        for index, weight, gradient, state in zip(indices, weights, prepared, states, strict=True):
            table = self._counts.setdefault(str(weight.device), {}) if counts is None else counts
            step = self._next_step(index, state, table)
            if step is None:
                continue
            if isinstance(gradient, RowSparse):
                sparse.append((step, Job(index, weight, gradient.values, state), gradient))
            else:
                key = (step, weight.device, weight.dtype)
                groups.setdefault(key, (step, []))[1].append(Job(index, weight, gradient, state))
        for step, jobs in groups.values():
            self._update_dense(jobs, step)
        for step, job, gradient in sparse:
            self._update_rows(job, gradient, step)

    def _next_step(self, index: Index, state: State, counts: MutableMapping[Index, int]) -> Step | None:
        """Count the update, and give its numbers; None for a frozen weight."""
        count = counts.get(index, self.begin_num_update) + 1
        counts[index] = count
        self.num_update = max(self.num_update, count)
        multiplier = self._multiplier(index, "lr_mult", self.lr_mult)
        rate = self.learning_rate * multiplier
        if multiplier == 0 or (rate == 0 and self.divides_by_rate):
            return None
        return Step(
            rate=rate,
            decay=self.wd * self._multiplier(index, "wd_mult", self.wd_mult),
            count=count,
            rescale=self.rescale_grad,
            clip=self.clip_gradient,
            kind=self._kind(index, state, count),
        )

    def _check_settings(self) -> None:
        if not math.isfinite(self.rescale_grad) or self.rescale_grad == 0:
            raise ArgumentValueError(
                f"rescale_grad is {self.rescale_grad}, so nothing would be left of the gradients.",
                advice="Check the batch size and the loss scale.",
                rescale_grad=self.rescale_grad,
            )

    def _check(self, index: Index, weight: Tensor, gradient: Gradient, state: State) -> None:
        """Refuse what :meth:`update` could not carry out, before anything has changed."""
        if not weight.is_floating_point():
            raise ArgumentTypeError(f"Weight {index!r} is of {weight.dtype}, and only floating point can be trained.")
        if tuple(gradient.shape) != tuple(weight.shape) or gradient.device != weight.device:
            raise ArgumentValueError(
                f"The gradient of weight {index!r} has shape {tuple(gradient.shape)} on {gradient.device}; the weight "
                f"has {tuple(weight.shape)} on {weight.device}.",
                advice="Give each weight its own gradient.",
                index=index,
            )
        missing = [name for name in self.state_names if name not in state]
        if missing:
            raise ArgumentValueError(
                f"The state of weight {index!r} lacks {', '.join(missing)}, which {self.name} needs.",
                advice="Make states with create_state of this very optimizer, or load fitting ones.",
                index=index,
                missing=missing,
            )

    def _kind(self, index: Index, state: State, count: int) -> Hashable:
        """What tells weights with equal rates, decays and counts apart; None for most rules."""
        return None

    def _update_dense(self, jobs: list[Job], step: Step) -> None:
        """Update weights of one device and dtype that share a step."""
        if not self.use_fused_step or self.cut != "elements":
            for job in jobs:
                self._update_whole(job, step)
            return
        # A kernel that makes one walk over memory, and nothing on its way, gains nothing from blocks.
        size = UNCUT if self._is_one_walk(step) and fused_kernels.are_there_for(jobs[0].weight) else None
        for block in element_blocks(jobs, self.state_names, size):
            self._fast(block, step)

    def _update_whole(self, job: Job, step: Step) -> None:
        """Update one weight, uncut, by the plain equations."""
        dtype = computing_dtype(job.weight.dtype)
        target = job.target
        weight = target.to(dtype)
        self._plain(weight, job.gradient.to(dtype), job.state, step)
        if target is not weight:
            target.copy_(weight)
        if target is not job.weight:
            job.weight.copy_(target)

    def _update_rows(self, job: Job, gradient: RowSparse, step: Step) -> None:
        """Update one weight by a row-sparse gradient: by the dense rule, unless a class does better."""
        job.gradient = gradient.to_dense()
        self._update_dense([job], step)

    def _update_listed_rows(self, job: Job, gradient: RowSparse, step: Step) -> None:
        """Apply the rule to the listed rows, and leave all others and their states alone."""
        for _, block in chosen_row_blocks(job, gradient.indices, gradient.values, self.state_names):
            self._fast(block, step)

    def _is_one_walk(self, step: Step) -> bool:
        """True if, with a kernel of torch's, :meth:`_fast` makes no tensors beside those it is given."""
        return False

    def _fast(self, block: Block, step: Step) -> None:
        """Update pieces of weights; by the plain equations, unless a class does better."""
        for position, (weight, gradient) in enumerate(zip(block.weights, block.gradients, strict=True)):
            self._plain(weight, gradient, {name: pieces[position] for name, pieces in block.states.items()}, step)

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        """The rule's equations, as they are written, for one tensor; changes ``weight`` and ``state`` in place."""
        raise NotImplementedError(f"{type(self).__name__} has no rule.")

    # --- as data ------------------------------------------------------------------------------------------------

    def arguments(self) -> dict[str, Any]:
        """Give the constructor's arguments that make an equal optimizer, as plain values; a schedule is left out."""
        common = {
            "learning_rate": self.lr,
            "wd": self.wd,
            "rescale_grad": self.rescale_grad,
            "clip_gradient": self.clip_gradient,
            "begin_num_update": self.begin_num_update,
            "multi_precision": self.multi_precision,
            "aggregate_num": self.explicit_aggregate_num,
            "use_fused_step": self.use_fused_step,
            "param_idx2name": dict(self.idx2name),
        }
        return {**{name: getattr(self, name) for name in self.settings}, **common}

    def state_dict(self) -> dict[str, Any]:
        """Give everything but weights' states and the parameter table, as a plain tree.

        ``{"format": 1, "optimizer": name, "arguments": {…}, "schedule": tree or None, "num_update": n, "lr_mult":
        {…}, "wd_mult": {…}, "counts": {device: {index: n}}}``. Of a schedule that has no ``state_dict``, such as a
        plain function, nothing is kept.
        """
        schedule = self.lr_scheduler
        state_of = getattr(schedule, "state_dict", None)
        return {
            "format": FORMAT,
            "optimizer": self.name,
            "arguments": self.arguments(),
            "schedule": None if state_of is None else state_of(),
            "num_update": self.num_update,
            "lr_mult": dict(self.lr_mult),
            "wd_mult": dict(self.wd_mult),
            "counts": {device: dict(table) for device, table in self._counts.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the optimizer that was saved: settings, rate, schedule and counts. The parameter table stays.

        A saved schedule replaces this one's, except by a kind that keeps no state.

        :raises ArgumentValueError: the state is of another optimizer or of an unknown format. Nothing is changed then.
        """
        if state.get("format") != FORMAT:
            raise ArgumentValueError(
                f"This optimizer state has format {state.get('format')!r}, and {FORMAT} is the one that is known.",
                advice="It may come from a newer version of Ostinato.",
            )
        if state["optimizer"] != self.name:
            raise ArgumentValueError(
                f"The state was saved by {state['optimizer']}, and this optimizer is {self.name}.",
                advice=f"Go on with {state['optimizer']}, or start {self.name} without loading.",
                saved=state["optimizer"],
                found=self.name,
            )
        arguments = {name: value for name, value in state["arguments"].items() if value is not None}
        schedule = self.lr_scheduler
        saved = state["schedule"]
        if saved is not None:
            if schedule is None or isinstance(schedule, RateSchedule):
                schedule = schedule_from_state(saved)
            else:
                schedule.load_state_dict(saved)  # type: ignore[attr-defined]
        elif isinstance(schedule, RateSchedule):
            schedule = None  # the run that was saved had a fixed rate
        made = self._made_of(arguments)
        kept = ("lr_scheduler", "param_dict", "idx2name", "num_update", "lr_mult", "wd_mult", "_counts")
        self.__dict__.update({name: value for name, value in vars(made).items() if name not in kept})
        self.lr_scheduler = schedule
        self.idx2name = {**state["arguments"].get("param_idx2name", {}), **self.idx2name}
        self.num_update = int(state["num_update"])
        self.lr_mult, self.wd_mult = dict(state["lr_mult"]), dict(state["wd_mult"])
        self._counts = {device: dict(table) for device, table in state["counts"].items()}

    def _made_of(self, arguments: Mapping[str, Any]) -> Optimizer:
        return type(self)(**arguments)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.settings)
        return f"{type(self).__name__}(learning_rate={self.learning_rate}, wd={self.wd}{inside and ', '}{inside})"


def keywords_of(cls: type[Optimizer]) -> set[str]:
    """The keywords that a class' constructor and its bases' take."""
    found: set[str] = set()
    for each in cls.__mro__:
        if "__init__" in vars(each) and issubclass(each, Optimizer):
            found |= {
                name
                for name, parameter in inspect.signature(each.__init__).parameters.items()
                if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD) and name != "self"
            }
    return found


def as_gradient(gradient: Gradient) -> Gradient:
    """Take a gradient as callers hold it: sparse COO tensors become chosen rows."""
    if isinstance(gradient, Tensor) and gradient.layout != torch.strided:
        return RowSparse.from_coo(gradient)
    return gradient


def require_fused(name: str, use_fused_step: bool, multi_precision: bool = False) -> None:
    """Refuse a lazy update that MXNet has no kernel for.

    :raises ContractError: lazily, but not by the fused step, or with master copies.
    """
    if not use_fused_step:
        raise ContractError(
            f"{name} updates rows lazily only with its fused step, and use_fused_step is False.",
            advice="Leave one of lazy_update and use_fused_step=False out.",
        )
    if multi_precision:
        raise ContractError(
            f"{name} does not update rows lazily with float32 master copies.",
            advice="Leave one of lazy_update and multi_precision out.",
        )


def require_fraction(name: str, value: float) -> float:
    """Refuse anything but a number from 0 to below 1.

    :raises ArgumentValueError: ``value`` is another one.
    """
    if not 0 <= value < 1:
        raise ArgumentValueError(f"{name} is {value}.", advice=f"Give a {name} of at least 0 and below 1.")
    return float(value)


def require_not_negative(name: str, value: float) -> float:
    """Refuse a negative value.

    :raises ArgumentValueError: ``value`` is below 0.
    """
    if not value >= 0:
        raise ArgumentValueError(f"{name} is {value}.", advice=f"Give a {name} of at least 0.")
    return float(value)


def _overwrite_base_rate(schedule: Schedule, rate: float) -> None:
    if not hasattr(schedule, "base_lr"):
        raise ContractError(
            f"learning_rate is {rate}, and the schedule has no base rate that it could replace.",
            advice="Leave learning_rate out, or use a schedule of ostinato.optim.rate_schedules.",
        )
    if getattr(schedule, "base_lr") != rate:  # noqa: B009
        log.info("The schedule starts from the learning rate %s, not from its own %s", rate, schedule.base_lr)
    setattr(schedule, "base_lr", rate)  # noqa: B010 - the type of a plain function has no attributes
