from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from loss_pictures import pictures, robust
from torch import Tensor

from ostinato.swap.losses import build_loss


def slow(target: Tensor, prediction: Tensor) -> Tensor:
    """Derivatives of both pictures, pixel by pixel, with indices that stop at the border."""

    def derivatives(picture: Tensor) -> list[Tensor]:
        def shifted(by_y: int, by_x: int) -> Tensor:
            height, width = picture.shape[-2:]
            rows = (torch.arange(height) + by_y).clamp(0, height - 1)
            columns = (torch.arange(width) + by_x).clamp(0, width - 1)
            return picture[..., rows, :][..., columns]

        return [
            (shifted(0, 1) - shifted(0, -1)) / 2,
            (shifted(1, 0) - shifted(-1, 0)) / 2,
            shifted(0, 1) + shifted(0, -1) - 2 * picture,
            shifted(1, 0) + shifted(-1, 0) - 2 * picture,
            (shifted(1, 1) + shifted(-1, -1) - shifted(-1, 1) - shifted(1, -1)) / 4,
        ]

    parts = [robust(p - t, 1.9999, 1 / 255) for p, t in zip(derivatives(prediction), derivatives(target), strict=True)]
    return (parts[0] + parts[1] + parts[2] + parts[3] + 2 * parts[4]) / 2


@given(st.integers(2, 12), st.integers(2, 12), st.integers(0, 99))
def test_values_and_gradients_are_those_of_the_slow_version(height: int, width: int, seed: int) -> None:
    target, prediction = pictures(height, width, seed)
    ours, theirs = prediction.clone().requires_grad_(), prediction.clone().requires_grad_()
    mine, slowly = build_loss("pixel_gradient_diff", (height, width))(target, ours), slow(target, theirs)
    torch.testing.assert_close(mine, slowly, rtol=1e-9, atol=1e-9)
    mine.square().sum().backward()
    slowly.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-7, atol=1e-7)


def test_brightness_costs_nothing_and_an_edge_along_the_width_does() -> None:
    loss = build_loss("pixel_gradient_diff", (8,))
    grey = torch.full((1, 3, 8, 8), 0.25)
    assert loss(grey, grey + 0.5).abs().max() < 1e-9
    edge = grey.clone()
    edge[..., 4:] = 0.75
    per_column = loss(grey, edge)[0, 0, 0]
    assert (per_column[3:5] > 10).all()
    assert torch.equal(per_column[[0, 1, 6, 7]], torch.zeros(4))
