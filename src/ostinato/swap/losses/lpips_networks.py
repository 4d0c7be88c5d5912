"""The networks through which ``lpips`` looks at pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Convolution:
    """A convolution and a ReLU.

    :param index: its place in torchvision's ``features``, from which its tensors have their names.
    :param tapped: what comes out is compared. (The trunks' ReLUs work in place, so it is compared after them.)
    """

    index: int
    inputs: int
    outputs: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    tapped: bool = False
    relu: bool = True

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes of its tensors."""
        yield from _pair(f"features.{self.index}", self.inputs, self.outputs, self.kernel)


@dataclass(frozen=True)
class Fire:
    """SqueezeNet's module: 1 x 1 to few channels, from them 1 x 1 and 3 x 3 side by side, each with a ReLU."""

    index: int
    inputs: int
    squeezed: int
    expanded: int
    tapped: bool = False

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes of its tensors."""
        yield from _pair(f"features.{self.index}.squeeze", self.inputs, self.squeezed, 1)
        yield from _pair(f"features.{self.index}.expand1x1", self.squeezed, self.expanded, 1)
        yield from _pair(f"features.{self.index}.expand3x3", self.squeezed, self.expanded, 3)


@dataclass(frozen=True)
class Pool:
    """The largest of each square, every second pixel."""

    kernel: int = 3
    round_up: bool = False


@dataclass(frozen=True)
class Network:
    """A trunk, and what is compared of it.

    :param name: the loss that uses it.
    :param torchvision: what torchvision calls it.
    :param package_file: the file of its head in the package ``lpips``.
    :param smallest: the smallest side of a picture, pixels, that leaves something of every map when it is cropped.
    :param crops: pixels cut from each side of each map that is compared.
    """

    name: str
    torchvision: str
    package_file: str
    smallest: int
    layers: tuple[Convolution | Fire | Pool, ...]
    crops: tuple[int, ...]

    @property
    def trunk_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the trunk's tensors."""
        return {name: shape for layer in self.layers if not isinstance(layer, Pool) for name, shape in layer.shapes()}

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels of each map that is compared, and so the length of each tensor of the head."""
        return tuple(
            layer.outputs if isinstance(layer, Convolution) else 2 * layer.expanded
            for layer in self.layers
            if not isinstance(layer, Pool) and layer.tapped
        )


def _pair(name: str, inputs: int, outputs: int, kernel: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (outputs, inputs, kernel, kernel)
    yield f"{name}.bias", (outputs,)


ALEX = Network(
    "lpips_alex",
    torchvision="alexnet",
    package_file="weights/v0.1/alex.pth",
    smallest=63,
    layers=(
        Convolution(0, 3, 64, kernel=11, stride=4, padding=2, tapped=True),
        Pool(),
        Convolution(3, 64, 192, kernel=5, padding=2, tapped=True),
        Pool(),
        Convolution(6, 192, 384, tapped=True),
        Convolution(8, 384, 256, tapped=True),
        Convolution(10, 256, 256, tapped=True),
    ),
    crops=(2, 2, 1, 1, 1),
)

SQUEEZE = Network(
    "lpips_squeeze",
    torchvision="squeezenet1_1",
    package_file="weights/v0.1/squeeze.pth",
    smallest=49,
    layers=(
        Convolution(0, 3, 64, stride=2, padding=0, tapped=True),
        Pool(round_up=True),
        Fire(3, 64, 16, 64),
        Fire(4, 128, 16, 64, tapped=True),
        Pool(round_up=True),
        Fire(6, 128, 32, 128),
        Fire(7, 256, 32, 128, tapped=True),
        Pool(round_up=True),
        Fire(9, 256, 48, 192, tapped=True),
        Fire(10, 384, 48, 192, tapped=True),
        Fire(11, 384, 64, 256, tapped=True),
        Fire(12, 512, 64, 256, tapped=True),
    ),
    crops=(1, 1, 1, 1, 1, 1, 1),
)

VGG16 = Network(
    "lpips_vgg16",
    torchvision="vgg16",
    package_file="weights/v0.1/vgg.pth",
    smallest=48,
    layers=(
        Convolution(0, 3, 64),
        Convolution(2, 64, 64, tapped=True),
        Pool(kernel=2),
        Convolution(5, 64, 128),
        Convolution(7, 128, 128, tapped=True),
        Pool(kernel=2),
        Convolution(10, 128, 256),
        Convolution(12, 256, 256),
        Convolution(14, 256, 256, tapped=True),
        Pool(kernel=2),
        Convolution(17, 256, 512),
        Convolution(19, 512, 512),
        Convolution(21, 512, 512, tapped=True),
        Pool(kernel=2),
        Convolution(24, 512, 512),
        Convolution(26, 512, 512),
        Convolution(28, 512, 512, tapped=True),
    ),
    crops=(1, 1, 1, 1, 1),
)

NETWORKS = {network.name: network for network in (ALEX, SQUEEZE, VGG16)}
