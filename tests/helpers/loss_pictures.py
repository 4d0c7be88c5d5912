"""Pictures for tests of losses, and slow, obvious versions of what several of them are made of."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def noise(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def pictures(
    height: int, width: int, seed: int, dtype: torch.dtype = torch.float64, batch: int = 2
) -> tuple[Tensor, Tensor]:
    """A real picture of noise, and a drawn one half way to another."""
    target = noise(batch, 3, height, width, seed=seed, dtype=dtype)
    return target, (target + noise(batch, 3, height, width, seed=seed + 1000, dtype=dtype)) / 2


def gaussian(size: int, sigma: float, dtype: torch.dtype) -> Tensor:
    """(size, size), sum 1."""
    offsets = torch.arange(size, dtype=dtype) - size // 2
    kernel = torch.exp(-(offsets[:, None] ** 2 + offsets[None] ** 2) / (2 * sigma**2))
    return kernel / kernel.sum()


def filtered(pictures: Tensor, kernel: Tensor, border: str) -> Tensor:
    """Every channel with one kernel (size, size); ``border`` as in ``functional.pad``."""
    radius = kernel.shape[-1] // 2
    channels = pictures.shape[1]
    padded = functional.pad(pictures, (radius, radius, radius, radius), mode=border)
    return functional.conv2d(padded, kernel.expand(channels, 1, *kernel.shape), groups=channels)


def robust(difference: Tensor, alpha: float, scale: float) -> Tensor:
    """The general robust loss (Barron, 2019, eq. 1), times the scale."""
    rest = abs(2 - alpha)
    return scale * rest / alpha * (((difference / scale) ** 2 / rest + 1) ** (alpha / 2) - 1)


def ssim_parts(target: Tensor, prediction: Tensor, window: int = 11) -> tuple[Tensor, Tensor]:
    """l and cs."""
    kernel = gaussian(window, 1.5, target.dtype)
    m0, m1 = filtered(target, kernel, "reflect"), filtered(prediction, kernel, "reflect")
    a, b = 2 * m0 * m1, m0**2 + m1**2
    squares = filtered(target**2 + prediction**2, kernel, "reflect")
    contrast = (2 * filtered(target * prediction, kernel, "reflect") - a + 0.03**2) / (
        (squares - b).clamp(min=0) + 0.03**2
    )
    return (a + 0.01**2) / (b + 0.01**2), contrast
