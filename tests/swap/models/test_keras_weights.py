from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from ostinato.errors import BadInputError
from ostinato.swap.models import export_keras_weights, keras_weights, load_keras_weights
from ostinato.swap.models.initializers import initialize
from ostinato.swap.models.layers import Convolution, Dense

Weights = dict[str, NDArray[np.float32]]


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv_4_0_conv2d = Convolution(3, 4, 5, 2)
        self.dense = Dense(6, 2)


class Model(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.encoder = Part()
        initialize(self, torch.Generator().manual_seed(seed))


def test_paths_shapes_and_turned_kernels() -> None:
    weights = {weight.path: weight for weight in keras_weights(Model(0))}
    kernel = weights["encoder/conv_4_0_conv2d/kernel"]
    assert (kernel.parameter, kernel.shape, kernel.is_turned) == (
        "encoder.conv_4_0_conv2d.weight",
        (5, 5, 3, 4),
        True,
    )
    assert weights["encoder/conv_4_0_conv2d/bias"].shape == (4,)
    assert weights["encoder/dense/kernel"].shape == (6, 2)
    assert not weights["encoder/dense/kernel"].is_turned


def test_a_kernel_is_transposed_and_turned() -> None:
    model = Model(0)
    kernel = export_keras_weights(model)["encoder/conv_4_0_conv2d/kernel"]
    assert kernel[0, 1, 2, 3] == model.encoder.conv_4_0_conv2d.weight[3, 2, 4, 3].item()


def test_what_is_exported_loads_into_another_model() -> None:
    source, target = Model(0), Model(1)
    load_keras_weights(target, export_keras_weights(source))
    for name, value in source.state_dict().items():
        assert torch.equal(value, target.state_dict()[name])


def without_bias(weights: Weights) -> None:
    del weights["encoder/dense/bias"]


def with_another_shape(weights: Weights) -> None:
    weights["encoder/dense/kernel"] = np.zeros((2, 6), np.float32)


def with_one_too_many(weights: Weights) -> None:
    weights["encoder/dense_1/bias"] = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("spoil", "path"),
    [
        (without_bias, "encoder/dense/bias"),
        (with_another_shape, "encoder/dense/kernel"),
        (with_one_too_many, "encoder/dense_1/bias"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_changed(spoil: Callable[[Weights], None], path: str) -> None:
    model = Model(1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    weights = export_keras_weights(Model(0))
    spoil(weights)

    with pytest.raises(BadInputError) as caught:
        load_keras_weights(model, weights)

    assert caught.value.fields["path"] == path
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
