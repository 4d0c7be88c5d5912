from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_pictures import filtered, pictures
from torch import Tensor

from ostinato.swap.losses import build_loss
from ostinato.swap.losses.flip import Flip

PPD = 67.02064327658226


def slow(target: Tensor, prediction: Tensor) -> Tensor:
    """The paper's steps with whole kernels, in the order in which it tells them."""
    to_xyz = torch.tensor(
        [
            [10135552 / 24577794, 8788810 / 24577794, 4435075 / 24577794],
            [2613072 / 12288897, 8788810 / 12288897, 887015 / 12288897],
            [1425312 / 73733382, 8788810 / 73733382, 70074185 / 73733382],
        ],
        dtype=torch.float64,
    )
    white = torch.tensor([0.950428545, 1.0, 1.088900371], dtype=torch.float64).view(3, 1, 1)

    def channels(matrix: Tensor, picture: Tensor) -> Tensor:
        return torch.einsum("ij,njhw->nihw", matrix, picture)

    def opponent(linear: Tensor) -> Tensor:
        x, y, z = (channels(to_xyz, linear) / white).unbind(1)
        return torch.stack((116 * y - 16, 500 * (x - y), 200 * (y - z)), 1)

    def linear_again(picture: Tensor) -> Tensor:
        lightness, red_green, blue_yellow = picture.unbind(1)
        y = (lightness + 16) / 116
        return channels(to_xyz.inverse(), torch.stack((y + red_green / 500, y, y - blue_yellow / 200), 1) * white)

    def hunt_lab(linear: Tensor) -> Tensor:
        xyz = channels(to_xyz, linear) / white
        delta = 6 / 29
        x, y, z = torch.where(xyz > delta**3, xyz.clamp(min=delta**3) ** (1 / 3), xyz / (3 * delta**2) + 4 / 29).unbind(
            1
        )
        lightness = 116 * y - 16
        return torch.stack((lightness, 5 * (x - y) * lightness, 2 * (y - z) * lightness), 1)

    def hyab(one: Tensor, other: Tensor) -> Tensor:
        d = one - other
        return (d[:, :1] ** 2).clamp(min=1e-15).sqrt() + torch.linalg.vector_norm(d[:, 1:], dim=1, keepdim=True)

    def color_kernel(a1: float, b1: float, a2: float, b2: float) -> Tensor:
        offsets = torch.arange(-10.0, 11.0, dtype=torch.float64)
        square = (offsets[:, None] ** 2 + offsets**2) / PPD**2
        kernel = a1 * math.sqrt(math.pi / b1) * torch.exp(-(math.pi**2) * square / b1)
        kernel = kernel + a2 * math.sqrt(math.pi / b2) * torch.exp(-(math.pi**2) * square / b2)
        return kernel / kernel.sum()

    kernels = [
        color_kernel(1, 0.0047, 0, 1e-5),
        color_kernel(1, 0.0053, 0, 1e-5),
        color_kernel(34.1, 0.04, 13.5, 0.025),
    ]

    def features(picture: Tensor) -> tuple[Tensor, Tensor]:
        y = (picture[:, :1] + 16) / 116
        sigma = 0.5 * 0.082 * PPD
        offsets = torch.arange(-9.0, 10.0, dtype=torch.float64)
        gaussian = torch.exp(-(offsets[:, None] ** 2 + offsets**2) / (2 * sigma**2))
        found = []
        for kernel in (-offsets * gaussian, (offsets**2 / sigma**2 - 1) * gaussian):
            positive, negative = kernel.clamp(min=0), kernel.clamp(max=0)
            kernel = positive / positive.sum() - negative / negative.sum()
            pair = [filtered(y, k, "replicate") for k in (kernel, kernel.t())]
            found.append(torch.linalg.vector_norm(torch.stack(pair), dim=0))
        return found[0], found[1]

    seen = []
    for picture in (target, prediction):
        picture = picture.clamp(0, 1)
        linear = torch.where(picture > 0.04045, ((picture.clamp(min=0.04045) + 0.055) / 1.055) ** 2.4, picture / 12.92)
        space = opponent(linear)
        blurred = torch.cat([filtered(space[:, i : i + 1], kernels[i], "replicate") for i in range(3)], 1)
        seen.append((hunt_lab(linear_again(blurred).clamp(0, 1)), *features(space)))
    green, blue = (torch.eye(3, dtype=torch.float64)[i].view(1, 3, 1, 1) for i in (1, 2))
    largest = hyab(hunt_lab(green), hunt_lab(blue)).item() ** 0.7
    error = hyab(seen[0][0], seen[1][0]) ** 0.7
    knee = 0.4 * largest
    color = torch.where(error < knee, 0.95 / knee * error, 0.95 + (error - knee) / (largest - knee) * 0.05)
    delta = torch.maximum((seen[0][1] - seen[1][1]).abs(), (seen[0][2] - seen[1][2]).abs()).clamp(min=1e-15)
    return color ** (1 - (delta / math.sqrt(2)) ** 0.5)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 99))
def test_values_and_gradients_are_those_of_the_slow_version(height: int, width: int, seed: int) -> None:
    target, prediction = pictures(height, width, seed)
    ours, theirs = prediction.clone().requires_grad_(), prediction.clone().requires_grad_()
    mine, slowly = build_loss("flip", (height, width)).double()(target, ours), slow(target, theirs)
    torch.testing.assert_close(mine, slowly, rtol=0, atol=2e-5)
    mine.mean().backward()
    slowly.mean().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    assert (ours.grad - theirs.grad).norm() < 2e-3 * theirs.grad.norm()


def test_the_constants_are_those_of_the_paper() -> None:
    loss = build_loss("flip", (41,))
    assert isinstance(loss, Flip)
    assert loss.largest == pytest.approx(41.2761, abs=1e-4)
    middle = loss.colors(41)[:, 20, 20]
    peaks = [middle[0] ** 2, middle[1] ** 2, middle[2] ** 2 + middle[3] ** 2]
    assert [float(peak) for peak in peaks] == pytest.approx([0.148811, 0.131964, 0.0200006], rel=1e-5)


def test_values_outside_the_range_are_limited_and_get_no_gradient() -> None:
    target, prediction = pictures(8, 8, 1, torch.float32)
    beyond = (prediction + 1.5).requires_grad_()
    loss = build_loss("flip", (8,))(target, beyond)
    loss.mean().backward()
    torch.testing.assert_close(loss, build_loss("flip", (8,))(target, torch.ones_like(target)))
    assert beyond.grad is not None
    assert not beyond.grad.any()
