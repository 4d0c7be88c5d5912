from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from ostinato.swap.models.matrix_convolution import matrix_convolution


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (5, 2), (1, 1)])
@pytest.mark.parametrize("size", [(4, 4), (8, 6), (1, 1), (7, 5)])
def test_values_and_gradients_are_those_of_a_convolution(kernel: int, stride: int, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 2, *size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 2, kernel, kernel, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(4, dtype=torch.float64, requires_grad=True)
    inputs = (x, weight, bias)

    ours = matrix_convolution(x, weight, bias, stride, kernel // 2)
    expected = functional.conv2d(x, weight, bias, stride, kernel // 2)
    gradient = torch.randn_like(expected)

    torch.testing.assert_close(ours, expected)
    ours_gradients = torch.autograd.grad(ours, inputs, gradient)
    for one, other in zip(ours_gradients, torch.autograd.grad(expected, inputs, gradient), strict=True):
        torch.testing.assert_close(one, other)


def test_its_result_can_be_changed_in_place() -> None:
    weight = torch.randn(4, 2, 1, 1, requires_grad=True)
    y = functional.leaky_relu_(matrix_convolution(torch.randn(1, 2, 1, 1), weight, torch.zeros(4), 1, 0), 0.1)
    y.sum().backward()
    assert weight.grad is not None


def test_a_frozen_input_needs_no_gradient() -> None:
    weight = torch.randn(4, 2, 3, 3, requires_grad=True)
    bias = torch.zeros(4)
    matrix_convolution(torch.randn(1, 2, 4, 4), weight, bias, 1, 1).sum().backward()
    assert weight.grad is not None
