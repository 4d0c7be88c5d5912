"""What all optimizers share: rates, multipliers, counts, settings, states, and refusing before anything changes."""

from __future__ import annotations

import json
import logging
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError, ContractError, UpdateRefusedError
from ostinato.optim.rate_schedules import create_schedule
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import SGD, Updater, create, registered_names


def factor(**arguments: Any) -> Any:
    return create_schedule("factor", **{"step": 2, "factor": 0.5, "base_lr": 0.4, **arguments})


def step(optimizer: Any, index: int = 0, gradient: float = 1.0, weight: Tensor | None = None) -> float:
    """One update of a weight of 1 by a gradient of 1; gives the weight."""
    weight = torch.ones(1, dtype=torch.float64) if weight is None else weight
    optimizer.update([index], [weight], [torch.full_like(weight, gradient)], [optimizer.create_state(index, weight)])
    return float(weight)


# --- rate and schedule -----------------------------------------------------------------------------------------------


def test_a_rate_that_is_not_given_leaves_the_schedules_own() -> None:
    optimizer = create("sgd", lr_scheduler=factor())
    assert optimizer.learning_rate == 0.4
    assert step(optimizer) == 0.6


@pytest.mark.parametrize("name", ["factor", "poly", "cosine"])
def test_a_given_rate_is_where_schedule_and_warm_up_go_from_and_to(name: str, caplog: pytest.LogCaptureFixture) -> None:
    arguments = {"step": 4} if name == "factor" else {"max_update": 20}
    schedule = create_schedule(name, base_lr=0.4, warmup_steps=2, **arguments)
    with caplog.at_level(logging.INFO):
        create("sgd", learning_rate=0.2, lr_scheduler=schedule)
    assert "0.2" in caplog.text
    assert schedule.base_lr == 0.2
    assert (schedule(1), schedule(2)) == (0.1, 0.2)


def test_a_plain_function_is_a_schedule_too_but_cannot_take_a_rate() -> None:
    optimizer = create("sgd", lr_scheduler=lambda update: 0.5 / update)
    assert (step(optimizer), step(optimizer)) == (0.5, 0.75)
    with pytest.raises(ContractError, match="no base rate"):
        create("sgd", learning_rate=0.1, lr_scheduler=lambda update: 0.5)


def test_without_rate_and_schedule_each_class_has_its_default() -> None:
    defaults = {
        "sgd": 0.1, "nag": 0.1, "signum": 0.01, "sgld": 0.1, "dcasgd": 0.1, "adam": 0.001, "adamw": 0.001,
        "adabelief": 0.001, "adamax": 0.002, "nadam": 0.001, "adagrad": 0.01, "groupadagrad": 0.01, "adadelta": 1.0,
        "rmsprop": 0.001, "ftrl": 0.1, "ftml": 0.0025, "lamb": 0.001, "lans": 0.001, "lars": 0.1, "test": 0.01,
    }  # fmt: skip
    assert {name: create(name).learning_rate for name in registered_names()} == defaults
    aggregates = {name for name in defaults if create(name).aggregate_num == 4}
    assert aggregates == {"adamw", "adabelief", "lamb", "lans"}
    assert all(create(name).aggregate_num == 1 for name in defaults.keys() - aggregates)


def test_the_rate_can_be_set_unless_a_schedule_decides_it() -> None:
    optimizer = create("sgd")
    optimizer.set_learning_rate(0.5)
    assert optimizer.learning_rate == step(optimizer) == 0.5
    with pytest.raises(UpdateRefusedError, match="a schedule decides it") as caught:
        create("sgd", lr_scheduler=factor()).set_learning_rate(0.5)
    assert isinstance(caught.value, UserWarning)


def test_the_first_update_asks_the_schedule_for_one_and_counts_go_on_from_where_they_begin() -> None:
    asked: list[int] = []

    def schedule(update: int) -> float:
        asked.append(update)
        return 0.1

    optimizer = create("sgd", lr_scheduler=schedule, begin_num_update=10)
    step(optimizer)
    assert (asked, optimizer.num_update) == ([11], 11)


