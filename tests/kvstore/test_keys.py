from __future__ import annotations

import pytest
import torch

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore.keys import KeyKind, arranged, key_list

ONE, TWO, THREE = (torch.full((1,), value) for value in (1.0, 2.0, 3.0))


def test_a_single_key_takes_a_value_or_one_for_each_replica() -> None:
    assert arranged(3, ONE) == {3: [ONE]}
    assert arranged("w", [ONE, TWO]) == {"w": [ONE, TWO]}
    assert key_list("w") == ["w"]


def test_a_list_of_keys_takes_a_list_of_either() -> None:
    assert arranged([1, 2], [ONE, [TWO, THREE]]) == {1: [ONE], 2: [TWO, THREE]}
    assert arranged([1, 2], [[], ONE]) == {1: [], 2: [ONE]}


def test_values_of_a_repeated_key_are_put_together() -> None:
    assert arranged([1, 2, 1], [ONE, TWO, THREE]) == {1: [ONE, THREE], 2: [TWO]}


def test_keys_and_values_have_to_be_as_many() -> None:
    with pytest.raises(ArgumentValueError, match="2 keys has 3 values"):
        arranged([1, 2], [ONE, TWO, THREE])
    with pytest.raises(ArgumentTypeError, match="not float"):
        arranged(1, 3.0)


def test_the_first_key_fixes_the_kind() -> None:
    numbers, texts = KeyKind(), KeyKind()
    numbers.check([1, 2])
    texts.check(["a"])
    with pytest.raises(ArgumentValueError, match="keys are numbers"):
        numbers.check([3, "b"])
    with pytest.raises(ArgumentValueError, match="keys are text"):
        texts.check([1])
    with pytest.raises(ArgumentTypeError, match="bool"):
        key_list([True])
