from __future__ import annotations

from collections import namedtuple

import torch

from ostinato.loop.batches import batch_size, to_device


def test_the_size_is_the_first_dimension_of_the_first_tensor() -> None:
    x = torch.zeros(4, 2)
    assert batch_size(x) == 4
    assert batch_size({"name": "a", "x": x}) == 4
    assert batch_size(["a", [None, (x,)]]) == 4
    assert [batch_size(value) for value in ("abc", None, 3, torch.zeros(()), {}, [])] == [None] * 6


def test_moving_keeps_the_shape_of_the_batch() -> None:
    Pair = namedtuple("Pair", "x y")
    x = torch.zeros(2)
    moved = to_device({"pair": Pair(x, "y"), "list": [x, 1], "tuple": (x,)}, torch.device("meta"))
    assert isinstance(moved["pair"], Pair)
    assert moved["pair"].x.device.type == moved["list"][0].device.type == moved["tuple"][0].device.type == "meta"
    assert (moved["pair"].y, moved["list"][1]) == ("y", 1)