def test_devices_count_apart_and_the_schedule_follows_the_furthest_weight() -> None:
    optimizer = create("sgd", lr_scheduler=factor())
    for index in (0, 0, 0, 1):
        step(optimizer, index)
    assert optimizer.num_update == 3
    assert optimizer.learning_rate == 0.2
    assert optimizer.state_dict()["counts"] == {"cpu": {0: 3, 1: 1}}


# --- multipliers -----------------------------------------------------------------------------------------------------


def test_multipliers_of_a_parameter_are_read_at_every_update() -> None:
    parameter = SimpleNamespace(lr_mult=2.0, wd_mult=1.0)
    optimizer = create("sgd", wd=0.5, param_dict={0: parameter})
    assert step(optimizer) == pytest.approx(1 - 0.2 * 1.5)
    parameter.lr_mult, parameter.wd_mult = 1.0, 0.0
    assert step(optimizer) == pytest.approx(0.9)


def test_multipliers_go_by_index_and_by_name() -> None:
    optimizer = create("sgd", wd=1.0, param_idx2name={0: "a", 1: "b"})
    optimizer.set_lr_mult({0: 2.0, "b": 3.0})
    optimizer.set_wd_mult({"a": 0.0})
    assert step(optimizer, 0) == pytest.approx(0.8)
    assert step(optimizer, 1) == pytest.approx(1 - 0.3 * 2)


def test_an_unknown_name_or_index_is_an_error_with_the_nearest() -> None:
    optimizer = create("sgd", param_idx2name={0: "encoder.weight", 1: "encoder.bias"})
    with pytest.raises(ArgumentValueError, match=r"Did you mean 'encoder\.weight'"):
        optimizer.set_lr_mult({"encoder.weigth": 0.0})
    with pytest.raises(ArgumentValueError, match="No weight is called 7"):
        optimizer.set_wd_mult({7: 0.0})
    with pytest.raises(ArgumentValueError, match="Names come from"):
        create("sgd").set_lr_mult({"a": 0.0})


@pytest.mark.parametrize("name", registered_names())
def test_a_rate_multiplier_of_zero_freezes_weight_and_state_and_lets_the_count_go_on(name: str) -> None:
    parameter = SimpleNamespace(lr_mult=1.0, wd_mult=1.0)
    updater = Updater(create(name, param_dict={0: parameter}))
    weight = torch.ones(2, 3)
    updater(0, torch.ones(2, 3), weight)
    parameter.lr_mult = 0.0
    before = weight.clone(), {k: v.clone() if isinstance(v, Tensor) else v for k, v in updater.states[0].items()}
    for gradient in (torch.ones(2, 3), RowSparse(torch.tensor([1]), torch.ones(1, 3), (2, 3))):
        updater(0, gradient, weight)
    assert torch.equal(weight, before[0])
    assert all(torch.equal(torch.as_tensor(updater.states[0][k]), torch.as_tensor(v)) for k, v in before[1].items())
    assert updater.counts == {0: 3}
    parameter.lr_mult = 1.0
    updater(0, torch.ones(2, 3), weight)
    assert not torch.equal(weight, before[0])


# --- settings that are refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 0.0, -1.0, math.nan])
def test_a_clip_that_leaves_nothing_is_refused(value: float) -> None:
    with pytest.raises(ArgumentValueError, match="clip_gradient"):
        create("adam", clip_gradient=value)
    optimizer = create("adam", clip_gradient=1.0)
    with pytest.raises(ArgumentValueError, match="None for no cut"):
        optimizer.clip_gradient = value
    assert optimizer.clip_gradient == 1.0


@pytest.mark.parametrize("name", ["sgd", "nag", "signum", "dcasgd", "rmsprop", "lars"])
def test_a_negative_momentum_is_refused(name: str) -> None:
    with pytest.raises(ArgumentValueError, match=r"momentum is -0\.1"):
        create(name, momentum=-0.1)


