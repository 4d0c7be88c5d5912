"""Are the embeddings and labels of a step what the head can work with? Found out before any rank waits for another."""

from __future__ import annotations

import torch
from torch import Tensor

from ostinato.dist import Group
from ostinato.errors import ArgumentTypeError, ArgumentValueError, OstinatoError

_INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


def problem_of(
    embeddings: Tensor, labels: Tensor, classes: int, size: int, device: torch.device
) -> OstinatoError | None:
    """What is wrong with this rank's part of a step; None if nothing is.

    :param embeddings: to be (B, size), floating, on ``device``.
    :param labels: to be (B,), integers below ``classes``; on the host, or the host waits.
    """
    if not isinstance(embeddings, Tensor) or embeddings.ndim != 2 or embeddings.shape[1] != size:
        shape = tuple(embeddings.shape) if isinstance(embeddings, Tensor) else type(embeddings).__name__
        return ArgumentValueError(
            f"The embeddings have shape {shape}, and the head takes (batch, {size}).",
            advice="Give the backbone's output for a whole batch, and build the head with its embedding_size.",
            shape=shape,
        )
    if not embeddings.is_floating_point():
        return ArgumentTypeError(f"The embeddings are {_name(embeddings.dtype)}.", advice="Give floating numbers.")
    if embeddings.device != device:
        return ArgumentValueError(
            f"The embeddings are on the device {embeddings.device}, and the class centres on {device}.",
            advice="Compute the embeddings there, or build the head with their device.",
            device=str(embeddings.device),
        )
    if not isinstance(labels, Tensor):
        return ArgumentTypeError(f"The labels are a {type(labels).__name__}.", advice="Give a tensor of integers.")
    if labels.dtype not in _INTEGERS:
        return ArgumentTypeError(
            f"The labels are {_name(labels.dtype)}.",
            advice="Labels are class numbers: give integers, such as labels.long() of whole numbers.",
            dtype=_name(labels.dtype),
        )
    if labels.shape != embeddings.shape[:1]:
        return ArgumentValueError(
            f"There are embeddings of shape {tuple(embeddings.shape)} and labels of shape {tuple(labels.shape)}.",
            advice="Give one label, a number, for each embedding.",
            shape=tuple(labels.shape),
        )
    labels = labels.long()  # a small dtype would compare with what is left of the number of classes in it
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        value, lowest, highest = int(wrong[0]), int(labels.min()), int(labels.max())
        return ArgumentValueError(
            f"{len(wrong)} of {len(labels)} labels are no class, the first of them {value}: the head has classes 0 "
            f"to {classes - 1}, and the labels here go from {lowest} to {highest}.",
            advice="Build the head with as many classes as the data has, or number the labels from 0 without gaps.",
            value=value,
            classes=classes,
            lowest=lowest,
            highest=highest,
        )
    return None


def agree_on_batch(problem: OstinatoError | None, batch: int, group: Group) -> tuple[int, ...]:
    """How many samples each rank has; or the same failure on all ranks. A collective.

    :param problem: what is wrong on this rank.
    :raises ArgumentValueError: something is wrong on a rank, which is named; on that rank, its own error. Fields:
        ``rank``, and those of that rank's error.
    """
    if group.size == 1:
        if problem is not None:
            raise problem
        return (batch,)
    sizes = [int(size) for size in group.sum_of(_only(group, -1.0 if problem is not None else float(batch)))]
    if min(sizes) >= 0:
        return tuple(sizes)
    said = group.gather(None if problem is None else (problem.what, problem.advice, problem.fields))
    rank, first = next((rank, one) for rank, one in enumerate(said) if one is not None)
    what, advice, fields = first
    if problem is not None:
        raise type(problem)(
            f"Rank {group.rank}: {problem.what}", advice=problem.advice, rank=group.rank, **problem.fields
        )
    raise ArgumentValueError(f"Rank {rank}: {what}", advice=advice, rank=rank, **fields)


def _only(group: Group, number: float) -> list[float]:
    """A list for a sum over the ranks that gathers a number of each, exactly."""
    numbers = [0.0] * group.size
    numbers[group.rank] = number
    return numbers


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
