"""Leaves of saved states, whatever cut they were saved by: tensors, or tables on disk that are read by ranges.

A leaf that belongs to the elements of a weight may have been saved flat, as slices that ranks have handed over, or in
the weight's own shape. Who reads it asks for elements or for rows, and reads no more than these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ostinato.dist.per_rank import PerRank
from ostinato.optim.rules.missed_steps import MISSED_STEPS
from ostinato.optim.rules.torch_optimizer import TORCH
from ostinato.runs.row_cut import RowCut, RowCutTable

Leaf: TypeAlias = Tensor | RowCutTable

_COUNTS_OF_TORCH = frozenset({"step", "mu_product", "eta", "mu"})
"""States of ``torch.optim`` that are one number for a whole weight."""


def size_of(leaf: Leaf) -> int:
    """Number of elements."""
    return math.prod(leaf.shape)


def element_range(leaf: Leaf, first: int, last: int) -> Tensor:
    """Elements ``first`` to ``last`` (not included) of a leaf, as if it were flat."""
    if isinstance(leaf, Tensor):
        return leaf.reshape(-1)[first:last]
    width = math.prod(leaf.row_shape)
    if first == last:
        return torch.empty(0, dtype=leaf.dtype)
    begin, end = first // width, -(-last // width)
    return leaf.read(begin, end).reshape(-1)[first - begin * width : last - begin * width]


def row_range(leaf: Leaf, shape: Sequence[int], first: int, last: int) -> Tensor:
    """Rows ``first`` to ``last`` (not included) of a leaf that belongs to the rows of a weight of this shape."""
    if is_flat(leaf, shape):
        width = math.prod(shape[1:])
        return element_range(leaf, first * width, last * width).view(last - first, *shape[1:])
    return leaf[first:last] if isinstance(leaf, Tensor) else leaf.read(first, last)


def read_whole(leaf: Leaf, shape: Sequence[int] | None = None) -> Tensor:
    """All of a leaf; in the shape of its weight where it was saved flat."""
    tensor = leaf if isinstance(leaf, Tensor) else leaf.read()
    return tensor.reshape(tuple(shape)) if shape is not None and is_flat(leaf, shape) else tensor


def is_flat(leaf: Leaf, shape: Sequence[int]) -> bool:
    """Whether the elements of a weight of this shape were saved one after the other."""
    return len(shape) != 1 and len(leaf.shape) == 1 and leaf.shape[0] == math.prod(shape)


# --- trees of them ---------------------------------------------------------------------------------------------------


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Path and leaf, for all that a weight's cut cuts too. Not so torch's counts, and the steps that rows have missed,
    which are those of all rows."""
    if isinstance(tree, (Tensor, RowCutTable)):
        yield path, tree
    elif isinstance(tree, Mapping):
        for name, part in tree.items():
            if name != MISSED_STEPS and not (path[-1:] == (TORCH,) and name in _COUNTS_OF_TORCH):
                yield from leaves(part, (*path, name))
    elif isinstance(tree, (list, tuple)):
        for number, part in enumerate(tree):
            yield from leaves(part, (*path, number))


def with_leaves(tree: Any, found: Mapping[tuple[Any, ...], Any], path: tuple[Any, ...] = ()) -> Any:
    """The same tree with the leaves at these paths replaced."""
    if path in found:
        return found[path]
    if isinstance(tree, Mapping):
        return {name: with_leaves(part, found, (*path, name)) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(with_leaves(part, found, (*path, number)) for number, part in enumerate(tree))
    return tree


def changed(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The same tree with every leaf of :func:`leaves` changed."""
    return with_leaves(tree, {path: change(leaf) for path, leaf in leaves(tree)})


def holds_parts(tree: Any) -> bool:
    """Whether a tree holds parts as ranks hand them over to be saved."""
    if isinstance(tree, Mapping):
        return any(holds_parts(part) for part in tree.values())
    if isinstance(tree, (list, tuple)):
        return any(holds_parts(part) for part in tree)
    return isinstance(tree, (RowCut, PerRank))
