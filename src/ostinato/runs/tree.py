"""Nested state as JSON and tensors, both ways.

A *tree* is a dict, list or tuple of trees, with leaves None, bool, int, float, str, :class:`torch.Tensor` and
:class:`numpy.ndarray`. It becomes plain JSON, in which every array is replaced by a name, and a flat mapping from
those names to tensors. Nothing else is taken: state that needs a class to be rebuilt is state that cannot be read
without running code.

What JSON cannot say is written as a dict with one key that starts with ``$``: ``$tensor`` and ``$array`` (a name),
``$float`` (``nan``, ``inf``, ``-inf``), ``$tuple`` (a list) and ``$map`` (pairs, for keys that are not text or start
with ``$``). Two more leaves belong to several ranks, and are only taken where ranks save together: ``$rows`` (a table
that is cut by rows, see :mod:`ostinato.runs.row_cut`) and ``$ranks`` (see :mod:`ostinato.dist.per_rank`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ostinato.dist.per_rank import PerRank
from ostinato.errors import ArgumentTypeError

if TYPE_CHECKING:
    from ostinato.runs.row_cut import RowCut

Tree: TypeAlias = Any
"""See the module's text."""

MAX_DEPTH = 100
"""Trees that are nested deeper are refused; a tree that holds itself would be endless."""


class Leaves:
    """What is cut out of a tree: everything that does not go into its JSON.

    :param ranks_save_together: take the leaves that belong to several ranks.
    """

    def __init__(self, *, ranks_save_together: bool = False) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.rows: dict[str, RowCut] = {}
        self.per_rank: dict[str, PerRank] = {}
        self.ranks_save_together = ranks_save_together


def pack_tree(tree: Tree, prefix: str = "") -> tuple[Any, dict[str, Tensor]]:
    """Cut a tree into JSON values and named tensors. No tensor is copied.

    :param prefix: put before the name of every tensor.
    :return: what :func:`json.dumps` takes with ``allow_nan=False``, and the tensors by their path in the tree.
    :raises ArgumentTypeError: a leaf is of another type; the message names its path.
    """
    leaves = Leaves()
    return _pack(tree, prefix, leaves, 0), leaves.tensors


def pack_shared_tree(tree: Tree, prefix: str = "") -> tuple[Any, Leaves]:
    """The same for a tree that may hold the leaves of several ranks."""
    leaves = Leaves(ranks_save_together=True)
    return _pack(tree, prefix, leaves, 0), leaves


def _pack(node: Tree, path: str, leaves: Leaves, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ArgumentTypeError(f"The state is nested more than {MAX_DEPTH} levels deep at {path[:200]!r}.")
    if node is None or isinstance(node, (bool, str)):
        return node
    if isinstance(node, np.generic):
        node = node.item()
    if isinstance(node, int):
        return operator.index(node)
    if isinstance(node, float):
        return float(node) if math.isfinite(node) else {"$float": repr(float(node))}
    if isinstance(node, (Tensor, np.ndarray)):
        name = _free_name(path, leaves.tensors)
        if isinstance(node, Tensor):
            leaves.tensors[name] = node.detach()
            return {"$tensor": name}
        if node.dtype.hasobject or node.dtype.kind not in "biuf":
            raise ArgumentTypeError(
                f"The array at {path!r} has the type {node.dtype}, which cannot be saved.",
                advice="Save arrays of numbers or truth values, and text as a list.",
            )
        leaves.tensors[name] = torch.from_numpy(np.ascontiguousarray(node).reshape(node.shape))
        return {"$array": name}
    if isinstance(node, Mapping):
        below = {key: _join(path, key) for key in node}
        if all(isinstance(key, str) and not key.startswith("$") for key in node):
            return {key: _pack(value, below[key], leaves, depth + 1) for key, value in node.items()}
        pairs = []
        for key, value in node.items():
            if not isinstance(key, (str, int, float, bool)) and key is not None:
                raise ArgumentTypeError(f"The key {key!r} at {path!r} is neither text nor a number.")
            pairs.append([_pack(key, "", Leaves(), depth + 1), _pack(value, below[key], leaves, depth + 1)])
        return {"$map": pairs}
    if isinstance(node, (list, tuple)):
        items = [_pack(item, _join(path, index), leaves, depth + 1) for index, item in enumerate(node)]
        return items if isinstance(node, list) else {"$tuple": items}
    if leaves.ranks_save_together:
        mark = _pack_of_several_ranks(node, path, leaves)
        if mark is not None:
            return mark
    raise ArgumentTypeError(
        f"The state at {path or 'the top'!r} is of type {type(node).__name__}, which cannot be saved.",
        advice="State may hold dicts, lists, tuples, numbers, text, None, tensors and arrays.",
    )


def _pack_of_several_ranks(node: Any, path: str, leaves: Leaves) -> dict[str, Any] | None:
    from ostinato.runs.row_cut import RowCut  # which holds trees

    if isinstance(node, RowCut):
        name = _free_name(path, leaves.rows)
        leaves.rows[name] = node
        return {"$rows": {"table": name, "file": node.file}}
    if isinstance(node, PerRank):
        name = _free_name(path, leaves.per_rank)
        leaves.per_rank[name] = node
        return {"$ranks": name}
    return None


def _free_name(path: str, taken: Mapping[str, Any]) -> str:
    name = path or "value"
    while name in taken:  # keys with dots can give two leaves one path
        name += "'"
    return name


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


SharedLeaf = Callable[[Any], Any]
"""Gives what stands for a leaf of several ranks, from the value of its mark."""


def unpack_tree(packed: Any, tensors: Mapping[str, Tensor], shared: Mapping[str, SharedLeaf] | None = None) -> Tree:
    """The tree that :func:`pack_tree` cut. Tensors are those of the mapping, not copies.

    :param shared: for ``$rows`` and ``$ranks``, what stands in their place.
    :raises ValueError: the JSON is not what :func:`pack_tree` writes, or names a tensor that is not there.
    """
    if isinstance(packed, list):
        return [unpack_tree(item, tensors, shared) for item in packed]
    if not isinstance(packed, dict):
        return packed
    if len(packed) == 1:
        ((key, value),) = packed.items()
        if key in ("$tensor", "$array"):
            if value not in tensors:
                raise ValueError(f"it names the tensor {value!r}, which is not there")
            return tensors[value] if key == "$tensor" else tensors[value].numpy()
        if key == "$float" and value in ("nan", "inf", "-inf"):
            return float(value)
        if key == "$tuple" and isinstance(value, list):
            return tuple(unpack_tree(item, tensors, shared) for item in value)
        if key == "$map" and isinstance(value, list) and all(isinstance(p, list) and len(p) == 2 for p in value):
            return {unpack_tree(k, {}): unpack_tree(v, tensors, shared) for k, v in value}
        if shared is not None and key in shared:
            return shared[key](value)
    if any(key.startswith("$") for key in packed):
        raise ValueError(f"it holds an unknown mark: {sorted(packed)[0]!r}")
    return {key: unpack_tree(value, tensors, shared) for key, value in packed.items()}
