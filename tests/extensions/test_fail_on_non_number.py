from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from loop_stand_ins import CountingUpdater

from ostinato.errors import NonFiniteError, NonFiniteLossError, OstinatoError
from ostinato.extensions.fail_on_non_number import FailOnNonNumber
from ostinato.loop import StandardUpdater, Trainer, report


class Updater(CountingUpdater):
    """Has a model, and spoils one thing in one iteration."""

    def __init__(self, kind: str | None = None, at: int = 3, value: float = math.nan) -> None:
        super().__init__()
        self.models = {"main": torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))}
        self.kind, self.at, self.value = kind, at, value

    def update(self) -> None:
        now = self.state.iteration + 1 == self.at
        report("main", torch.tensor(self.value if self.kind == "loss" and now else 0.5))
        report("gradient norm", torch.tensor(math.inf))  # no loss: nobody's business
        weight = self.models["main"][1].weight
        for parameter in self.models["main"].parameters():
            parameter.grad = torch.zeros_like(parameter)
        if now and self.kind == "grad":
            weight.grad[0, 1] = self.value
        if now and self.kind == "param":
            with torch.no_grad():
                weight[0, 0] = self.value
        super().update()


def failure(updater: Any, *arguments: Any, until: int = 6, **settings: Any) -> NonFiniteError:
    trainer = Trainer(updater, (until, "iteration"), extensions=[FailOnNonNumber(*arguments, **settings)])
    with pytest.raises(NonFiniteError) as caught:
        trainer.run()
    return caught.value


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("kind", "names", "text"),
    [
        ("loss", ["main"], "The loss is not a finite number at iteration 3: main is"),
        ("grad", ["1.weight"], "at iteration 3: gradient of 1.weight."),
        ("param", ["1.weight"], "at iteration 3: parameter 1.weight."),
    ],
)
def test_it_names_what_is_wrong_and_where_and_when(kind, names, text, value) -> None:
    error = failure(Updater(kind, value=value))
    assert isinstance(error, RuntimeError)
    assert isinstance(error, OstinatoError)
    assert isinstance(error, NonFiniteLossError) == (kind == "loss")
    assert text in str(error)
    assert "Nothing of this was saved" in str(error)
    assert {name: error.fields[name] for name in ("kind", "names", "iteration")} == {
        "kind": kind,
        "names": names,
        "iteration": 3,
    }


def test_a_sound_run_is_left_alone() -> None:
    trainer = Trainer(Updater(), (5, "iteration"), extensions=[FailOnNonNumber()])
    trainer.run()
    assert trainer.status == "finished"


@pytest.mark.parametrize("watched", ["loss", "grad", "param"])
@pytest.mark.parametrize("spoiled", ["loss", "grad", "param"])
def test_it_looks_at_what_it_was_told_to(watched, spoiled) -> None:
    trainer = Trainer(Updater(spoiled), (5, "iteration"), extensions=[FailOnNonNumber(watched)])
    if watched == spoiled:
        with pytest.raises(NonFiniteError):
            trainer.run()
    else:
        trainer.run()


def test_a_loss_between_two_checks_is_found_with_its_iteration() -> None:
    assert failure(Updater("loss", at=4), check_trigger=(100, "iteration"), until=20).fields["iteration"] == 4


@pytest.mark.parametrize("kind", ["loss", "grad", "param"])
@pytest.mark.parametrize("save_every", [1, 3])
@pytest.mark.parametrize("check_every", [1, 100])
def test_nothing_that_is_not_finite_is_ever_saved(saves, kind, save_every, check_every) -> None:
    kept: list[dict[str, Any]] = []

    class SavesOnTheWayOutToo(saves):
        def on_error(self, trainer: Any, error: BaseException, traceback: Any) -> None:
            self(trainer)

    trainer = Trainer(Updater(kind, at=6), (20, "iteration"))
    trainer.extend(FailOnNonNumber(check_trigger=(check_every, "iteration")))
    trainer.extend(SavesOnTheWayOutToo(kept), trigger=(save_every, "iteration"))
    with pytest.raises(NonFiniteError):
        trainer.run()
    assert [state["updater"]["state"]["iteration"] for state in kept] == [n for n in range(1, 6) if n % save_every == 0]


