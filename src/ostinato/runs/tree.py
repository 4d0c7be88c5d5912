"""Nested state as JSON and tensors, both ways.

A *tree* is a dict, list or tuple of trees, with leaves None, bool, int, float, str, :class:`torch.Tensor` and
:class:`numpy.ndarray`. It becomes plain JSON, in which every array is replaced by a name, and a flat mapping from
those names to tensors. Nothing else is taken: state that needs a class to be rebuilt is state that cannot be read
without running code.

What JSON cannot say is written as a dict with one key that starts with ``$``: ``$tensor`` and ``$array`` (a name),
``$float`` (``nan``, ``inf``, ``-inf``), ``$tuple`` (a list) and ``$map`` (pairs, for keys that are not text or start
with ``$``).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError

Tree: TypeAlias = Any
"""See the module's text."""

MAX_DEPTH = 100
"""Trees that are nested deeper are refused; a tree that holds itself would be endless."""


def pack_tree(tree: Tree, prefix: str = "") -> tuple[Any, dict[str, Tensor]]:
    """Cut a tree into JSON values and named tensors. No tensor is copied.

    :param prefix: put before the name of every tensor.
    :return: what :func:`json.dumps` takes with ``allow_nan=False``, and the tensors by their path in the tree.
    :raises ArgumentTypeError: a leaf is of another type; the message names its path.
    """
    tensors: dict[str, Tensor] = {}
    return _pack(tree, prefix, tensors, 0), tensors


def _pack(node: Tree, path: str, tensors: dict[str, Tensor], depth: int) -> Any:
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
        name = path or "value"
        while name in tensors:  # keys with dots can give two leaves one path
            name += "'"
        if isinstance(node, Tensor):
            tensors[name] = node.detach()
            return {"$tensor": name}
        if node.dtype.hasobject or node.dtype.kind not in "biuf":
            raise ArgumentTypeError(f"The array at {path!r} has the type {node.dtype}, which cannot be saved.")
        tensors[name] = torch.from_numpy(np.ascontiguousarray(node).reshape(node.shape))
        return {"$array": name}
    if isinstance(node, Mapping):
        below = {key: _join(path, key) for key in node}
        if all(isinstance(key, str) and not key.startswith("$") for key in node):
            return {key: _pack(value, below[key], tensors, depth + 1) for key, value in node.items()}
        pairs = []
        for key, value in node.items():
            if not isinstance(key, (str, int, float, bool)) and key is not None:
                raise ArgumentTypeError(f"The key {key!r} at {path!r} is neither text nor a number.")
            pairs.append([_pack(key, "", {}, depth + 1), _pack(value, below[key], tensors, depth + 1)])
        return {"$map": pairs}
    if isinstance(node, (list, tuple)):
        items = [_pack(item, _join(path, index), tensors, depth + 1) for index, item in enumerate(node)]
        return items if isinstance(node, list) else {"$tuple": items}
    raise ArgumentTypeError(
        f"The state at {path or 'the top'!r} is of type {type(node).__name__}, which cannot be saved.",
        advice="State may hold dicts, lists, tuples, numbers, text, None, tensors and arrays.",
    )


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def unpack_tree(packed: Any, tensors: Mapping[str, Tensor]) -> Tree:
    """The tree that :func:`pack_tree` cut. Tensors are those of the mapping, not copies.

    :raises ValueError: the JSON is not what :func:`pack_tree` writes, or names a tensor that is not there.
    """
    if isinstance(packed, list):
        return [unpack_tree(item, tensors) for item in packed]
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
            return tuple(unpack_tree(item, tensors) for item in value)
        if key == "$map" and isinstance(value, list) and all(isinstance(p, list) and len(p) == 2 for p in value):
            return {unpack_tree(k, {}): unpack_tree(v, tensors) for k, v in value}
    if any(key.startswith("$") for key in packed):
        raise ValueError(f"it holds an unknown mark: {sorted(packed)[0]!r}")
    return {key: unpack_tree(value, tensors) for key, value in packed.items()}
