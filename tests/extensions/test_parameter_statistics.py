from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loop_stand_ins import CountingUpdater

from ostinato.extensions.parameter_statistics import PERCENTILES, STATISTICS, ParameterStatistics, percentile
from ostinato.loop import Trainer


class Updater(CountingUpdater):
    def __init__(self, **models) -> None:
        super().__init__(2)
        self.models = models


def linear(device="cpu"):
    model = torch.nn.Linear(4, 1, bias=False, device=device)
    if device == "cpu":
        with torch.no_grad():
            model.weight.copy_(torch.tensor([[1.0, 2.0, 0.0, 5.0]]))
        model.weight.grad = torch.tensor([[0.0, 0.0, 0.0, 4.0]])
    return model


def observed(extension, *models, **named):
    updater = Updater(**({"main": models[0]} if models else named))
    trainer = Trainer(updater, (2, "iteration"), extensions=[extension])
    trainer.run()
    return trainer.observation


def test_it_reports_every_statistic_of_values_and_gradients() -> None:
    found = {name: float(value) for name, value in observed(ParameterStatistics(), linear()).items()}
    assert len(found) == 2 * len(STATISTICS)
    values = [1.0, 2.0, 0.0, 5.0]
    assert found["weight/data/mean"] == 2
    assert found["weight/data/std"] == pytest.approx(statistics.pstdev(values))
    assert (found["weight/data/min"], found["weight/data/max"], found["weight/data/zeros"]) == (0, 5, 1)
    assert found["weight/data/percentile/50"] == 1.5
    assert (found["weight/grad/max"], found["weight/grad/zeros"]) == (4, 3)
    assert all(f"weight/grad/percentile/{percent:g}" in found for percent in PERCENTILES)


def test_by_default_it_reports_at_the_end_of_every_epoch() -> None:
    seen = []
    trainer = Trainer(Updater(main=linear()), (4, "iteration"), extensions=[ParameterStatistics(statistics=["mean"])])
    trainer.extend(lambda t: seen.append("weight/data/mean" in t.observation), name="reader")
    trainer.run()
    assert seen == [False, True, False, True]
    extension = ParameterStatistics(statistics=["mean"], trigger="1it")
    trainer = Trainer(Updater(main=linear()), (1, "iteration"), extensions=[extension])
    trainer.run()
    assert "weight/data/mean" in trainer.observation


def test_statistics_prefix_and_kinds_can_be_chosen() -> None:
    assert list(observed(ParameterStatistics(statistics=["max"], prefix="model"), linear())) == [
        "model/weight/data/max",
        "model/weight/grad/max",
    ]
    assert list(observed(ParameterStatistics(statistics=["max"], report_grads=False), linear())) == ["weight/data/max"]
    assert list(observed(ParameterStatistics(statistics=["max"], report_params=False), linear())) == ["weight/grad/max"]
    found = observed(ParameterStatistics(statistics={"norm": torch.linalg.vector_norm}), linear())
    assert float(found["weight/data/norm"]) == pytest.approx(math.sqrt(30))


def test_several_models_are_told_apart() -> None:
    extension = ParameterStatistics(statistics=["max"], report_grads=False)
    assert list(observed(extension, a=linear(), b=linear())) == ["a.weight/data/max", "b.weight/data/max"]
    extension = ParameterStatistics(linear(), ["max"], report_grads=False)
    assert list(observed(extension, a=linear(), b=linear())) == ["weight/data/max"]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_values_stay_on_the_device(device) -> None:
    # Reading a tensor of the device "meta" is impossible, so whoever waits for the device fails there.
    for value in observed(ParameterStatistics(), linear(device)).values():
        assert isinstance(value, torch.Tensor)
        assert value.device.type == device


def test_half_precision_is_counted_in_single_precision() -> None:
    model = torch.nn.Linear(100_000, 1, bias=False, dtype=torch.float16)
    with torch.no_grad():
        model.weight.fill_(1.0)
    assert float(observed(ParameterStatistics(statistics=["mean"]), model)["weight/data/mean"]) == 1


def test_what_has_no_values_is_left_out() -> None:
    model = torch.nn.Module()
    model.lazy = torch.nn.UninitializedParameter()
    model.empty = torch.nn.Parameter(torch.zeros(0))
    model.table = torch.nn.Parameter(torch.ones(3, 2))
    model.table.grad = torch.sparse_coo_tensor([[1]], [[1.0, 2.0]], (3, 2), check_invariants=True)
    found = observed(ParameterStatistics(statistics=["zeros"]), model)
    assert {name: float(value) for name, value in found.items()} == {"table/data/zeros": 0, "table/grad/zeros": 4}


@given(values=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=40), percent=st.floats(0, 100))
def test_a_percentile_lies_straight_between_its_neighbours(values, percent) -> None:
    found = float(percentile(torch.tensor(values, dtype=torch.float64), percent))
    assert found == pytest.approx(float(np.percentile(np.array(values, dtype=np.float64), percent)), abs=1e-9)


@pytest.mark.parametrize(
    ("settings", "kind", "match"),
    [
        ({"statistics": ["mode"]}, ValueError, "there is no statistic 'mode'. There are: mean, std"),
        ({"statistics": []}, ValueError, "statistics is empty"),
        ({"statistics": "mean"}, TypeError, "statistics must be names in a list"),
        ({"statistics": {"mean": 3}}, TypeError, "'mean' is 3"),
        ({"report_params": False, "report_grads": False}, ValueError, "neither parameters nor gradients"),
        ({"prefix": 3}, TypeError, "prefix must be a text, not 3"),
    ],
)
def test_bad_arguments_are_refused(settings, kind, match) -> None:
    with pytest.raises(kind, match=match):
        ParameterStatistics(**settings)


def test_models_that_are_missing_or_none_are_named() -> None:
    with pytest.raises(RuntimeError, match="this updater has none in a mapping 'models'"):
        Trainer(CountingUpdater(), (1, "iteration"), extensions=[ParameterStatistics()]).run()
    with pytest.raises(TypeError, match="models must be a module"):
        Trainer(Updater(), (1, "iteration"), extensions=[ParameterStatistics(3)]).run()  # type: ignore[arg-type]
