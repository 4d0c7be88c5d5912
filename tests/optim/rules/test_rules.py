"""Every update rule: the fast form against the plain equations, and both against torch where torch has the same."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ostinato.optim import rules
from ostinato.optim.rules import Optimizer, Updater, blocks, create, fused_kernels, registered_names

# Arguments that reach every branch of a rule.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "sgd": [{}, {"momentum": 0.9}],
    "nag": [{}, {"momentum": 0.0}],
    "signum": [{}, {"momentum": 0.0, "wd_lh": 0.1}, {"wd_lh": 0.1}],
    "sgld": [{}],
    "dcasgd": [{}, {"momentum": 0.9, "lamda": 0.5}],
    "adam": [{}, {"beta1": 0.0}],
    "adamw": [{}, {"correct_bias": False}],
    "adabelief": [{}, {"correct_bias": False}],
    "adamax": [{}],
    "nadam": [{}, {"schedule_decay": 0.1}],
    "adagrad": [{}],
    "groupadagrad": [{}],
    "adadelta": [{}],
    "rmsprop": [{}, {"centered": True}, {"clip_weights": 0.4}],
    "ftrl": [{}, {"lamda1": 0.3, "beta": 0.5}],
    "ftml": [{}],
    "lamb": [{}, {"bias_correction": False}, {"lower_bound": 0.5, "upper_bound": 1.0}],
    "lans": [{}, {"lower_bound": 0.5, "upper_bound": 1.0}],
    "lars": [{}, {"momentum": 0.9, "eta": 0.1}],
    "test": [{}],
}
SHAPES = [(4, 3), (5, 1), (1, 1), (2, 3), (0, 3), (7, 2)]


def weights_like(shapes: list[tuple[int, ...]], seed: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def run(optimizer: Optimizer, weights: list[Tensor], steps: int = 4, seed: int = 100) -> Updater:
    updater = Updater(optimizer)
    for number in range(steps):
        gradients = weights_like([tuple(w.shape) for w in weights], seed + number, weights[0].dtype)
        updater(list(range(len(weights))), gradients, weights)
    return updater


def test_every_registered_rule_is_tested_here() -> None:
    assert set(VARIANTS) == set(registered_names())
    assert len(VARIANTS) == 20


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that weights are cut and gathered."""
    monkeypatch.setattr(blocks, "block_size", lambda device: 5)


