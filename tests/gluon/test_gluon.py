"""The old spelling."""

from __future__ import annotations

import math

import pytest
import torch
from kvstore_stand_ins import assert_near, backward, backward_all, two_parameters
from torch import nn
from torch.nn import Parameter

from ostinato import gluon
from ostinato.errors import ArgumentTypeError, ArgumentValueError, UpdateRefusedError
from ostinato.kvstore import ParameterTrainer


def test_gradients_are_overwritten_and_need_no_clearing() -> None:
    weights = two_parameters()
    trainer = gluon.Trainer(weights, "sgd", {"learning_rate": 0.1})
    for _ in range(3):
        backward_all(weights)
        trainer.step(1)
    assert_near(weights["b"], -1.0 - 3 * 0.2)
    assert isinstance(trainer, ParameterTrainer)


def test_a_parameter_that_says_how_it_wants_its_gradient_is_left_so() -> None:
    weights = two_parameters(1)
    weights["a"][0].grad_req = "add"  # type: ignore[attr-defined]
    weights["b"][0].requires_grad_(False)
    trainer = gluon.Trainer(weights, "sgd", {"learning_rate": 0.1})
    assert trainer.parameters["a"].grad_req == "add"
    assert trainer.parameters["b"].grad_req == "null"
    for _ in range(2):
        backward(weights, a=[[1.0, 1.0]])
        trainer.step(1)
    assert_near(weights["a"], 1.0 - 0.1 - 0.2, 2.0 - 0.1 - 0.2)


def test_a_step_without_backward_raises_as_it_used_to() -> None:
    weights = two_parameters()
    trainer = gluon.Trainer(weights, "sgd", {"learning_rate": 0.1})
    backward_all(weights)
    trainer.step(1)
    with pytest.raises(UserWarning) as raised:
        trainer.step(1)
    assert isinstance(raised.value, UpdateRefusedError)


def test_parameters_are_collected_over_replicas_and_chosen_by_name() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    assert list(gluon.collect_params(net)) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    replicas = gluon.replicate(net, ["cpu", "cpu"])
    chosen = gluon.collect_params(replicas, select=r".*weight")
    assert [(name, len(copies)) for name, copies in chosen.items()] == [("0.weight", 2), ("1.weight", 2)]


def test_the_joint_norm_is_clipped_in_place() -> None:
    tensors = [torch.tensor([3.0, 0.0]), None, torch.tensor([4.0])]
    assert gluon.clip_global_norm(tensors, 10.0) == pytest.approx(5.0)
    assert tensors[0] is not None
    assert tensors[0].tolist() == [3.0, 0.0]
    assert gluon.utils.clip_global_norm(tensors, 1.0) == pytest.approx(5.0)
    assert tensors[0].tolist() == pytest.approx([0.6, 0.0])
    assert tensors[2] is not None
    assert tensors[2].tolist() == pytest.approx([0.8])
    assert gluon.clip_global_norm([], 1.0) == 0.0


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_norm_that_is_not_finite_is_warned_about_and_nothing_is_clipped(bad: float) -> None:
    tensors = [torch.tensor([bad, 3.0])]
    with pytest.warns(UserWarning, match="not clipped"):
        norm = gluon.clip_global_norm(tensors, 1.0)
    assert not math.isfinite(norm)
    assert tensors[0][1].item() == 3.0
    gluon.clip_global_norm(tensors, 1.0, check_isfinite=False)


def test_half_precision_norms_do_not_overflow() -> None:
    tensors = [torch.full((100,), 300.0, dtype=torch.float16)]
    assert gluon.clip_global_norm(tensors, 30.0) == pytest.approx(3000.0)
    assert tensors[0].tolist() == pytest.approx([3.0] * 100, rel=1e-2)


def test_the_split_step_with_clipping_between() -> None:
    weights = {"w": [Parameter(torch.zeros(2)) for _ in range(2)]}
    trainer = gluon.Trainer(weights, "sgd", {"learning_rate": 1.0}, update_on_kvstore=False)
    backward(weights, w=[[1.0, 2.0], [2.0, 2.0]])
    trainer.allreduce_grads()
    for replica in weights["w"]:
        assert gluon.clip_global_norm([replica.grad], 1.0) == pytest.approx(5.0)
    trainer.update(1)
    assert_near(weights["w"], -0.6, -0.8)


@pytest.mark.parametrize("norm", [-1.0, 0.0, float("nan")])
def test_a_norm_that_cannot_be_reached_is_refused(norm: float) -> None:
    tensor = torch.tensor([3.0, 4.0])
    with pytest.raises(ArgumentValueError, match="norm of"):
        gluon.clip_global_norm([tensor], norm)
    assert tensor.tolist() == [3.0, 4.0]


def test_wrong_selections_axes_and_devices_are_refused_with_the_right_way() -> None:
    with pytest.raises(ArgumentValueError, match="no regular expression"):
        gluon.collect_params(nn.Linear(2, 2), "(")
    with pytest.raises(ArgumentValueError, match="batch_axis is 3"):
        gluon.split_data(torch.zeros(4, 2), 2, batch_axis=3)
    for call in (lambda: gluon.split_and_load(torch.zeros(4), "cpu"), lambda: gluon.replicate(nn.Linear(2, 2), "cpu")):
        with pytest.raises(ArgumentTypeError, match=r"Write \['cpu'\]"):
            call()
