from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch

from ostinato.loop import Turn, UpdaterState
from ostinato.loop.turn import SharedOutputs

Pair = namedtuple("Pair", "x y")


def outputs(functions: dict[str, Any], batch: Any = None) -> tuple[Turn, SharedOutputs]:
    shared = SharedOutputs(functions, batch)
    return Turn("part", 0, UpdaterState(), shared), shared


def test_an_output_is_computed_once_for_all_turns() -> None:
    weight = torch.ones((), requires_grad=True)
    calls = []

    def double(batch: Any, turn: Turn) -> torch.Tensor:
        calls.append(batch)
        return weight * 2 * batch

    turn, shared = outputs({"double": double}, batch=5)
    assert float(turn.detached("double")) == 10
    assert not turn.detached("double").requires_grad
    shared.end_turn()
    assert turn["double"].requires_grad
    assert turn["double"] is turn["double"]
    assert calls == [5]


def test_a_graph_that_was_gone_through_is_made_anew_and_its_values_stay() -> None:
    weight = torch.ones((), requires_grad=True)
    turn, shared = outputs({"double": lambda batch, turn: weight * 2})
    turn["double"].backward()
    shared.end_turn()
    with torch.no_grad():
        weight += 1
    assert float(turn.detached("double")) == 2
    assert float(turn["double"].detach()) == 4
    assert float(turn.detached("double")) == 4
    turn["double"].backward()


def test_an_output_made_from_another_uses_the_graph_of_both_and_only_when_it_is_used() -> None:
    weight = torch.ones((), requires_grad=True)
    calls = []

    def base(batch: Any, turn: Turn) -> torch.Tensor:
        calls.append("base")
        return weight * 2

    def top(batch: Any, turn: Turn) -> torch.Tensor:
        calls.append("top")
        return turn["base"] * 3

    turn, shared = outputs({"base": base, "top": top})
    assert float(turn.detached("top")) == 6
    shared.end_turn()  # nothing was gone through
    turn["top"].backward()
    shared.end_turn()
    assert calls == ["top", "base"]
    turn["base"].backward()
    assert calls == ["top", "base", "base"]


def test_the_first_who_asks_may_have_gradients_off() -> None:
    weight = torch.ones((), requires_grad=True)
    turn, _ = outputs({"double": lambda batch, turn: weight * 2})
    with torch.no_grad():
        turn.detached("double")
    turn["double"].backward()
    assert float(weight.grad) == 2  # type: ignore[arg-type]


def test_mappings_and_sequences_are_detached_inside() -> None:
    weight = torch.ones(2, requires_grad=True)
    turn, _ = outputs({"all": lambda b, t: {"pair": Pair(weight * 2, "y"), "list": [weight * 3, 1], "tuple": (None,)}})
    found = turn.detached("all")
    assert isinstance(found["pair"], Pair)
    assert not found["pair"].x.requires_grad
    assert not found["list"][0].requires_grad
    assert (found["pair"].y, found["list"][1], found["tuple"]) == ("y", 1, (None,))


def test_an_unknown_output_is_named() -> None:
    turn, _ = outputs({})
    with pytest.raises(ValueError, match=r"'fake'\. There are: none"):
        turn["fake"]


def test_outputs_that_need_each_other_are_named() -> None:
    turn, _ = outputs({"x": lambda batch, turn: turn["y"], "y": lambda batch, turn: turn["x"]})
    with pytest.raises(RuntimeError, match="'x' needs itself: x needs y needs x"):
        turn["x"]
    with pytest.raises(RuntimeError, match="'y' needs itself"):  # and nothing is left of the first try
        turn["y"]
