"""Weights cut into blocks that stay in the cache while a rule makes its passes over them.

A rule written with torch's operations walks over its tensors once per operation. Over 25 million parameters each pass
goes to main memory; over a block of a few hundred thousand, only the first does, and temporaries are as small as the
block. On accelerators a block is large, so that few kernels are launched, and yet bounds the temporaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

HALF_PRECISION = frozenset({torch.float16, torch.bfloat16})

ELEMENTS_PER_CORE = 2**18
"""Block size per CPU thread: five float32 tensors of it take 5 MiB of cache. Smaller blocks cost more in calls than
they save in traffic (``benchmarks/optimizer_step.py``)."""
ELEMENTS_ON_ACCELERATORS = 2**24
UNCUT = 2**60
"""More than any tensor holds."""


def computing_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which rules run for weights of this one: float32 for the 16-bit ones, else the same."""
    return torch.float32 if dtype in HALF_PRECISION else dtype


@dataclass
class Job:
    """One weight with what belongs to it."""

    index: int | str
    weight: Tensor
    gradient: Tensor
    state: dict[str, Any]

    @property
    def target(self) -> Tensor:
        """The tensor that the rule changes: the master copy where there is one."""
        return self.state.get("master_weight", self.weight)


@dataclass
class Block:
    """Pieces of weights, side by side with the same pieces of gradients and states."""

    jobs: list[int] = field(default_factory=list)
    """For each piece, the position of its weight in the list of jobs."""
    weights: list[Tensor] = field(default_factory=list)
    """In the computing dtype; changed in place."""
    gradients: list[Tensor] = field(default_factory=list)
    """In the computing dtype; may be the caller's own, never changed."""
    states: dict[str, list[Tensor]] = field(default_factory=dict)
    """By name, in the computing dtype; changed in place."""
    stored: list[Tensor] = field(default_factory=list)
    """The caller's weights, which receive the result where they are not ``weights`` themselves."""

    def widened(self, dtype: torch.dtype) -> Block:
        """The same block with weights and gradients in the computing dtype."""
        self.weights = [w if w.dtype == dtype else w.to(dtype) for w in self.weights]
        self.gradients = [g if g.dtype == dtype else g.to(dtype) for g in self.gradients]
        return self

    def store(self) -> None:
        """Round the result into the caller's weights."""
        for stored, weight in zip(self.stored, self.weights, strict=True):
            if stored is not weight:
                stored.copy_(weight)


def block_size(device: torch.device) -> int:
    """How many elements a block holds on this device."""
    if device.type == "cpu":
        return ELEMENTS_PER_CORE * max(1, torch.get_num_threads())
    return ELEMENTS_ON_ACCELERATORS


def element_blocks(jobs: Sequence[Job], state_names: Sequence[str], size: int | None = None) -> Iterator[Block]:
    """Cut weights anywhere; what the consumer leaves in a block's weights is stored when it asks for the next.

    :param jobs: weights of one device and one dtype; states have the shape of their weight.
    :param size: elements in a block; by default what suits the device.
    """
    size = size or block_size(jobs[0].weight.device)
    dtype = computing_dtype(jobs[0].weight.dtype)
    block, used = Block(states={name: [] for name in state_names}), 0
    for number, job in enumerate(jobs):
        elements = job.weight.numel()
        if elements == 0:
            continue
        target = job.target
        tensors = [target, job.gradient, *[job.state[name] for name in state_names]]
        if target is not job.weight:
            tensors.append(job.weight)
        pieces: Iterable[Sequence[Tensor]] = (tensors,)
        if elements > size or not target.is_contiguous():
            flat = _flat(tensors)
            if flat is not None:
                pieces = zip(*(tensor.split(size) for tensor in flat), strict=True)
        for weight, gradient, *states in pieces:
            if used and used + weight.numel() > size:
                yield block.widened(dtype)
                block.store()
                block, used = Block(states={name: [] for name in state_names}), 0
            block.jobs.append(number)
            block.weights.append(weight)
            block.gradients.append(gradient)
            block.stored.append(weight if target is job.weight else states.pop())
            for name, state in zip(state_names, states, strict=True):
                block.states[name].append(state)
            used += weight.numel()
    if block.jobs:
        yield block.widened(dtype)
        block.store()


def measured_blocks(jobs: Sequence[Job], state_names: Sequence[str]) -> Iterator[Block]:
    """Cut weights as :func:`element_blocks` does, for walks that sum up numbers over whole weights.

    On an accelerator, where sums of several pieces would come in any order, weights stay whole.
    """
    return element_blocks(jobs, state_names, None if jobs[0].weight.device.type == "cpu" else UNCUT)


def whole_groups(jobs: Sequence[Job], size: int) -> Iterator[list[Job]]:
    """Group weights so that each group has at most so many elements; a larger weight stays alone."""
    group: list[Job] = []
    used = 0
    for job in jobs:
        elements = job.weight.numel()
        if group and used + elements > size:
            yield group
            group, used = [], 0
        group.append(job)
        used += elements
    if group:
        yield group


def chosen_row_blocks(
    job: Job, rows: Tensor, values: Tensor | None, state_names: Sequence[str]
) -> Iterator[tuple[Tensor, Block]]:
    """Copy the chosen rows out block by block, and back when the consumer asks for the next.

    Costs and temporaries grow with the chosen rows alone.

    :param rows: (n,) int64 without repeats.
    :param values: (n, \\*row shape), the gradient's rows; None for blocks without gradients.
    :returns: pairs of the row numbers and the block.
    """
    target = job.target
    dtype = computing_dtype(job.weight.dtype)
    width = max(1, target[0].numel()) if len(target) else 1
    size = max(1, block_size(target.device) // width)
    if not len(rows):
        return
    for part, chosen in enumerate(rows.split(size)):
        weight = target.index_select(0, chosen)
        gradients = [] if values is None else [values[part * size : part * size + len(chosen)]]
        states = {name: [job.state[name].index_select(0, chosen)] for name in state_names}
        block = Block([0], [weight], gradients, states, [weight]).widened(dtype)
        yield chosen, block
        (weight,) = block.weights
        target.index_copy_(0, chosen, weight.to(target.dtype))
        if target is not job.weight:
            job.weight.index_copy_(0, chosen, weight.to(job.weight.dtype))
        for name, (state,) in block.states.items():
            job.state[name].index_copy_(0, chosen, state)


def _flat(tensors: list[Tensor]) -> list[Tensor] | None:
    """One-dimensional views in one common order, or None where there is none. The second may become a copy.

    Weights in channels-last layout are contiguous once their dimensions are put in order of stride.
    """
    first = tensors[0]
    if not first.is_contiguous():
        order = sorted(range(first.ndim), key=first.stride, reverse=True)
        tensors = [tensor.permute(order) for tensor in tensors]
    flat = []
    for position, tensor in enumerate(tensors):
        if tensor.is_contiguous():
            flat.append(tensor.view(-1))
        elif position == 1:
            flat.append(tensor.reshape(-1))
        else:
            return None
    return flat
