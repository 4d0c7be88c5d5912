"""Weights between Faceswap's (Keras') names and layouts and ours.

A weight of Faceswap is named by a path, ``encoder/conv_128_0_conv2d/kernel``; ours is
``encoder.conv_128_0_conv2d.weight``. Kernels of convolutions are (height, width, in, out) there and (out, in, height,
width) here, some of them turned by 180 degrees; those of dense layers (in, out) there and (out, in) here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ostinato.errors import BadInputError
from ostinato.swap.models.layers import Convolution

_KERAS_NAMES = {"weight": "kernel", "bias": "bias"}


@dataclass(frozen=True)
class KerasWeight:
    """One weight under both of its names.

    :param path: ``sub-model/layer/weight``.
    :param parameter: the name in our state dict.
    :param shape: the shape in Keras' layout.
    :param is_turned: our kernel is turned by 180 degrees (see :mod:`ostinato.swap.models.layers`).
    """

    path: str
    parameter: str
    shape: tuple[int, ...]
    is_turned: bool

    def to_keras(self, weight: Tensor) -> Tensor:
        """Rearrange our weight, or a moment of it, to Keras' layout."""
        if self.is_turned:
            weight = weight.flip(2, 3)
        return weight.permute(2, 3, 1, 0) if weight.ndim == 4 else weight.t() if weight.ndim == 2 else weight

    def from_keras(self, weight: Tensor) -> Tensor:
        """The inverse of :meth:`to_keras`."""
        weight = weight.permute(3, 2, 0, 1) if weight.ndim == 4 else weight.t() if weight.ndim == 2 else weight
        return weight.flip(2, 3) if self.is_turned else weight


def keras_weights(model: nn.Module) -> list[KerasWeight]:
    """List all weights of a swap model, in the order of its state dict."""
    weights = []
    for parameter, value in model.state_dict().items():
        *layer, kind = parameter.split(".")
        path = "/".join([*layer, _KERAS_NAMES[kind]])
        module = model.get_submodule(".".join(layer))
        is_turned = isinstance(module, Convolution) and module.is_turned and value.ndim == 4
        shape = tuple(value.shape)
        # (out, in, height, width) to (height, width, in, out), and (out, in) to (in, out).
        keras_shape = (*shape[2:], *reversed(shape[:2]))
        weights.append(KerasWeight(path, parameter, keras_shape, is_turned))
    return weights


def load_keras_weights(model: nn.Module, weights: Mapping[str, NDArray[np.float32]]) -> None:
    """Copy weights given by Faceswap's paths and in Faceswap's layout into a model.

    :raises BadInputError: names or shapes do not agree one to one; the first that does not is named. The model is then
        as it was. Fields: ``path``.
    """
    expected = keras_weights(model)
    for weight in expected:
        if weight.path not in weights:
            raise BadInputError(
                f"The weight {weight.path} is missing.",
                advice="The file belongs to another model, or to one built with other options.",
                path=weight.path,
            )
        shape = tuple(weights[weight.path].shape)
        if shape != weight.shape:
            raise BadInputError(
                f"The weight {weight.path} has shape {shape}, and this model needs {weight.shape}.",
                advice="The file belongs to a model built with other options.",
                path=weight.path,
            )
    surplus = sorted(weights.keys() - {weight.path for weight in expected})
    if surplus:
        raise BadInputError(
            f"The weight {surplus[0]} has no place in this model ({len(surplus)} such weights in all).",
            advice="The file belongs to another model, or to one built with other options.",
            path=surplus[0],
        )
    state = model.state_dict()
    with torch.no_grad():
        for weight in expected:
            # numpy hands out read-only and big-endian arrays too; a copy in native order suits torch.
            value = np.array(weights[weight.path], dtype=np.float32)
            state[weight.parameter].copy_(weight.from_keras(torch.from_numpy(value)))


def export_keras_weights(model: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Give all weights by Faceswap's paths, in Faceswap's layout, as copies on the host."""
    state = model.state_dict()
    return {
        weight.path: weight.to_keras(state[weight.parameter].detach().float().cpu()).contiguous().numpy().copy()
        for weight in keras_weights(model)
    }
