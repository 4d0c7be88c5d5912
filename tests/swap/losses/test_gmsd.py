from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from loss_pictures import filtered, pictures
from torch import Tensor

from ostinato.swap.losses import build_loss

KERNEL = (
    (0.0007, 0.0052, 0.0370, 0.0052, 0.0007),
    (0.0037, 0.1187, 0.2589, 0.1187, 0.0037),
    (0, 0, 0, 0, 0),
    (-0.0037, -0.1187, -0.2589, -0.1187, -0.0037),
    (-0.0007, -0.0052, -0.0370, -0.0052, -0.0007),
)


def slow(target: Tensor, prediction: Tensor) -> Tensor:
    """Both filters on each channel, one by one."""
    total = torch.zeros_like(target[:, :1])
    kernel = torch.tensor(KERNEL).to(target.dtype)  # kept in float32
    for one in (kernel, kernel.t()):
        for channel in range(3):
            t = filtered(target[:, channel : channel + 1], one, "reflect")
            p = filtered(prediction[:, channel : channel + 1], one, "reflect")
            total = total + (2 * t * p + 0.0025) / (t * t + p * p + 0.0025)
    return 1 - total / 6


@given(st.integers(3, 12), st.integers(3, 12), st.integers(0, 99))
def test_values_and_gradients_are_those_of_the_slow_version(height: int, width: int, seed: int) -> None:
    target, prediction = pictures(height, width, seed)
    ours, theirs = prediction.clone().requires_grad_(), prediction.clone().requires_grad_()
    mine, slowly = build_loss("gmsd", (height, width)).double()(target, ours), slow(target, theirs)
    torch.testing.assert_close(mine, slowly)
    mine.square().sum().backward()
    slowly.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_every_channel_is_filtered_both_ways() -> None:
    loss = build_loss("gmsd", (12,))
    flat = torch.full((1, 3, 12, 12), 0.5)
    values = set()
    for channel in range(3):
        for axis in (-2, -1):
            edge = flat.clone()
            edge[0, channel].narrow(axis, 6, 6).fill_(1.0)
            values.add(round(loss(flat, edge).mean().item(), 6))
    assert len(values) == 1
    assert values.pop() > 0.01
