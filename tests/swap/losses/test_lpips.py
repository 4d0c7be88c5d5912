from __future__ import annotations

import pytest
import torch
from loss_pictures import pictures
from lpips_formula import formula_weights
from torch import Tensor, nn
from torch.nn import functional

from ostinato.config import LossOptions
from ostinato.errors import ArgumentValueError
from ostinato.swap.losses import SwapLoss, build_loss
from ostinato.swap.losses.lpips_networks import NETWORKS

SMALL = ["lpips_alex", "lpips_squeeze"]
"""VGG16 has nothing that these have not, and takes a hundred times as long."""


def loss_of(name: str, *lengths: int) -> nn.Module:
    return build_loss(name, lengths, {name: formula_weights(name)})


def alex_slowly(target: Tensor, prediction: Tensor) -> Tensor:
    """The published equations around the layers of AlexNet, as torch.nn has them."""
    weights = formula_weights("lpips_alex")
    layers = nn.Sequential(
        nn.Conv2d(3, 64, 11, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.ReLU(),
    )
    layers.load_state_dict({name.removeprefix("features."): tensor for name, tensor in weights.trunk.items()})
    layers = layers.to(target.dtype)
    mean, deviation = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])
    maps = [(2 * p - 1 - mean.view(3, 1, 1)) / deviation.view(3, 1, 1) for p in (target, prediction)]
    total = torch.zeros_like(target[:, :1])
    index = 0
    for layer in layers:
        maps = [layer(m) for m in maps]
        if isinstance(layer, nn.ReLU):
            crop = (2, 2, 1, 1, 1)[index]
            t, p = ((m / (m.square().sum(1, keepdim=True).sqrt() + 1e-10))[..., crop:-crop, crop:-crop] for m in maps)
            part = ((p - t) ** 2 * weights.head[index].to(target.dtype)).sum(1, keepdim=True)
            total = total + functional.interpolate(part, target.shape[-2:], mode="bilinear", align_corners=False)
            index += 1
    return total / 10


def test_values_and_gradients_of_alex_are_those_of_the_slow_version() -> None:
    target, prediction = pictures(65, 71, 1)
    ours, theirs = prediction.clone().requires_grad_(), prediction.clone().requires_grad_()
    mine, slowly = loss_of("lpips_alex", 65, 71).double()(target, ours), alex_slowly(target, theirs)
    torch.testing.assert_close(mine, slowly, rtol=0, atol=1e-8)
    mine.sum().backward()
    slowly.sum().backward()
    assert theirs.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-6 * float(theirs.grad.abs().max()))


@pytest.mark.parametrize("name", SMALL)
def test_identical_pictures_cost_nothing_and_places_may_change(name: str) -> None:
    target, prediction = pictures(64, 64, 1, torch.float32)
    loss = loss_of(name, 64)
    assert not loss(target, target).any()
    value = loss(target, prediction)
    assert value.shape == (2, 1, 64, 64)
    assert value.mean() > 1e-4
    torch.testing.assert_close(loss(prediction, target), value)
    torch.testing.assert_close(loss(target.flip(0), prediction.flip(0)), value.flip(0))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("case", ["equal", "black", "white", "beyond"])
def test_gradients_are_finite(name: str, case: str) -> None:
    target, prediction = pictures(64, 64, 1, torch.float32, batch=1)
    flat = torch.ones_like(target)
    pairs = {
        "equal": (target, target),
        "black": (flat * 0, flat * 0),
        "white": (flat, flat),
        "beyond": (target, prediction * 4 - 2),
    }
    true, drawn = pairs[case][0], pairs[case][1].clone().requires_grad_()
    loss_of(name, 64)(true, drawn).mean().backward()
    assert drawn.grad is not None
    assert torch.isfinite(drawn.grad).all()


def test_the_gradient_is_the_derivative() -> None:
    target, prediction = pictures(63, 63, 3, batch=1)
    loss = loss_of("lpips_alex", 63).double()
    prediction.requires_grad_()
    (slope,) = torch.autograd.grad(loss(target, prediction).mean(), prediction)
    direction = pictures(63, 63, 4, batch=1)[0] - 0.5
    with torch.no_grad():
        change = loss(target, prediction + 1e-6 * direction).mean() - loss(target, prediction - 1e-6 * direction).mean()
    assert (change / 2e-6).item() == pytest.approx((slope * direction).sum().item(), rel=1e-4)


def test_nothing_of_the_network_is_state_or_trained() -> None:
    loss = loss_of("lpips_squeeze", 64)
    assert loss.state_dict() == {}
    assert list(loss.parameters()) == []
    assert {buffer.device.type for buffer in loss.to("meta").buffers()} == {"meta"}


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_the_smallest_picture_leaves_something_of_every_map(name: str) -> None:
    size = NETWORKS[name].smallest
    target, prediction = pictures(size, size, 1, torch.float32, batch=1)
    assert torch.isfinite(loss_of(name, size)(target, prediction)).all()
    with pytest.raises(ArgumentValueError, match=f"{name} needs pictures of at least {size} x {size} pixels"):
        loss_of(name, size - 1)


def test_the_collator_weighs_it_by_masks_and_computes_it_in_float32() -> None:
    options = LossOptions(
        loss_function="mae", loss_function_2="lpips_alex", loss_weight_2=25, eye_multiplier=1, mouth_multiplier=1
    )
    loss = SwapLoss(options, False, (64,), {"lpips_alex": formula_weights("lpips_alex")})
    target, prediction = pictures(64, 64, 1, torch.float32)
    face = (pictures(64, 64, 5, torch.float32)[0][:, :1] > 0.5).float()
    drawn = prediction.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        result = loss([drawn], [target], {"face": [face]})
    expected = (loss_of("lpips_alex", 64)(target, drawn.float()) * face).mean().item()
    assert result.unweighted[0]["lpips_alex"].item() == pytest.approx(expected, rel=1e-5)
    assert result.weighted[0]["lpips_alex"].item() == pytest.approx(expected / 4, rel=1e-5)
    assert loss.state_dict() == {}


def test_weights_that_are_missing_or_of_another_network_are_named() -> None:
    with pytest.raises(ArgumentValueError, match="lpips_alex was given no weights"):
        SwapLoss(LossOptions(loss_function_2="lpips_alex", lpips_files=["x"]), False, (64,))
    with pytest.raises(ArgumentValueError, match="lpips_alex was given the weights of lpips_squeeze"):
        build_loss("lpips_alex", (64,), {"lpips_alex": formula_weights("lpips_squeeze")})