def test_the_losses_of_an_evaluator_are_not_those_of_the_update() -> None:
    trainer = Trainer(Updater(), (2, "iteration"), extensions=[FailOnNonNumber()])
    trainer.extend(lambda t: report("validation/loss", math.nan), name="evaluator", priority=300)
    trainer.run()
    assert trainer.status == "finished"


def test_losses_may_be_named() -> None:
    assert failure(Updater(), "loss", losses=["gradient norm"]).fields["names"] == ["gradient norm"]
    Trainer(Updater("loss"), (5, "iteration"), extensions=[FailOnNonNumber("loss", losses=["other"])]).run()


def test_gradients_are_the_business_of_a_loss_scaler() -> None:
    updater = Updater("grad")
    updater.scaler = SimpleNamespace(is_enabled=lambda: True)  # type: ignore[attr-defined]
    Trainer(updater, (5, "iteration"), extensions=[FailOnNonNumber()]).run()
    updater = Updater("grad")
    updater.scaler = SimpleNamespace(is_enabled=lambda: False)  # type: ignore[attr-defined]
    assert failure(updater).fields["kind"] == "grad"


def test_several_models_are_told_apart_and_a_long_list_is_cut() -> None:
    models = {name: torch.nn.Linear(3, 3, bias=False) for name in ("a", "b")}
    layers = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(10))
    with torch.no_grad():
        models["b"].weight[0, 0] = math.nan
        for layer in layers:
            layer.weight.fill_(math.nan)
    assert "parameter b.weight." in str(failure(Updater(), "param", models=models))
    error = failure(Updater(), "param", models=layers)
    assert "7.weight and 2 more" in str(error)
    assert len(error.fields["names"]) == 10


def test_what_cannot_be_tested_is_not_looked_at() -> None:
    model = torch.nn.Module()
    model.whole = torch.nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False)
    model.lazy = torch.nn.UninitializedParameter()
    model.empty = torch.nn.Parameter(torch.zeros(0))
    model.table = torch.nn.Parameter(torch.ones(3, 2))
    model.table.grad = torch.sparse_coo_tensor([[1]], [[1.0, math.inf]], (3, 2), check_invariants=True)
    assert failure(Updater(), ("param", "grad"), models=model).fields["names"] == ["table"]


def test_with_a_real_training_the_first_bad_update_is_the_last() -> None:
    model = torch.nn.Linear(1, 1)
    batches = [torch.ones(1, 1), torch.ones(1, 1), torch.full((1, 1), math.inf), torch.ones(1, 1)]
    updater = StandardUpdater(
        model, torch.optim.SGD(model.parameters(), lr=0.1), batches, loss_function=lambda y, x: (y * y).sum()
    )
    assert failure(updater).fields["iteration"] == 3


def test_a_check_reads_all_tensors_in_one_transfer(monkeypatch) -> None:
    fetches = []
    original = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: fetches.append(1) or original(self))
    trainer = Trainer(Updater(), (9, "iteration"))
    trainer.extend(FailOnNonNumber(check_trigger=(3, "iteration")))
    trainer.run()
    assert len(fetches) == 3 * 3 + 2  # losses, gradients and parameters; at the end no loss is left to be read


@pytest.mark.parametrize(
    ("what", "kind", "match"),
    [
        (("loss", "weight"), ValueError, "'weight' in what. Use any of loss, grad, param"),
        ((), ValueError, "what is empty"),
        ("gradient", ValueError, "'gradient' in what"),
        (3, TypeError, "what must be names among loss, grad, param, not 3"),
    ],
)
def test_bad_arguments_are_refused(what, kind, match) -> None:
    with pytest.raises(kind, match=match):
        FailOnNonNumber(what)


def test_models_that_are_missing_or_none_are_named() -> None:
    with pytest.raises(RuntimeError, match="this updater has none in a mapping 'models'"):
        Trainer(CountingUpdater(), (1, "iteration"), extensions=[FailOnNonNumber()]).run()
    Trainer(CountingUpdater(), (1, "iteration"), extensions=[FailOnNonNumber("loss")]).run()
    with pytest.raises(TypeError, match="models must be a module, modules by name, or None"):
        Trainer(Updater(), (1, "iteration"), extensions=[FailOnNonNumber(models={"a": 3})]).run()  # type: ignore[dict-item]
