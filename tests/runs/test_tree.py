from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import ArgumentTypeError
from ostinato.runs import pack_tree, unpack_tree

_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary(max_size=8).map(lambda content: torch.tensor(list(content), dtype=torch.uint8))
)
_KEYS = st.text() | st.integers() | st.booleans() | st.sampled_from(["$tensor", "$map", "$tuple"])
_TREES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(_KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)


def _same(first: Any, second: Any) -> bool:
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return list(first) == list(second) and all(_same(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, float):
        return (math.isnan(first) and math.isnan(second)) or (first, math.copysign(1, first)) == (
            second,
            math.copysign(1, second),
        )
    return first == second


@given(_TREES)
def test_every_tree_survives_strict_json(tree: Any) -> None:
    packed, tensors = pack_tree(tree)
    text = json.dumps(packed, allow_nan=False)
    assert _same(unpack_tree(json.loads(text), tensors), tree)


def test_tensors_are_named_by_their_path_and_not_copied() -> None:
    momentum = torch.ones(2)
    _, tensors = pack_tree({"state": [{"m": momentum}]})
    assert tensors["state.0.m"].data_ptr() == momentum.data_ptr()


def test_two_leaves_with_one_path_keep_their_values() -> None:
    tree = {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}}
    packed, tensors = pack_tree(tree)
    back = unpack_tree(packed, tensors)
    assert back["a.b"].item() == 0
    assert back["a"]["b"].item() == 1


def test_arrays_and_numpy_numbers() -> None:
    packed, tensors = pack_tree({"keys": np.arange(3, dtype=np.uint32), "zero": np.array(1.5), "n": np.int64(4)})
    back = unpack_tree(packed, tensors)
    assert back["keys"].dtype == np.uint32
    assert back["keys"].tolist() == [0, 1, 2]
    assert back["zero"].shape == ()
    assert back["n"] == 4


def test_the_state_of_pythons_generator_survives() -> None:
    import random

    state = random.Random(3).getstate()
    packed, tensors = pack_tree(state)
    assert unpack_tree(json.loads(json.dumps(packed)), tensors) == state


@pytest.mark.parametrize("leaf", [object(), b"bytes", {1, 2}, 1j, np.array(["text"]), np.array([object()])])
def test_what_cannot_be_saved_is_refused_by_path(leaf: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"here\.1"):
        pack_tree({"here": [0, leaf]})


def test_a_tree_that_holds_itself_is_refused() -> None:
    tree: dict[str, Any] = {}
    tree["self"] = tree
    with pytest.raises(ArgumentTypeError, match="levels deep"):
        pack_tree(tree)


@pytest.mark.parametrize("packed", [{"$tensor": "absent"}, {"$float": "1e999"}, {"$call": "os.system"}, {"$map": [1]}])
def test_unknown_marks_are_refused(packed: Any) -> None:
    with pytest.raises(ValueError):
        unpack_tree(packed, {})
