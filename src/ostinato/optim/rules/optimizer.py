"""The base of all optimizers: states, counts, master copies, and the way from a call to a rule."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Hashable, MutableMapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.optim.argument_checks import require_mapping, require_tensor
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
from ostinato.optim.rules.settings import Index, OptimizerSettings
from ostinato.optim.rules.step import Step

log = logging.getLogger(__name__)

Gradient: TypeAlias = Tensor | RowSparse
"""A dense tensor, a ``torch.sparse_coo`` tensor with one sparse dimension, or chosen rows."""

State: TypeAlias = dict[str, Any]
"""What an optimizer keeps for one weight: tensors and numbers by name. ``master_weight`` is the float32 copy."""

MASTER = "master_weight"


class Optimizer(OptimizerSettings):
    """Changes weights by gradients, each by its own rate and decay.

    A weight is known by its *index*. Its state is made by :meth:`create_state` and handed to every :meth:`update`; an
    :class:`~ostinato.optim.rules.updater.Updater` keeps states and does both. Optimizers keep no tensors themselves,
    so several updaters share one and see every change to its settings at their next update.

    The arguments are those of :class:`~ostinato.optim.rules.settings.OptimizerSettings` and the class' own.
    """

    state_names: tuple[str, ...] = ()
    """The tensors of a state that a rule works on, in the order of MXNet's files. May differ between objects."""
    cut: Literal["elements", "rows", "tensors"] = "elements"
    """Where a weight may be cut without changing the result: between any elements, between rows of the first
    dimension, or nowhere, because the rule looks at the whole tensor. May differ between objects."""
    divides_by_rate: ClassVar[bool] = False
    """True for rules that have no meaning at a rate of 0, and leave weight and state alone there."""
    per_worker_states: ClassVar[tuple[str, ...]] = ()
    """States that belong to the worker a gradient comes from, where several workers update one weight in turn."""

    # --- state --------------------------------------------------------------------------------------------------

    def create_state(self, index: Index, weight: Tensor) -> State:
        """Make the state of a weight: tensors of its shape on its device, and the master copy where one is kept.

        States of 16-bit weights are float32. Without a master copy a UserWarning says so: the rule then runs in
        float32 and its result is rounded into the weight at every update, which loses small changes.
        """
        check_index(index)
        reference = require_tensor(f"Weight {self.label(index)}", weight).detach()
        state: State = {}
        if weight.dtype in HALF_PRECISION:
            reference = reference.float()
            if self.multi_precision:
                state[MASTER] = reference
            else:
                warnings.warn(
                    f"Weight {self.label(index)} is {str(weight.dtype).removeprefix('torch.')} and is updated without "
                    "a float32 master copy, which loses changes that are small beside it. Use multi_precision=True.",
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
        check_index(index)
        require_tensor(f"Weight {self.label(index)}", weight)
        require_mapping(f"The state of weight {self.label(index)}", state, "Give what create_state() made.")
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
                    f"{self.label(index)}, and there is {found}.",
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
        check_lists(indices, weights, gradients, states)
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
        if not isinstance(weight, Tensor) or not isinstance(gradient, (Tensor, RowSparse)):
            require_tensor(f"Weight {self.label(index)}", weight)
            require_tensor(f"The gradient of weight {self.label(index)}", gradient)
        if not weight.is_floating_point():
            raise ArgumentTypeError(
                f"Weight {self.label(index)} is of {weight.dtype}, and only floating point can be trained.",
                advice="Convert it with .float().",
            )
        require_mapping(f"The state of weight {self.label(index)}", state, "Give what create_state() made.")
        if tuple(gradient.shape) != tuple(weight.shape) or gradient.device != weight.device:
            raise ArgumentValueError(
                f"The gradient of weight {self.label(index)} has shape {tuple(gradient.shape)} on {gradient.device}; "
                f"the weight has {tuple(weight.shape)} on {weight.device}.",
                advice="Give each weight its own gradient.",
                index=index,
            )
        missing = [name for name in self.state_names if name not in state]
        if missing:
            raise ArgumentValueError(
                f"The state of weight {self.label(index)} lacks {', '.join(missing)}, which {self.name} needs.",
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


def as_gradient(gradient: Gradient) -> Gradient:
    """Take a gradient as callers hold it: sparse COO tensors become chosen rows."""
    if isinstance(gradient, Tensor) and gradient.layout != torch.strided:
        return RowSparse.from_coo(gradient)
    return gradient


def check_lists(*lists: Any) -> None:
    """Refuse anything but lists of one length."""
    for given in lists:
        if not isinstance(given, (list, tuple)):
            raise ArgumentTypeError(
                f"Weights are handed over in lists, and one of these is {type(given).__name__}.",
                advice="Give a list with one entry for each weight.",
            )
    if len({len(given) for given in lists}) > 1:
        raise ArgumentValueError(
            f"The lists of a call have {', '.join(str(len(given)) for given in lists)} entries.",
            advice="Give one entry for each weight.",
        )


def check_index(index: Any) -> None:
    """Refuse what a weight cannot be known by."""
    if isinstance(index, bool) or not isinstance(index, (int, str)):
        raise ArgumentTypeError(
            f"A weight is known by a number or a name, not by {type(index).__name__}.", advice="Give its index."
        )