@pytest.mark.parametrize("name", ["adam", "adamw", "adabelief", "adamax", "nadam", "ftml", "lamb", "lans"])
def test_betas_that_never_forget_are_refused(name: str) -> None:
    for beta in ("beta1", "beta2"):
        with pytest.raises(ArgumentValueError, match=f"{beta} is 1"):
            create(name, **{beta: 1})


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("sgd", {"lazy_update": True, "use_fused_step": False}),
        ("adam", {"lazy_update": True, "use_fused_step": False}),
        ("lars", {"lazy_update": True, "use_fused_step": False}),
        ("sgd", {"lazy_update": True, "multi_precision": True}),
        ("lars", {"lazy_update": True, "multi_precision": True}),
        ("lamb", {"aggregate_num": 46}),
        ("lans", {"aggregate_num": 46}),
        ("sgd", {"lazy_update": True, "update": "dense"}),
    ],
)
def test_arguments_that_exclude_each_other_are_refused_as_gluon_does(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(AssertionError) as caught:
        create(name, **arguments)
    assert isinstance(caught.value, ContractError)


def test_an_unknown_row_update_is_refused() -> None:
    with pytest.raises(ArgumentValueError, match="no update called 'lazy'"):
        create("sgd", update="lazy")


# --- refused updates change nothing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rescale", [0.0, math.inf, math.nan])
@pytest.mark.parametrize("name", ["sgd", "adamw", "adabelief"])
def test_a_rescaling_that_leaves_nothing_is_refused(name: str, rescale: float) -> None:
    updater = Updater(create(name))
    weight = torch.ones(2)
    updater.optimizer.rescale_grad = rescale
    with pytest.raises(ArgumentValueError, match="rescale_grad"):
        updater(0, torch.ones(2), weight)
    assert torch.equal(weight, torch.ones(2))
    assert updater.counts == {}


@pytest.mark.parametrize(
    ("gradient", "error", "message"),
    [
        (torch.ones(3), ArgumentValueError, r"shape \(3,\) on cpu; the weight has \(2,\)"),
        (torch.ones(2, device="meta"), ArgumentValueError, "on meta"),
        (RowSparse(torch.tensor([0]), torch.ones(1), (3,)), ArgumentValueError, r"shape \(3,\)"),
    ],
)
def test_a_gradient_that_does_not_fit_is_refused_before_anything_changes(
    gradient: Any, error: type[Exception], message: str
) -> None:
    updater = Updater(create("sgd"))
    weights = [torch.ones(2), torch.ones(2)]
    with pytest.raises(error, match=message):
        updater([0, 1], [torch.ones(2), gradient], weights)
    assert all(torch.equal(weight, torch.ones(2)) for weight in weights)
    assert (updater.counts, updater.optimizer.num_update) == ({}, 0)


def test_weights_that_are_no_floating_point_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="floating point"):
        Updater(create("sgd"))(0, torch.ones(2), torch.ones(2, dtype=torch.int64))


def test_a_state_of_another_optimizer_is_refused() -> None:
    with pytest.raises(ArgumentValueError, match="lacks mean, var, which adam needs"):
        create("adam").update([0], [torch.ones(2)], [torch.ones(2)], [create("sgd").create_state(0, torch.ones(2))])


def test_groupadagrad_takes_tables_without_decay() -> None:
    with pytest.raises(AssertionError, match="tables of rows"):
        Updater(create("groupadagrad"))(0, torch.ones(2), torch.ones(2))
    weight = torch.ones(2, 3)
    updater = Updater(create("groupadagrad", wd=0.1))
    with pytest.raises(AssertionError, match="no weight decay"):
        updater(0, torch.ones(2, 3), weight)
    assert torch.equal(weight, torch.ones(2, 3))
    updater.optimizer.set_wd_mult({0: 0.0})
    updater(0, torch.ones(2, 3), weight)


