"""MXNet's trainer states as optimizers and updaters, and back."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.errors import ArgumentValueError, BadInputError
from ostinato.optim.mxnet_files import (
    ClassName,
    PlainObject,
    TrainerStates,
    load_states,
    optimizer_from_states,
    read_trainer_states,
    states_of,
    write_trainer_states,
)
from ostinato.optim.rate_schedules import FactorSchedule, create_schedule
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import SGD, Nadam, Updater, create, registered_names

OLD, MASTER = "mxnet.optimizer.optimizer", "mxnet.optimizer.sgd"
UNKNOWN_TO_1_9 = {"adabelief", "adamw", "groupadagrad", "lans"}


def described(name: str, module: str = OLD, **attributes: Any) -> PlainObject:
    return PlainObject(ClassName(module, name), (), {"lr": 0.1, "wd": 0.0, "_index_update_count": {0: 3}, **attributes})


def trained(name: str, dtype: torch.dtype = torch.float32, **arguments: Any) -> tuple[Updater, list[Tensor]]:
    updater, weights = (
        Updater(create(name, **arguments)),
        [torch.ones(2, 3, dtype=dtype), torch.ones(4, 1, dtype=dtype)],
    )
    for number in range(3):
        updater([0, 1], [torch.full_like(w, 0.1 * number + 0.1) for w in weights], weights)
    return updater, weights


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", sorted(set(registered_names()) - UNKNOWN_TO_1_9))
def test_what_goes_out_comes_back_and_goes_on_bit_for_bit(name: str, half: bool, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"multi_precision": half, "wd": 0.1, "clip_gradient": 0.5, "param_idx2name": {0: "a"}}
    if name == "rmsprop":
        arguments["centered"] = True
    if name in ("sgd", "dcasgd", "lars"):
        arguments["momentum"] = 0.9
    first, weights = trained(name, torch.float16 if half else torch.float32, **arguments)
    first.optimizer.set_lr_mult({"a": 2.0})
    path = tmp_path / "all.states"
    with path.open("wb") as file:
        write_trainer_states(file, states_of(first))

    contents = read_trainer_states(path)
    second = Updater(optimizer_from_states(contents, str(path)))
    load_states(second, contents, str(path))

    ours = first.optimizer.state_dict()
    ours["arguments"]["aggregate_num"] = None
    assert second.optimizer.state_dict() == ours
    others = [weight.clone() for weight in weights]
    gradients = [torch.full_like(w, 0.3) for w in weights]
    first([0, 1], gradients, weights)
    second([0, 1], gradients, others)
    for one, other in zip(weights, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6 if name == "nadam" else 0, atol=0)


@pytest.mark.parametrize(
    ("module", "name", "order"),
    [
        (OLD, "SGD", ("momentum", "master_weight")),
        (MASTER, "SGD", ("master_weight", "momentum")),
        (OLD, "Signum", ("master_weight", "momentum")),
        ("mxnet.optimizer.nag", "NAG", ("master_weight", "momentum")),
    ],
)
def test_releases_put_the_master_copy_in_different_places(module: str, name: str, order: tuple[str, str]) -> None:
    parts = {"momentum": torch.full((2,), 0.5), "master_weight": torch.full((2,), 2.0)}
    contents = TrainerStates(
        {0: tuple(parts[part] for part in order)}, described(name, module, multi_precision=True, momentum=0.9)
    )
    updater = Updater(optimizer_from_states(contents))
    load_states(updater, contents)
    assert {key: value.tolist() for key, value in updater.states[0].items()} == {
        key: value.tolist() for key, value in parts.items()
    }


def test_a_master_copy_without_inner_state_is_taken() -> None:
    contents = TrainerStates({0: (None, torch.ones(2))}, described("SGD", multi_precision=True, momentum=0.0))
    updater = Updater(optimizer_from_states(contents))
    load_states(updater, contents)
    assert list(updater.states[0]) == ["master_weight"]


def test_old_keywords_and_orders_get_their_names() -> None:
    contents = TrainerStates(
        {0: (torch.full((2,), 1.0), torch.full((2,), 2.0), torch.full((2,), 3.0))},
        described("RMSProp", gamma1=0.8, gamma2=0.7, centered=True, epsilon=1e-8, clip_weights=None, clip_gradient=-1),
    )
    updater = Updater(optimizer_from_states(contents))
    load_states(updater, contents)
    rule: Any = updater.optimizer
    assert (rule.rho, rule.momentum, rule.clip_gradient) == (0.8, 0.7, None)
    assert {key: float(value[0]) for key, value in updater.states[0].items()} == {"var": 1, "mean": 2, "momentum": 3}
    assert create("adagrad").state_names == ("history",)
    adagrad: Any = optimizer_from_states(TrainerStates({}, described("AdaGrad", float_stable_eps=1e-4)))
    assert adagrad.epsilon == 1e-4
    assert isinstance(optimizer_from_states(TrainerStates({}, described("ccSGD", momentum=0.5))), SGD)


def test_lazy_updates_that_1_9_left_on_do_not_stop_master_copies() -> None:
    rule: Any = optimizer_from_states(TrainerStates({}, described("SGD", lazy_update=True, multi_precision=True)))
    assert not rule.lazy_update
    assert rule.multi_precision


def test_nadam_gets_a_product_for_each_weight_from_its_count() -> None:
    contents = TrainerStates({0: (torch.ones(2), torch.ones(2))}, described("Nadam", m_schedule=0.123))
    updater = Updater(optimizer_from_states(contents))
    load_states(updater, contents)
    rule = updater.optimizer
    assert isinstance(rule, Nadam)
    expected = rule.momentum_at(1) * rule.momentum_at(2) * rule.momentum_at(3)
    assert updater.states[0]["product"] == pytest.approx(expected, rel=1e-15)


def test_row_sparse_states_become_dense_at_their_first_use() -> None:
    rows = RowSparse(torch.tensor([1]), torch.ones(1, 2), (3, 2))
    contents = TrainerStates({0: rows}, described("SGD", momentum=0.9))
    updater = Updater(optimizer_from_states(contents))
    load_states(updater, contents)
    weight = torch.zeros(3, 2)
    updater(0, torch.zeros(3, 2), weight)
    torch.testing.assert_close(weight, 0.9 * rows.to_dense())


@pytest.mark.parametrize(
    ("name", "arguments", "updates"),
    [
        ("factor", {"step": 2, "factor": 0.5}, 7),
        ("factor", {"step": 2, "factor": 0.5, "warmup_steps": 3, "warmup_begin_lr": 0.01}, 2),
        ("multifactor", {"step": [2, 4], "factor": 0.1}, 3),
        ("poly", {"max_update": 30, "pwr": 3, "final_lr": 0.001}, 5),
        ("cosine", {"max_update": 30, "warmup_steps": 2}, 5),
    ],
)
def test_schedules_go_out_and_come_back_where_they_were(name: str, arguments: dict[str, Any], updates: int) -> None:
    schedule = create_schedule(name, base_lr=0.4, **arguments)
    updater = Updater(create("sgd", lr_scheduler=schedule))
    for _ in range(updates):
        updater(0, torch.zeros(1), torch.zeros(1))
    file = io.BytesIO()
    contents = states_of(updater)
    write_trainer_states(file, contents)
    again = optimizer_from_states(contents)
    assert type(again.lr_scheduler) is type(schedule)
    assert again.learning_rate == pytest.approx(updater.optimizer.learning_rate)
    assert [again.lr_scheduler(n) for n in range(40)] == pytest.approx([schedule(n) for n in range(40)])  # type: ignore[misc]


def test_a_schedule_at_its_floor_begins_where_its_constructor_did() -> None:
    scheduler = PlainObject(
        ClassName("mxnet.lr_scheduler", "FactorScheduler"),
        (),
        {
            "base_lr": 1e-3, "step": 2, "factor": 0.1, "stop_factor_lr": 1e-3, "count": 20, "warmup_steps": 0,
            "warmup_begin_lr": 0, "warmup_final_lr": 0.5, "warmup_mode": "linear",
        },
    )  # fmt: skip
    optimizer = optimizer_from_states(TrainerStates({}, described("SGD", lr_scheduler=scheduler, num_update=22)))
    assert isinstance(optimizer.lr_scheduler, FactorSchedule)
    assert (optimizer.lr_scheduler.base_lr, optimizer.learning_rate) == (0.5, 1e-3)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"lr": "fast"}, "settings that cannot be used"),
        ({"momentum": -1}, "momentum is -1"),
        ({"momentum": "x"}, "settings that cannot be used"),
        ({"num_update": float("inf")}, "settings that cannot be used"),
        ({"clip_gradient": "x"}, "settings that cannot be used"),
        ({"idx2name": 5}, "settings that cannot be used"),
        ({"lr_mult": {0: "x"}}, "settings that cannot be used"),
        ({"lr_scheduler": PlainObject(ClassName("mxnet.lr_scheduler", "X"), (), {})}, "settings that cannot be used"),
        (
            {
                "lr_scheduler": PlainObject(
                    ClassName("mxnet.lr_scheduler", "FactorScheduler"), (), {"base_lr": 1, "count": 1, "step": 0}
                )
            },
            "settings that cannot be used",
        ),
    ],
)
def test_settings_that_make_no_optimizer_are_refused_in_our_words(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message) as caught:
        optimizer_from_states(TrainerStates({}, described("SGD", **attributes)), "my.states")
    assert caught.value.fields["path"] == "my.states"


@pytest.mark.parametrize(
    ("states", "attributes", "message"),
    [
        (
            {0: (torch.ones(1), torch.ones(1))},
            {"momentum": 0.9},
            r"index 0: sgd .* keeps 1 arrays .momentum., and the file has 2",
        ),
        ({0: None}, {"momentum": 0.9}, "keeps 1 arrays"),
        ({0: torch.ones(1)}, {"momentum": 0.0}, "keeps 0 arrays, and the file has 1"),
        ({0: (1.0,)}, {"momentum": 0.9}, "keeps 1 arrays"),
        ({}, {"_index_update_count": {0: -1}}, "how many updates"),
        ({}, {"_index_update_count": [3]}, "how many updates"),
        ({}, {"_index_update_count": {0: 2**40}}, "how many updates"),
    ],
)
def test_states_that_do_not_fit_are_refused_and_change_nothing(states: Any, attributes: Any, message: str) -> None:
    updater = Updater(create("sgd", momentum=attributes.get("momentum", 0.9)))
    before = updater.states
    with pytest.raises(BadInputError, match=message):
        load_states(updater, TrainerStates(states, described("SGD", **attributes)), "my.states")
    assert updater.states is before


def test_states_of_another_optimizer_or_of_none_are_named() -> None:
    with pytest.raises(BadInputError, match=r"states of mxnet\.optimizer\.optimizer\.Adam, and this optimizer is sgd"):
        load_states(Updater(create("sgd")), TrainerStates({}, described("Adam")))
    with pytest.raises(BadInputError, match="which is not known here"):
        optimizer_from_states(TrainerStates({}, described("LBSGD")))
    with pytest.raises(BadInputError, match="states without their optimizer"):
        optimizer_from_states(TrainerStates({}, None))
    updater = Updater(create("sgd", momentum=0.9))
    load_states(updater, TrainerStates({0: torch.ones(2)}, None))
    assert updater.states[0]["momentum"].tolist() == [1.0, 1.0]


def test_what_mxnet_does_not_know_is_not_written() -> None:
    with pytest.raises(ArgumentValueError, match=r"MXNet 1\.9\.1 has no optimizer like lans"):
        states_of(Updater(create("lans")))
    with pytest.raises(ArgumentValueError, match="no rate schedule like"):
        states_of(Updater(create("sgd", lr_scheduler=lambda update: 0.1)))
