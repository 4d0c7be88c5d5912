"""The building blocks of Faceswap's models, as lists of named layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from ostinato.swap.models.layer_names import LayerNames
from ostinato.swap.models.layers import (
    LEAKY_SLOPE,
    ChannelsLastFlatten,
    ChannelsLastReshape,
    Convolution,
    Dense,
    PixelShuffler,
    SigmoidOutput,
    Turn,
)

NamedLayers = list[tuple[str, nn.Module]]
"""Layers to be run one after the other, each under the name that Faceswap gives it."""


class Blocks:
    """Makes blocks for one model, with running numbers in their names.

    :param reflect_padding: blocks mirror the picture at its border; output convolutions keep zeros.
    """

    def __init__(self, *, reflect_padding: bool = False) -> None:
        self.names = LayerNames()
        self.reflect_padding = reflect_padding

    def halvings(self, widths: Sequence[int], kernel: int = 5) -> NamedLayers:
        """Halve the picture again and again, by convolutions of stride 2 and leaky ReLUs.

        :param widths: channels of the input, and of each convolution.
        """
        layers: NamedLayers = [("turn", Turn())]
        for inputs, filters in pairwise(widths):
            layers += self._convolution(self.names.block(f"conv_{filters}"), inputs, filters, kernel, 2)
        return [*layers, ("turn_back", Turn())]

    def upscale(self, inputs: int, filters: int, kernel: int = 3, scale: int = 2) -> NamedLayers:
        """Enlarge the picture: a convolution to ``filters * scale**2`` channels, a leaky ReLU, depth to space."""
        name = self.names.block(f"upscale_{filters}")
        prefix = f"{name}_conv2d"
        layers = self._convolution(prefix, inputs, filters * scale * scale, kernel, 1, upscale=scale)
        return [*layers, (f"{name}_pixelshuffler", PixelShuffler(scale))]

    def output(self, inputs: int, filters: int, key: str, kernel: int = 5) -> NamedLayers:
        """The end of a branch: a convolution, always padded with zeros, and a sigmoid."""
        name = self.names.block(key)
        return [(f"{name}_conv2d", Convolution(inputs, filters, kernel)), (name, SigmoidOutput())]

    def dense(self, inputs: int, units: int) -> NamedLayers:
        """A fully connected layer."""
        return [(self.names.layer("dense"), Dense(inputs, units))]

    def flatten(self) -> NamedLayers:
        """From a feature map to a vector."""
        return [(self.names.layer("flatten"), ChannelsLastFlatten())]

    def reshape(self, channels: int, side: int) -> NamedLayers:
        """From a vector to a square feature map."""
        return [(self.names.layer("reshape"), ChannelsLastReshape(channels, side, side))]

    def _convolution(
        self, prefix: str, inputs: int, filters: int, kernel: int, stride: int, upscale: int = 1
    ) -> NamedLayers:
        convolution = Convolution(inputs, filters, kernel, stride, reflect=self.reflect_padding, upscale=upscale)
        # In place: a convolution needs its inputs for its gradient and not its outputs, and the sign of a leaky ReLU
        # with a positive slope can be read off its result.
        activation = nn.LeakyReLU(LEAKY_SLOPE, inplace=True)
        return [(f"{prefix}_conv2d", convolution), (f"{prefix}_leakyrelu", activation)]
