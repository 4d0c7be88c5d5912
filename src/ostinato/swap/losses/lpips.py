"""``lpips_alex``, ``lpips_squeeze``, ``lpips_vgg16``: learned perceptual similarity (Zhang et al., 2018)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ostinato.errors import ArgumentValueError
from ostinato.swap.losses.image_loss import ImageLoss
from ostinato.swap.losses.lpips_networks import ALEX, SQUEEZE, VGG16, Convolution, Network, Pool
from ostinato.swap.losses.lpips_weights import LpipsWeights

MEANS = (-0.030, -0.088, -0.188)
DEVIATIONS = (0.458, 0.448, 0.450)
FACTOR = 0.1


class Lpips(ImageLoss):
    """How differently a network that was trained to name objects sees the two pictures. Three channels.

    Pictures are scaled to -1..1 and by the network's means and deviations, and run through its trunk. With f_k the maps
    that are compared, each pixel of them divided by its length, and h_k the head's weights for the channels::

        loss = 0.1 sum over k of enlarge(sum over channels of h_k (f_k(P) - f_k(T))^2)

    (eq. 1, as a map; enlarged to the size of the picture, bilinear.) A pixel or two at the borders of each map are left
    out first, where the network sees the padding. Values depend on the weights, mostly 0..0.1. Nothing of the network
    is trained: it runs in float32 whatever the model trains in, and is no part of the run's state.

    Memory of a step: the trunk's maps of P. Per picture of 64 x 64 pixels, alex keeps 0.4 MiB, squeeze 2 and vgg16 9;
    the highest points are 1.7, 5 and 17 MiB. They grow with the number of pixels.

    :param lengths: all heights and widths that pictures will have, pixels.
    :param weights: trunk and head, from :func:`~ostinato.swap.losses.lpips_weights.read_lpips_weights`.
    :raises ArgumentValueError: a length is too small, or the weights are those of another network.
    """

    network: ClassVar[Network]

    def __init__(self, lengths: Iterable[int], weights: LpipsWeights) -> None:
        super().__init__(lengths)
        if weights.network != self.network.name:
            raise ArgumentValueError(
                f"{self.name} was given the weights of {weights.network}.", advice="Give it its own trunk and head."
            )
        # Not state: they stay as they are in the user's files.
        for name in self.network.trunk_shapes:
            self.register_buffer(_buffer(name), weights.trunk[name], persistent=False)
        for index, head in enumerate(weights.head):
            self.register_buffer(f"head_{index}", head, persistent=False)
        self.register_buffer("means", torch.tensor(MEANS).view(3, 1, 1), persistent=False)
        self.register_buffer("deviations", torch.tensor(DEVIATIONS).view(3, 1, 1), persistent=False)

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Returns (N, 1, H, W)."""
        with torch.no_grad():
            real = list(self._features(target))
        size = target.shape[-2:]
        loss = None
        for index, drawn in enumerate(self._features(prediction)):
            # One at a time, so that maps that have been compared can go.
            difference = (drawn - real[index]).square()
            real[index] = difference.new_empty(0)
            part = functional.conv2d(difference, self.get_buffer(f"head_{index}"))
            part = functional.interpolate(part, size=size, mode="bilinear", align_corners=False)
            loss = part if loss is None else loss + part
        assert loss is not None
        return loss * FACTOR

    def _features(self, pictures: Tensor) -> Iterator[Tensor]:
        """The maps that are compared: every pixel of length 1, cropped."""
        maps = (pictures * 2 - 1 - self.get_buffer("means")) / self.get_buffer("deviations")
        crops = iter(self.network.crops)
        for layer in self.network.layers:
            if isinstance(layer, Pool):
                maps = functional.max_pool2d(maps, layer.kernel, 2, ceil_mode=layer.round_up)
                continue
            if isinstance(layer, Convolution):
                maps = self._convolved(maps, f"features.{layer.index}", layer.stride, layer.padding)
                maps = functional.relu(maps) if layer.relu else maps
            else:
                name = f"features.{layer.index}"
                squeezed = functional.relu(self._convolved(maps, f"{name}.squeeze"))
                one, three = f"{name}.expand1x1", f"{name}.expand3x3"
                expanded = (self._convolved(squeezed, one), self._convolved(squeezed, three, padding=1))
                maps = functional.relu(torch.cat(expanded, 1))
            if layer.tapped:
                crop = next(crops)
                yield _of_length_one(maps)[..., crop:-crop, crop:-crop]

    def _convolved(self, maps: Tensor, name: str, stride: int = 1, padding: int = 0) -> Tensor:
        weight, bias = self.get_buffer(_buffer(f"{name}.weight")), self.get_buffer(_buffer(f"{name}.bias"))
        return functional.conv2d(maps, weight, bias, stride, padding)


class LpipsAlex(Lpips):
    """:class:`Lpips` with AlexNet. At least 63 x 63 pixels. The quickest, and closest to what people say."""

    name = ALEX.name
    smallest = ALEX.smallest
    network = ALEX


class LpipsSqueeze(Lpips):
    """:class:`Lpips` with SqueezeNet 1.1. At least 49 x 49 pixels. The smallest files."""

    name = SQUEEZE.name
    smallest = SQUEEZE.smallest
    network = SQUEEZE


class LpipsVgg16(Lpips):
    """:class:`Lpips` with VGG16. At least 48 x 48 pixels. By far the slowest, and the largest file."""

    name = VGG16.name
    smallest = VGG16.smallest
    network = VGG16


def _buffer(name: str) -> str:
    return name.replace(".", "_")


def _of_length_one(maps: Tensor) -> Tensor:
    # The norm, unlike a root of a sum, has the gradient 0 where all channels are 0.
    return maps / (torch.linalg.vector_norm(maps, dim=1, keepdim=True) + 1e-10)
