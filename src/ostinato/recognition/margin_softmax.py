"""The loss: a softmax with a margin over classes that are cut over the ranks, of which some take part.

Every rank has the embeddings of all ranks and its own classes. With z the logits, a sample's loss is

    -log(p),   p = exp(z_own - M) / sum over all ranks and classes of exp(z - M),   M = the largest z of all ranks

so two small exchanges (the largest logits; the sums, together with the terms of the own classes) make it exact. In the
backward pass the gradients of the embeddings, of which each rank knows the part of its classes, are added up.

Memory of a pass: ``4 * N * S`` bytes for N samples and S classes on this rank (and N * S more each for inter-class
filtering and for sub-centres) beside blocks of fixed size. It is held until the backward pass, and then, as a factor of
the gradient, until the centres have been updated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ostinato.errors import StateError
from ostinato.kvstore.collective_calls import Collectives
from ostinato.recognition.class_centres import ClassCentres
from ostinato.recognition.collected_gradient import SMALLEST_NORM, CollectedGradient
from ostinato.recognition.margins import Margin

SMALLEST_PROBABILITY = 1e-30
"""A sample's loss is at most 69.08, the negative logarithm of this."""


@dataclass(frozen=True, eq=False)
class Step:
    """Who takes part in one pass.

    :ivar batch_sizes: samples of each rank; all ranks know them.
    :ivar classes: (S,) int64, this rank's classes that take part, ascending, counted from its first; None: all.
    :ivar samples: (P,) int64, the samples of all ranks whose class is one of these.
    :ivar places: (P,) int64, the positions of their classes in ``classes``.
    """

    batch_sizes: tuple[int, ...]
    classes: Tensor | None
    samples: Tensor
    places: Tensor


@dataclass(eq=False)
class Pass:
    """What a backward pass needs of its forward pass."""

    step: Step
    gradient: CollectedGradient
    version: int
    own: Tensor
    """(B, d), this rank's embeddings divided by their lengths."""
    own_inverse_lengths: Tensor
    """(B, 1)"""
    own_is_short: Tensor
    """(B, 1) bool: shorter than what is divided by"""
    per_sample: Tensor
    """(N, 1), what multiplies the slopes of each sample."""
    is_finite: Tensor
    """() bool"""
    dtype: torch.dtype
    """of the embeddings as they came."""

    def release(self) -> None:
        """Let go of the memory, also where the loss is still held: the centres have moved on, and it cannot go backward
        any more."""
        empty = self.gradient.slopes.new_empty(0)
        self.gradient = CollectedGradient(None, empty, None, empty, empty, empty)


def margin_softmax_loss(
    embeddings: Tensor,
    centres: ClassCentres,
    margin: Margin,
    step: Step,
    collectives: Collectives,
    collect: Callable[[Pass], None],
) -> Tensor:
    """The mean loss of the samples of all ranks; the same on every rank. A collective, and so is its backward pass.

    Computed in the dtype of the centres, whatever autocast says. The gradient of the embeddings is that of the mean
    over all ranks' samples, without further factors.

    :param embeddings: (B, d), this rank's.
    :param collect: is given the pass when its first backward pass comes; the centres' gradient grows with each.
    :return: (); 0 where no rank has a sample.
    """
    anchor = torch.zeros((), requires_grad=True)  # centres are trained also where nothing below the head is
    return _MarginSoftmax.apply(embeddings, anchor, centres, margin, step, collectives, collect)


class _MarginSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        embeddings: Tensor,
        anchor: Tensor,
        centres: ClassCentres,
        margin: Margin,
        step: Step,
        collectives: Collectives,
        collect: Callable[[Pass], None],
    ) -> Tensor:
        with torch.autocast(embeddings.device.type, enabled=False):
            loss, made = _forward(embeddings, centres, margin, step, collectives)
        ctx.made, ctx.centres, ctx.collectives, ctx.collect = made, centres, collectives, collect
        return loss

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        (gradient,) = grad_outputs
        made: Pass = ctx.made
        if torch.is_grad_enabled():
            raise StateError(
                "Second derivatives of the loss of class centres were asked for (create_graph=True).",
                advice="The head gives first derivatives alone; take penalties on gradients from the plain form, "
                "margin_logits, with few classes.",
            )
        if made.version != ctx.centres.version:
            raise StateError(
                "The class centres have been updated since this loss was computed, so its gradient is lost.",
                advice="Call backward() before step(), or compute the loss again.",
            )
        ctx.collect(made)
        with torch.autocast(gradient.device.type, enabled=False):
            own = _backward(gradient, made, ctx.centres, ctx.collectives)
        return own, None, None, None, None, None, None