@pytest.mark.parametrize("kernels", ["fused", "lists"])
@pytest.mark.parametrize("name", sorted(VARIANTS))
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_the_fast_form_gives_what_the_equations_say(name: str, kernels: str, data: st.DataObject) -> None:
    common: dict[str, Any] = {
        "learning_rate": data.draw(st.sampled_from([0.1, 1e-3])),
        "wd": 0.0 if name == "groupadagrad" else data.draw(st.sampled_from([0.0, 0.05])),
        "rescale_grad": data.draw(st.sampled_from([1.0, 0.25, -0.5])),
        "clip_gradient": data.draw(st.sampled_from([None, 0.3])),
        "begin_num_update": data.draw(st.sampled_from([0, 7])),
        **data.draw(st.sampled_from(VARIANTS[name])),
    }
    size = data.draw(st.sampled_from([3, 5, 10**6]))
    plain, fast = weights_like(SHAPES, 1), weights_like(SHAPES, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "block_size", lambda device: size)
        if kernels == "lists":
            for kernel in ("sgd", "adam"):
                patch.setattr(fused_kernels, kernel, lambda *lists, **numbers: False)
        by_equations = run(create(name, use_fused_step=False, **common), plain)
        by_blocks = run(create(name, **common), fast)
    for expected, found in zip(plain, fast, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    for index, state in by_equations.states.items():
        for key, expected in state.items():
            torch.testing.assert_close(by_blocks.states[index][key], expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_gradients_are_left_as_they_are(name: str) -> None:
    for fused in (True, False):
        wd = 0.0 if name == "groupadagrad" else 0.1
        optimizer = create(name, wd=wd, rescale_grad=0.5, clip_gradient=0.2, use_fused_step=fused)
        optimizer.multi_precision = True
        for dtype in (torch.float32, torch.float16):
            weights, gradients = weights_like([(4, 3)], 1, dtype), weights_like([(4, 3)], 2, dtype)
            before = gradients[0].clone()
            Updater(optimizer)(0, gradients[0], weights[0])
            assert torch.equal(gradients[0], before)


@pytest.mark.parametrize("aggregate_num", [1, 2, 4, math.inf])
@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_aggregation_changes_nothing(name: str, aggregate_num: float) -> None:
    together, apart = weights_like(SHAPES, 1), weights_like(SHAPES, 1)
    run(create(name), together)
    limit = min(aggregate_num, type(create(name)).max_aggregate_num)
    run(create(name, aggregate_num=limit), apart)
    for expected, found in zip(together, apart, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", sorted(set(VARIANTS) - {"groupadagrad", "sgld"}))
def test_weights_in_any_memory_layout_are_updated_alike(name: str) -> None:
    (plain,) = weights_like([(2, 3, 4, 5)], 1)
    laid_out = plain.clone(memory_format=torch.channels_last)
    crossing = torch.zeros(2, 3, 5, 4, dtype=torch.float64).transpose(2, 3).copy_(plain)
    for weight in (plain, laid_out, crossing):
        run(create(name, wd=0.1), [weight])
    torch.testing.assert_close(laid_out, plain, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(crossing, plain, rtol=1e-12, atol=1e-14)
    assert laid_out.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_a_master_copy_follows_the_rule_in_float32_and_is_rounded_into_the_weight(
    name: str, dtype: torch.dtype
) -> None:
    (weight,) = weights_like([(4, 3)], 1, dtype)
    (wide,) = [weight.float()]
    (gradient,) = weights_like([(4, 3)], 2, dtype)
    narrow, full = Updater(create(name, multi_precision=True)), Updater(create(name))
    for _ in range(3):
        narrow(0, gradient, weight)
        full(0, gradient.float(), wide)
    torch.testing.assert_close(narrow.states[0]["master_weight"], wide, rtol=1e-6, atol=1e-7)
    assert torch.equal(weight, narrow.states[0]["master_weight"].to(dtype))
    assert all(value.dtype == torch.float32 for value in narrow.states[0].values() if isinstance(value, Tensor))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_half_precision_without_a_master_copy_computes_in_float32(name: str, fused: bool) -> None:
    (weight,) = weights_like([(4, 3)], 1, torch.float16)
    (wide,) = [weight.float()]
    (gradient,) = weights_like([(4, 3)], 2, torch.float16)
    updater = Updater(create(name, use_fused_step=fused))
    with pytest.warns(UserWarning, match="Use multi_precision=True"):
        updater(0, gradient, weight)
    Updater(create(name, use_fused_step=fused))(0, gradient.float(), wide)
    assert torch.equal(weight, wide.half())
    updater(0, gradient, weight)  # and warns no second time
    assert torch.isfinite(weight).all()


# --- the same rule in torch ------------------------------------------------------------------------------------------

EQUAL_IN_TORCH: list[tuple[str, dict[str, Any], type[torch.optim.Optimizer], dict[str, Any]]] = [
    ("sgd", {"momentum": 0.9, "wd": 0.1}, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    ("sgd", {"wd": 0.1}, torch.optim.SGD, {"weight_decay": 0.1}),
    ("nag", {"wd": 0.1}, torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("adagrad", {"wd": 0.1}, torch.optim.Adagrad, {"eps": 1e-6, "weight_decay": 0.1}),
    ("adadelta", {"wd": 0.1}, torch.optim.Adadelta, {"rho": 0.9, "eps": 1e-6, "weight_decay": 0.1}),
    ("rmsprop", {"wd": 0.1}, torch.optim.RMSprop, {"alpha": 0.9, "weight_decay": 0.1}),
    ("nadam", {"schedule_decay": 0.1, "wd": 0.1}, torch.optim.NAdam, {"momentum_decay": 0.1, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("name", "ours", "cls", "torchs"), EQUAL_IN_TORCH)
def test_rules_that_torch_has_too_are_equal(
    name: str, ours: dict[str, Any], cls: type[torch.optim.Optimizer], torchs: dict[str, Any]
) -> None:
    weights, others = weights_like([(4, 3), (5,)], 1), weights_like([(4, 3), (5,)], 1)
    reference = cls(others, lr=0.01, **torchs)
    updater = Updater(create(name, learning_rate=0.01, **ours))
    for number in range(6):
        gradients = weights_like([(4, 3), (5,)], number)
        for other, gradient in zip(others, gradients, strict=True):
            other.grad = gradient.clone()
        reference.step()
        updater([0, 1], gradients, weights)
    for found, expected in zip(weights, others, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


# --- single rules ----------------------------------------------------------------------------------------------------


def test_lars_leaves_the_rate_of_biases_and_norms_alone() -> None:
    names = {0: "conv.weight", 1: "conv.bias", 2: "norm.gamma", 3: "norm.beta"}
    weights = [torch.full((3,), 2.0) for _ in names]
    Updater(create("lars", learning_rate=1.0, eta=0.1, param_idx2name=names))(
        list(names), [torch.full((3,), 1.0) for _ in names], weights
    )
    assert [round(float(weight[0]), 4) for weight in weights] == [1.8, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("fused", [True, False])
def test_lans_takes_a_gradient_of_zeros_as_it_is(fused: bool) -> None:
    weight = torch.ones(3)
    Updater(create("lans", wd=0.1, use_fused_step=fused))(0, torch.zeros(3), weight)
    assert torch.isfinite(weight).all()
    assert (weight < 1).all()


def test_noise_of_sgld_depends_on_seed_index_and_count_alone() -> None:
    def path(seed: int, index: int, steps: int) -> Tensor:
        weight, updater = torch.zeros(50), Updater(create("sgld", seed=seed))
        for _ in range(steps):
            updater(index, torch.zeros(50), weight)
        return weight

    torch.manual_seed(1)
    first = path(0, 0, 2)
    torch.manual_seed(2)
    assert torch.equal(path(0, 0, 2), first)
    assert not torch.equal(path(1, 0, 2), first)
    assert not torch.equal(path(0, 1, 2), first)
    assert not torch.equal(path(0, 0, 2) - path(0, 0, 1), path(0, 0, 1))
    assert 0.2 < float(path(0, 0, 1).std()) < 0.45  # sqrt(0.1) is 0.32


def test_every_weight_has_a_nadam_product_of_its_own() -> None:
    updater = Updater(create("nadam"))
    for index in (0, 1, 0):
        updater(index, torch.ones(2), torch.ones(2))
    rule = updater.optimizer
    assert isinstance(rule, rules.Nadam)
    assert updater.states[1]["product"] == rule.momentum_at(1)
    assert updater.states[0]["product"] == rule.momentum_at(1) * rule.momentum_at(2)
    assert rule.product_after(2, 0, 0.9, 0.004) == pytest.approx(updater.states[0]["product"], rel=1e-15)
    assert rule.product_after(2, 1, 0.9, 0.004) == pytest.approx(rule.momentum_at(2), rel=1e-15)
    assert rule.product_after(10**9, 0, 0.9, 0.004) == 0.0


@pytest.mark.parametrize("name", ["ftrl", "ftml"])
def test_rules_that_divide_by_the_rate_wait_while_it_is_zero(name: str) -> None:
    weight = torch.ones(2)
    updater = Updater(create(name, lr_scheduler=lambda update: 0.0 if update < 3 else 0.1))
    for number in range(3):
        updater(0, torch.ones(2), weight)
        assert torch.equal(weight, torch.ones(2)) == (number < 2)
    assert torch.isfinite(weight).all()
    assert updater.counts == {0: 3}


def test_dcasgd_names_the_state_that_belongs_to_a_worker() -> None:
    assert rules.DCASGD.per_worker_states == ("previous_weight",)
    assert rules.SGD.per_worker_states == ()


def test_where_a_weight_may_be_cut_is_told() -> None:
    found = {name: type(create(name)).cut for name in registered_names()}
    assert {name for name, cut in found.items() if cut == "tensors"} == {"lamb", "lans", "lars", "sgld"}
    assert {name for name, cut in found.items() if cut == "rows"} == {"groupadagrad"}
