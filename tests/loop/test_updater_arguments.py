from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ostinato.errors import OstinatoError
from ostinato.loop import Part, PartsUpdater, StandardUpdater

NET = nn.Linear(3, 1)
OPTIMIZER = torch.optim.SGD(NET.parameters(), lr=0.1)
SCHEDULE = torch.optim.lr_scheduler.StepLR(OPTIMIZER, 1)


def make(**changed: Any) -> StandardUpdater:
    return StandardUpdater(**{"model": NET, "optimizer": OPTIMIZER, "loader": [], **changed})


def make_parts(**changed: Any) -> PartsUpdater:
    good = {
        "models": NET,
        "optimizers": OPTIMIZER,
        "loader": [],
        "parts": [Part("main", lambda batch, turn: NET(batch))],
    }
    return PartsUpdater(**{**good, **changed})


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"model": OPTIMIZER}, TypeError, "The model 'main' is a SGD, which has no train"),
        ({"model": {"a": NET, "b": None}}, TypeError, "The model 'b' is None"),
        (
            {"optimizer": NET},
            TypeError,
            "The optimizer 'main' is Linear.*, which has no step.*the model, the optimizer",
        ),
        ({"optimizer": {"main": 3}}, TypeError, "The optimizer 'main' is 3, which has no step"),
        ({"loader": OPTIMIZER}, TypeError, "The loader is a SGD, and nothing can be read from it"),
        ({"loader": None}, TypeError, "The loader is None"),
        ({"loss_function": "mse"}, TypeError, "The loss function must be a function, not 'mse'"),
        ({"loss_function": {"l1": 1}}, TypeError, "The loss function must be a function, not {'l1': 1}"),
        ({"count_tokens": 8}, TypeError, "count_tokens must be a function, not 8"),
        ({"scaler": True}, TypeError, "The scaler is True, which scales nothing. Give a torch.amp.GradScaler"),
        ({"device": "gpu"}, ValueError, "There is no device 'gpu'. Write 'cpu', 'cuda'"),
        ({"device": 1.5}, ValueError, "There is no device 1.5"),
        (
            {"schedulers": SCHEDULE},
            TypeError,
            r"The schedule 'main' is .*not a schedule with its unit. Write \(schedule",
        ),
        ({"schedulers": {"a": (SCHEDULE,)}}, TypeError, "The schedule 'a' is .*not a schedule with its unit"),
        ({"schedulers": (SCHEDULE, "ep")}, ValueError, "The schedule 'main' has the unit 'ep'. Use one of iteration"),
    ],
)
def test_a_wrong_argument_is_refused_at_once_with_its_name_and_a_way_out(
    changed: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        make(**changed)
    assert isinstance(raised.value, OstinatoError)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"parts": Part("main", lambda batch, turn: batch)}, None),
        ({"parts": {"main": 1}}, r"The parts must be a list of Part, and {'main': 1} is none. Write \[Part"),
        ({"parts": [make]}, "The parts must be a list of Part, and <function make"),
        ({"shared": {"fake": NET(torch.zeros(3))}}, "The shared outputs must be functions of the batch and the turn"),
        ({"shared": [1]}, "The shared outputs must be functions"),
    ],
)
def test_so_is_one_of_several_parts(changed: dict[str, Any], words: str | None) -> None:
    if words is None:
        assert [part.name for part in make_parts(**changed).parts] == ["main"]
        return
    with pytest.raises(TypeError, match=words):
        make_parts(**changed)