# --- as data ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", registered_names())
def test_a_saved_optimizer_goes_on_as_it_was(name: str) -> None:
    optimizer = create(
        name,
        learning_rate=0.3,
        rescale_grad=0.5,
        clip_gradient=0.7,
        lr_scheduler=factor(),
        begin_num_update=3,
        param_idx2name={0: "a"},
    )
    optimizer.set_lr_mult({"a": 2.0})
    updater = Updater(optimizer)
    updater(0, torch.ones(2, 3), torch.ones(2, 3))
    saved = optimizer.state_dict()
    again = create(name)
    again.load_state_dict(saved)
    assert again.state_dict() == saved
    assert again.learning_rate == optimizer.learning_rate
    assert repr(again) == repr(optimizer)
    json.dumps(optimizer.arguments(), default=str)


def test_the_parameter_table_is_not_saved_and_stays() -> None:
    table = {0: SimpleNamespace(lr_mult=3.0)}
    again = create("sgd", param_dict=table)
    again.load_state_dict(create("sgd").state_dict())
    assert again.param_dict is table
    assert "param_dict" not in again.state_dict()["arguments"]


def test_a_schedule_without_state_stays_and_a_missing_one_is_made() -> None:
    def function(update: int) -> float:
        return 0.25

    kept = create("sgd", lr_scheduler=function)
    kept.load_state_dict(create("sgd", lr_scheduler=function).state_dict())
    assert kept.lr_scheduler is function
    made = create("sgd")
    made.load_state_dict(create("sgd", lr_scheduler=factor()).state_dict())
    assert made.learning_rate == 0.4
    made.load_state_dict(create("sgd", learning_rate=0.7).state_dict())
    assert (made.lr_scheduler, made.learning_rate) == (None, 0.7)


def test_a_state_that_does_not_fit_is_refused_with_both_names_and_changes_nothing() -> None:
    optimizer = create("sgd", learning_rate=0.3)
    before = optimizer.state_dict()
    with pytest.raises(ArgumentValueError, match="saved by adam, and this optimizer is sgd"):
        optimizer.load_state_dict(create("adam").state_dict())
    with pytest.raises(ArgumentValueError, match="format 9"):
        optimizer.load_state_dict({**before, "format": 9})
    wrong = create("sgd").state_dict()
    wrong["arguments"]["momentum"] = -1
    with pytest.raises(ArgumentValueError, match="momentum"):
        optimizer.load_state_dict(wrong)
    assert optimizer.state_dict() == before


def test_a_rule_of_ones_own_needs_one_method() -> None:
    class Halving(SGD):
        name = "halving"

        def _plain(self, weight: Tensor, gradient: Tensor, state: Any, step: Any) -> None:
            weight.copy_(weight / 2)

    assert step(Halving(use_fused_step=False)) == 0.5


@pytest.mark.parametrize(
    "argument", ["learning_rate", "wd", "rescale_grad", "clip_gradient", "momentum", "aggregate_num"]
)
def test_settings_that_are_no_numbers_are_refused(argument: str) -> None:
    for wrong in ("a", [0.1, 0.2], torch.ones(2)):
        with pytest.raises(ArgumentTypeError, match=f"{argument} is a number"):
            create("sgd", **{argument: wrong})


@pytest.mark.parametrize("argument", ["learning_rate", "wd", "epsilon", "beta1"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_settings_that_are_not_finite_are_refused(argument: str, value: float) -> None:
    with pytest.raises(ArgumentValueError, match=argument):
        create("adam", **{argument: value})


def test_a_rate_that_is_not_finite_is_not_taken_over() -> None:
    optimizer = create("sgd", learning_rate=0.5)
    with pytest.raises(ArgumentValueError, match="nan"):
        optimizer.set_learning_rate(float("nan"))
    with pytest.raises(ArgumentTypeError, match="'fast'"):
        optimizer.set_learning_rate("fast")  # pyrefly: ignore
    assert optimizer.learning_rate == 0.5


def test_a_schedule_that_cannot_be_called_and_a_count_below_zero_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="cannot be called"):
        create("sgd", lr_scheduler=5)
    with pytest.raises(ArgumentValueError, match="begin_num_update is -1"):
        create("sgd", begin_num_update=-1)
