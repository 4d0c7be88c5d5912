from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ostinato.optim.lion import Lion

LAYOUTS = [torch.contiguous_format, torch.channels_last]


def by_hand(weight: Tensor, mean: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """One update with the rate 0.01, betas 0.9 and 0.99, and the decay 0.1."""
    weight = weight * (1 - 0.01 * 0.1)
    weight = weight - 0.01 * torch.sign(0.9 * mean + 0.1 * gradient)
    return weight, 0.99 * mean + 0.01 * gradient


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("gradient_layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 4, 5, 5), (64, 64, 9, 9)])  # within a block, and cut into several
def test_updates_are_those_of_the_equations(
    shape: tuple[int, ...], layout: torch.memory_format, gradient_layout: torch.memory_format
) -> None:
    generator = torch.Generator().manual_seed(1)

    def draw() -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    parameter = nn.Parameter(draw().to(memory_format=layout))
    weight, mean = parameter.detach().clone(), torch.zeros(shape, dtype=torch.float64)
    optimizer = Lion([parameter], lr=0.01, weight_decay=0.1)
    for _ in range(3):
        gradient = draw()
        parameter.grad = gradient.to(memory_format=gradient_layout)
        optimizer.step()
        weight, mean = by_hand(weight, mean, gradient)
        torch.testing.assert_close(parameter.detach(), weight, rtol=0, atol=1e-14)
    torch.testing.assert_close(optimizer.state[parameter]["exp_avg"], mean, rtol=0, atol=1e-14)


def test_it_keeps_one_tensor_and_no_count() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = Lion([parameter])
    parameter.grad = torch.ones(2)
    optimizer.step()

    assert optimizer.state[parameter].keys() == {"exp_avg"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parameters_of_16_bits_are_updated_in_float32(dtype: torch.dtype) -> None:
    parameter = nn.Parameter(torch.ones(3, dtype=dtype))
    optimizer = Lion([parameter], lr=0.25)
    parameter.grad = torch.tensor([1.0, -1.0, 0.0], dtype=dtype)
    optimizer.step()

    assert parameter.tolist() == [0.75, 1.25, 1.0]
    assert optimizer.state[parameter]["exp_avg"].dtype == torch.float32


def test_groups_have_rates_of_their_own_and_a_closure_computes_first() -> None:
    slow, fast = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimizer = Lion([{"params": [slow]}, {"params": [fast], "lr": 0.5}], lr=0.25)

    def closure() -> Tensor:
        loss = (slow + fast).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 0
    assert (slow.item(), fast.item()) == (-0.25, -0.5)
