"""Optimizers by name."""

from __future__ import annotations

import pytest
import torch

from ostinato.errors import ArgumentTypeError, ArgumentValueError, DeprecatedArgumentError
from ostinato.optim.rules import SGD, Optimizer, TorchOptimizer, create, register, registered_names, registry


def test_every_rule_of_the_master_branch_is_registered() -> None:
    assert registered_names() == (
        "adabelief", "adadelta", "adagrad", "adam", "adamax", "adamw", "dcasgd", "ftml", "ftrl", "groupadagrad", "lamb",
        "lans", "lars", "nadam", "nag", "rmsprop", "sgd", "sgld", "signum", "test",
    )  # fmt: skip


def test_names_are_taken_whatever_their_case() -> None:
    assert isinstance(create("SGD", momentum=0.9), SGD)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ArgumentValueError, match="Did you mean 'adam'"):
        create("adamm")


def test_an_unknown_keyword_is_refused_with_the_nearest() -> None:
    with pytest.raises(ArgumentTypeError, match="Did you mean 'momentum'"):
        create("sgd", momentun=0.9)
    with pytest.raises(ArgumentTypeError, match="no argument 'beta1'"):
        create("sgd", beta1=0.9)


@pytest.mark.parametrize(
    ("name", "keyword", "replacement"),
    [("rmsprop", "gamma1", "rho"), ("rmsprop", "gamma2", "momentum"), ("adagrad", "eps", "epsilon")],
)
def test_keywords_of_old_releases_are_refused_with_todays(name: str, keyword: str, replacement: str) -> None:
    with pytest.raises(DeprecationWarning, match=f"called {replacement} now") as caught:
        create(name, **{keyword: 0.9})
    assert isinstance(caught.value, DeprecatedArgumentError)
    assert caught.value.fields == {"argument": keyword, "replacement": replacement}


def test_classes_of_torch_are_found_by_their_name() -> None:
    made = create("torch.AdamW", lr=0.25)
    assert isinstance(made, TorchOptimizer)
    assert (made.optimizer_class, made.learning_rate, made.name) == (torch.optim.AdamW, 0.25, "torch.adamw")
    with pytest.raises(ArgumentValueError, match=r"Did you mean 'torch\.adamw'"):
        create("torch.adamww")


def test_a_class_of_ones_own_can_be_registered_and_the_later_of_two_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_CLASSES", dict(registry._CLASSES))

    @register
    class Mine(Optimizer):
        pass

    assert type(create("mine")) is Mine
    with pytest.warns(UserWarning, match="'mine' now means"):

        @register
        class Other(Optimizer):
            name = "Mine"

    assert type(create("mine")) is Other
