"""Torch's optimizers in the place of our own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError, ContractError
from ostinato.optim.rate_schedules import create_schedule
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import TorchOptimizer, Updater, create

CLASSES: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    (torch.optim.Adam, {"lr": 0.1, "amsgrad": True}),
    (torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.1}),
    (torch.optim.NAdam, {}),
    (torch.optim.RMSprop, {"centered": True, "momentum": 0.5}),
    (torch.optim.Adagrad, {}),
    (torch.optim.ASGD, {}),
    (torch.optim.Rprop, {}),
    (torch.optim.Adafactor, {}),
]
SHAPES = [(4, 3), (5,)]


def tensors(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def reference_step(optimizer: torch.optim.Optimizer, weights: list[Tensor], gradients: list[Tensor]) -> None:
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient.clone()
    optimizer.step()


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("cls", "arguments"), CLASSES)
def test_a_class_updates_as_it_does_alone(cls: type[torch.optim.Optimizer], arguments: dict[str, Any]) -> None:
    weights, others = tensors(0), tensors(0)
    updater, reference = Updater(TorchOptimizer(cls, **arguments)), cls(others, **arguments)
    for number in range(4):
        gradients = tensors(number + 1)
        before = [gradient.clone() for gradient in gradients]
        updater([0, 1], gradients, weights)
        reference_step(reference, others, gradients)
        assert all(torch.equal(one, other) for one, other in zip(gradients, before, strict=True))
    assert_equal(weights, others)
    assert all(weight.grad is None for weight in weights)


def test_rescaling_and_clipping_come_first_and_decay_after() -> None:
    weights, others = tensors(0), tensors(0)
    updater = Updater(TorchOptimizer(torch.optim.SGD, learning_rate=0.1, wd=0.5, rescale_grad=0.25, clip_gradient=0.2))
    reference = torch.optim.SGD(others, lr=0.1, weight_decay=0.5)
    gradients = tensors(1)
    updater([0, 1], gradients, weights)
    reference_step(reference, others, [(0.25 * gradient).clamp(-0.2, 0.2) for gradient in gradients])
    assert_equal(weights, others)


def test_multipliers_act_as_groups_would() -> None:
    weights, others = tensors(0), tensors(0)
    parameters = {0: SimpleNamespace(lr_mult=2.0, wd_mult=1.0), 1: SimpleNamespace(lr_mult=1.0, wd_mult=0.0)}
    updater = Updater(create("torch.AdamW", lr=0.1, weight_decay=0.2, param_dict=parameters))
    reference = torch.optim.AdamW(
        [{"params": [others[0]], "lr": 0.2}, {"params": [others[1]], "weight_decay": 0.0}], lr=0.1, weight_decay=0.2
    )
    for number in range(3):
        updater([0, 1], tensors(number + 1), weights)
        reference_step(reference, others, tensors(number + 1))
    assert_equal(weights, others)


def test_a_schedule_gives_the_rate() -> None:
    weights, others = tensors(0), tensors(0)
    schedule = create_schedule("factor", step=1, factor=0.5, base_lr=0.4)
    updater = Updater(TorchOptimizer(torch.optim.SGD, momentum=0.9, lr_scheduler=schedule))
    reference = torch.optim.SGD(others, lr=0.4, momentum=0.9)
    for number in range(3):
        updater([0, 1], tensors(number + 1), weights)
        reference.param_groups[0]["lr"] = 0.4 * 0.5**number
        reference_step(reference, others, tensors(number + 1))
    assert_equal(weights, others)
    assert updater.optimizer.learning_rate == 0.1


def test_an_optimizer_at_work_is_followed_and_kept_up_to_date() -> None:
    weights, others = tensors(0), tensors(0)
    groups = [{"params": [weights[0]], "lr": 0.2}, {"params": [weights[1]]}]
    at_work = torch.optim.Adam(groups, lr=0.1, weight_decay=0.1)
    reference = torch.optim.Adam(
        [{"params": [others[0]], "lr": 0.2}, {"params": [others[1]]}], lr=0.1, weight_decay=0.1
    )
    reference_step(at_work, weights, tensors(9))
    reference_step(reference, others, tensors(9))
    optimizer = TorchOptimizer(at_work, param_dict={1: SimpleNamespace(lr_mult=2.0, wd_mult=3.0)})
    reference.param_groups[1].update(lr=0.2, weight_decay=0.3)
    updater = Updater(optimizer)
    decay = torch.optim.lr_scheduler.ExponentialLR(at_work, 0.5)
    reference_decay = torch.optim.lr_scheduler.ExponentialLR(reference, 0.5)
    for number in range(3):
        updater([0, 1], tensors(number + 1), weights)
        reference_step(reference, others, tensors(number + 1))
        decay.step()
        reference_decay.step()
        assert optimizer.learning_rate == reference.param_groups[0]["lr"]
    assert_equal(weights, others)
    assert int(at_work.state[weights[0]]["step"]) == 4
    optimizer.set_learning_rate(0.7)
    assert [group["lr"] for group in at_work.param_groups] == [0.7, 0.7]


def test_weights_that_no_group_holds_are_refused_unless_there_is_one_group() -> None:
    held = tensors(0)
    one_group, two_groups = torch.optim.SGD(held, lr=0.5), torch.optim.SGD([{"params": [w]} for w in held], lr=0.5)
    weight = torch.ones(3)
    Updater(TorchOptimizer(one_group))(0, torch.ones(3), weight)
    assert torch.equal(weight, torch.full((3,), 0.5))
    updater = Updater(TorchOptimizer(two_groups))
    with pytest.raises(ArgumentValueError, match="in none of the 2 groups"):
        updater(0, torch.ones(3), weight)
    assert updater.counts == {}
    assert torch.equal(weight, torch.full((3,), 0.5))


@pytest.mark.parametrize(("cls", "arguments"), CLASSES)
def test_a_saved_state_goes_on_bit_for_bit(cls: type[torch.optim.Optimizer], arguments: dict[str, Any]) -> None:
    first, weights = Updater(TorchOptimizer(cls, **arguments)), tensors(0)
    for number in range(2):
        first([0, 1], tensors(number + 1), weights)
    others = [weight.clone() for weight in weights]
    second = Updater(TorchOptimizer(cls))
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    for number in range(2):
        first([0, 1], tensors(number + 5), weights)
        second([0, 1], tensors(number + 5), others)
    assert all(torch.equal(one, other) for one, other in zip(weights, others, strict=True))


def test_a_state_saved_for_other_weights_is_refused() -> None:
    first = Updater(create("torch.adam"))
    first(0, torch.ones(3), torch.ones(3))
    second = Updater(create("torch.adam"))
    second.load_state_dict(first.state_dict())
    with pytest.raises(ArgumentValueError, match="'exp_avg' of weight 0 has shape"):
        second(0, torch.ones(4), torch.ones(4))
    with pytest.raises(ArgumentValueError, match=r"saved by torch\.adam, and this optimizer is torch\.sgd"):
        Updater(create("torch.sgd")).load_state_dict(first.state_dict())


def test_groups_of_an_optimizer_at_work_are_saved() -> None:
    def build(rate: float) -> TorchOptimizer:
        return TorchOptimizer(torch.optim.SGD([{"params": [w]} for w in tensors(0)], lr=rate))

    saved = build(0.5)
    again = build(0.1)
    again.load_state_dict(saved.state_dict())
    assert again.learning_rate == 0.5
    assert again.state_dict() == saved.state_dict()


def test_master_copies_work() -> None:
    weight, wide = torch.ones(3).half(), torch.ones(3)
    narrow, full = Updater(create("torch.adam", multi_precision=True)), Updater(create("torch.adam"))
    for _ in range(3):
        narrow(0, torch.ones(3).half(), weight)
        full(0, torch.ones(3), wide)
    assert torch.equal(narrow.states[0]["master_weight"], wide)
    assert torch.equal(weight, wide.half())
    again = Updater(create("torch.adam", multi_precision=True))
    again.load_state_dict(narrow.state_dict())
    other = weight.clone()
    for updater, target in ((narrow, weight), (again, other)):
        updater(0, torch.ones(3).half(), target)
    assert torch.equal(weight, other)


@pytest.mark.parametrize("name", ["torch.sparseadam", "torch.adagrad", "torch.adam"])
def test_row_sparse_gradients_are_taken(name: str) -> None:
    rows = RowSparse(torch.tensor([0, 2]), torch.ones(2, 3), (4, 3))
    weight, updater = torch.ones(4, 3), Updater(create(name))
    updater(0, rows, weight)
    assert torch.equal(weight[[1, 3]], torch.ones(2, 3))
    assert (weight[[0, 2]] < 1).all()


def test_sparse_adam_refuses_a_dense_gradient_before_anything_changes() -> None:
    updater = Updater(create("torch.sparseadam"))
    with pytest.raises(ArgumentValueError, match="SparseAdam takes row-sparse ones only"):
        updater(0, torch.ones(3, 2), torch.ones(3, 2))
    assert updater.counts == {}


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="neither an optimizer"):
        TorchOptimizer("adam")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="does not take these arguments"):
        TorchOptimizer(torch.optim.SGD, momentun=0.9)
    with pytest.raises(ArgumentTypeError, match="no weight decay"):
        TorchOptimizer(torch.optim.SparseAdam, wd=0.1)
    with pytest.raises(ContractError, match="are the same"):
        TorchOptimizer(torch.optim.SGD, lr=0.1, learning_rate=0.1)
    with pytest.raises(ContractError, match="made already, and learning_rate, momentum"):
        TorchOptimizer(torch.optim.SGD([torch.ones(1)], lr=0.1), momentum=0.9, learning_rate=0.1)
    with pytest.raises(ArgumentValueError, match="closure"):
        TorchOptimizer(torch.optim.LBFGS)


def test_a_state_with_another_number_of_groups_is_refused_and_changes_nothing() -> None:
    held = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    two = TorchOptimizer(torch.optim.SGD([{"params": [w]} for w in held], lr=0.5))
    at_work = torch.optim.SGD(held, lr=0.25)
    one = TorchOptimizer(at_work)
    with pytest.raises(ArgumentValueError, match="2 parameter groups, and this one has 1"):
        one.load_state_dict(two.state_dict())
    assert at_work.param_groups[0]["lr"] == 0.25