def _forward(
    embeddings: Tensor, centres: ClassCentres, margin: Margin, step: Step, collectives: Collectives
) -> tuple[Tensor, Pass]:
    dtype, device = centres.weight.dtype, centres.weight.device
    own = embeddings.to(dtype)
    own_lengths = torch.linalg.vector_norm(own, dim=1, keepdim=True)
    own_inverse = 1.0 / own_lengths.clamp_min(SMALLEST_NORM)
    samples = gather_rows(own, step.batch_sizes, collectives)
    lengths = torch.linalg.vector_norm(samples, dim=1, keepdim=True).clamp_min_(SMALLEST_NORM)
    # A network whose numbers are so large that their length overflows must not pass for one that says nothing.
    samples = samples / lengths.masked_fill_(lengths.isinf(), math.nan)
    number = len(samples)
    classes = centres.classes if step.classes is None else len(step.classes)

    # Line j of this is class j. Being built up are: cosines, with margins; exponentials; slopes.
    table = torch.empty((classes, number), dtype=dtype, device=device)
    sub_centres = centres.sub_centres
    nearest = torch.empty((classes, number), dtype=torch.uint8, device=device) if sub_centres > 1 else None
    inverse_lengths = torch.empty(classes * sub_centres, dtype=dtype, device=device)
    across = samples.t()
    for start, end, rows in centres.blocks(step.classes):
        inverse = inverse_lengths[start * sub_centres : end * sub_centres]
        torch.linalg.vector_norm(rows, dim=1, out=inverse)
        inverse.clamp_min_(SMALLEST_NORM).reciprocal_()
        block = table[start:end]
        if nearest is None:
            torch.mm(rows, across, out=block)
            block.mul_(inverse.unsqueeze(1))
        else:
            cosines = (rows @ across).mul_(inverse.unsqueeze(1)).view(end - start, sub_centres, number)
            best, which = cosines.max(dim=1)
            block.copy_(best)
            nearest[start:end] = which
        block.clamp_(-1.0, 1.0)

    filtered = None
    if margin.interclass_threshold > 0:
        filtered = table > margin.interclass_threshold
        filtered[step.places, step.samples] = False
        table.masked_fill_(filtered, 0.0)
    values, slopes = margin.target(table[step.places, step.samples])
    table[step.places, step.samples] = values

    largest = _largest(table, number).mul_(margin.scale)
    collectives.all_reduce(largest, dist.ReduceOp.MAX).wait()
    sums = torch.zeros((2, number), dtype=dtype, device=device)
    for start, end in centres.block_bounds(classes):
        block = table[start:end]
        block.mul_(margin.scale).sub_(largest).exp_()
        sums[0].add_(block.sum(dim=0))
        if filtered is not None:
            # They count in the sum, and nothing follows from moving them.
            block.masked_fill_(filtered[start:end], 0.0)
    sums[1, step.samples] = table[step.places, step.samples]
    collectives.all_reduce(sums).wait()
    total, target = sums
    losses = -torch.log((target / total).clamp_min(SMALLEST_PROBABILITY))
    loss = losses.sum() / number if number else losses.sum()

    # d loss / d cosine is scale/N * (p - [own class]) * slope; 1/total is kept apart, for each sample.
    table[step.places, step.samples] = (target - total)[step.samples] * slopes
    per_sample = (margin.scale / (total * max(1, number))).unsqueeze(1)
    gradient = CollectedGradient(
        step.classes,
        table,
        nearest,
        inverse_lengths,
        samples * per_sample,
        torch.zeros((), dtype=dtype, device=device),
    )
    first = sum(step.batch_sizes[: collectives.rank])
    mine = slice(first, first + step.batch_sizes[collectives.rank])
    is_finite = torch.isfinite(loss) & torch.isfinite(slopes).all()
    made = Pass(
        step,
        gradient,
        centres.version,
        samples[mine],
        own_inverse,
        own_lengths < SMALLEST_NORM,
        per_sample,
        is_finite,
        embeddings.dtype,
    )
    return loss, made


def _backward(gradient: Tensor, made: Pass, centres: ClassCentres, collectives: Collectives) -> Tensor:
    collected = made.gradient
    collected.factor = collected.factor + gradient
    number, width = collected.samples.shape
    total = torch.zeros((number, width), dtype=collected.samples.dtype, device=gradient.device)
    for start, end, rows in centres.blocks(made.step.classes):
        slopes = collected.slopes_by_row(slice(start, end), centres.sub_centres)
        inverse = collected.inverse_lengths[start * centres.sub_centres : end * centres.sub_centres]
        total.addmm_((slopes * inverse.unsqueeze(1)).t(), rows)
    total.mul_(made.per_sample * gradient)
    own = sum_rows(total, made.step.batch_sizes, collectives)
    # Through the division by the length, which is a division by a constant where the embedding is too short.
    along = (own * made.own).sum(dim=1, keepdim=True)
    along = along.masked_fill(made.own_is_short, 0.0)
    return ((own - along * made.own) * made.own_inverse_lengths).to(made.dtype)


def _largest(table: Tensor, number: int) -> Tensor:
    """The largest of each column; minus infinity where there are no lines."""
    if not len(table):
        return torch.full((number,), -math.inf, dtype=table.dtype, device=table.device)
    return table.amax(dim=0)


def gather_rows(own: Tensor, counts: tuple[int, ...], collectives: Collectives) -> Tensor:
    """The rows of all ranks, in rank order; a collective.

    :param own: (counts[rank], \\*row shape).
    :return: (sum of counts, \\*row shape). Of one rank, its own tensor.
    """
    if len(counts) == 1:
        return own
    most = max(counts)
    if most == 0:
        return own
    sent = own.contiguous()
    if len(own) < most:
        sent = own.new_zeros((most, *own.shape[1:]))
        sent[: len(own)] = own
    received = own.new_empty((len(counts) * most, *own.shape[1:]))
    collectives.all_gather(received, sent).wait()
    if min(counts) == most:
        return received
    return torch.cat([received[rank * most : rank * most + count] for rank, count in enumerate(counts)])


def sum_rows(whole: Tensor, counts: tuple[int, ...], collectives: Collectives) -> Tensor:
    """This rank's rows of the sum over the ranks; a collective.

    :param whole: (sum of counts, d).
    :return: (counts[rank], d). Of one rank, the tensor that was given.
    """
    if len(counts) == 1:
        return whole
    most, count = max(counts), counts[collectives.rank]
    if most == 0:
        return whole
    sent = whole
    if min(counts) < most:
        sent = whole.new_zeros((len(counts), most, whole.shape[1]))
        for rank, part in enumerate(whole.split(list(counts))):
            sent[rank, : len(part)] = part
        sent = sent.view(-1, whole.shape[1])
    received = whole.new_empty((most, whole.shape[1]))
    collectives.reduce_scatter(received, sent).wait()
    return received[:count]
