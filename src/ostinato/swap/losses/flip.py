"""``flip``: LDR-FLIP, the difference seen when flipping between two pictures (Andersson et al., 2020)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from ostinato.swap.losses.image_loss import AxisMatrices, ImageLoss

PIXELS_PER_DEGREE = (0.7 * 3840 / 0.7) * math.pi / 180
"""A screen 0.7 m wide with 3840 pixels, seen from 0.7 m."""

COLOR_RADIUS = 10
COLOR_GAUSSIANS = {"Y": ((1.0, 0.0047),), "Cx": ((1.0, 0.0053),), "Cz": ((34.1, 0.04), (13.5, 0.025))}
"""Contrast sensitivity of each channel: amplitude and width (square degrees) of a sum of Gaussians (table 1)."""

FEATURE_SIGMA = 0.5 * 0.082 * PIXELS_PER_DEGREE
FEATURE_RADIUS = math.ceil(3 * FEATURE_SIGMA)

COLOR_EXPONENT = 0.7
FEATURE_EXPONENT = 0.5
COLOR_SHARE = 0.4
COLOR_KNEE = 0.95
EPSILON = 1e-15

_RGB_TO_XYZ = torch.tensor(
    (
        (10135552 / 24577794, 8788810 / 24577794, 4435075 / 24577794),
        (2613072 / 12288897, 8788810 / 12288897, 887015 / 12288897),
        (1425312 / 73733382, 8788810 / 73733382, 70074185 / 73733382),
    ),
    dtype=torch.float64,
)
_WHITE = torch.tensor((0.950428545, 1.0, 1.088900371), dtype=torch.float64)
# Y, Cx, Cz (less the constant 16 of Y) from X, Y, Z over the white point's.
_TO_OPPONENT = torch.tensor(((0.0, 116.0, 0.0), (500.0, -500.0, 0.0), (0.0, 200.0, -200.0)), dtype=torch.float64)
_LINEAR_TO_OPPONENT = _TO_OPPONENT @ torch.diag(1 / _WHITE) @ _RGB_TO_XYZ
_LINEAR_TO_WHITE_XYZ = torch.diag(1 / _WHITE) @ _RGB_TO_XYZ
_LAB_DELTA = 6 / 29


def color_matrices(length: int) -> Tensor:
    """The four Gaussians of the colour filters along an axis, border repeated: (4, length, length), float32.

    In the order Y, Cx, first and second of Cz. The two of Cz are scaled so that their two-dimensional filters add up to
    the filter of Cz, whose sum is 1.
    """
    lines, totals = [], []
    offsets = range(-COLOR_RADIUS, COLOR_RADIUS + 1)
    for gaussians in COLOR_GAUSSIANS.values():
        parts = []
        for amplitude, width in gaussians:
            line = [math.exp(-((math.pi * offset / PIXELS_PER_DEGREE) ** 2) / width) for offset in offsets]
            # Half of the factor on each axis.
            factor = math.sqrt(amplitude * math.sqrt(math.pi / width))
            parts.append([factor * value for value in line])
        total = math.sqrt(sum(sum(part) ** 2 for part in parts))
        totals += [total] * len(parts)
        lines += parts
    return torch.stack([_border_repeated([v / t for v in line], length) for line, t in zip(lines, totals, strict=True)])


def feature_matrices(length: int) -> Tensor:
    """The Gaussian, the edge and the point filter along an axis, border repeated: (3, length, length), float32.

    The Gaussian has the sum 1; of the others, the negative weights have the sum -1 and the positive ones 1.
    """
    offsets = range(-FEATURE_RADIUS, FEATURE_RADIUS + 1)
    gaussian = [math.exp(-(offset**2) / (2 * FEATURE_SIGMA**2)) for offset in offsets]
    smooth = [value / sum(gaussian) for value in gaussian]
    edge = _balanced([-offset * value for offset, value in zip(offsets, gaussian, strict=True)])
    point = _balanced([((o / FEATURE_SIGMA) ** 2 - 1) * value for o, value in zip(offsets, gaussian, strict=True)])
    return torch.stack([_border_repeated(line, length) for line in (smooth, edge, point)])


class Flip(ImageLoss):
    """How much a viewer notices at every pixel when one picture takes the place of the other. Three channels, any size.

    Pictures are limited to 0..1, so values outside get no gradient. Colours and features are compared apart:

    * colours are brought into an opponent space (Y, Cx, Cz), blurred as much as an eye does at 67 pixels per degree,
      limited to what a screen can show and compared in L*a*b* (a*, b* scaled by L*/100) by
      |dL| + sqrt(da^2 + db^2), to the power of 0.7. The result, c, is mapped to 0..1, bent at 0.4 of the largest
      difference, that of green and blue: E_c.
    * edges and points are the responses of Y to first and second derivatives of a Gaussian of 2.75 pixels;
      E_f = sqrt(larger difference of their magnitudes / sqrt 2).

    ``loss = E_c^(1 - E_f)`` (eq. 4 to 9 of the paper), 0..1. Identical pictures give 3e-7, and the gradient grows
    without bound towards them. Left alone, it overlooks grids and moire, so it is meant as a companion of other losses.

    Memory of a step: 17 maps kept, 40 at the highest.
    """

    name = "flip"

    def __init__(self, lengths: Iterable[int]) -> None:
        super().__init__(lengths)
        self.colors = AxisMatrices(color_matrices, self.lengths)
        self.features = AxisMatrices(feature_matrices, self.lengths)
        inverse = torch.linalg.inv(_LINEAR_TO_OPPONENT)
        for name, matrix in (
            ("to_opponent", _LINEAR_TO_OPPONENT),
            ("from_opponent", inverse),
            ("to_white_xyz", _LINEAR_TO_WHITE_XYZ),
        ):
            self.register_buffer(name, matrix.float(), persistent=False)
        green, blue = _hunt_lab(torch.eye(3, dtype=torch.float64)[None, :, 1:, None], _LINEAR_TO_WHITE_XYZ).unbind(2)
        self.largest = float(_hyab(green[..., None], blue[..., None]).pow(COLOR_EXPONENT))

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Returns (N, 1, H, W)."""
        lab_target, edge_target, point_target = self._seen(target)
        lab, edge, point = self._seen(prediction)

        distance = _hyab(lab_target, lab).pow(COLOR_EXPONENT)
        knee = COLOR_SHARE * self.largest
        of_colors = torch.where(
            distance < knee,
            distance * (COLOR_KNEE / knee),
            COLOR_KNEE + (distance - knee) * ((1 - COLOR_KNEE) / (self.largest - knee)),
        )
        difference = torch.maximum((edge_target - edge).abs(), (point_target - point).abs()).clamp(min=EPSILON)
        of_features = (difference / math.sqrt(2)).pow(FEATURE_EXPONENT)
        return of_colors.pow(1 - of_features)

    def _seen(self, pictures: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """L*a*b* of the blurred picture, (N, 3, H, W), and the magnitudes of edges and points, (N, 1, H, W)."""
        opponent = _per_pixel(self.get_buffer("to_opponent"), _linear(pictures.clamp(0, 1)))
        height, width = pictures.shape[-2:]
        rows, columns = self.colors(height), self.colors(width)
        blurred = torch.matmul(torch.matmul(rows[:3], opponent), columns[:3].mT)
        blue_yellow = torch.matmul(torch.matmul(rows[3], opponent[:, 2]), columns[3].t())
        blurred = torch.cat((blurred[:, :2], (blurred[:, 2] + blue_yellow)[:, None]), 1)
        shown = _per_pixel(self.get_buffer("from_opponent"), blurred).clamp(0, 1)
        lab = _hunt_lab(shown, self.get_buffer("to_white_xyz"))

        # Constants do not matter to filters whose sum is 0, so the 16 that Y lacks may stay away.
        lightness = opponent[:, :1] / 116
        rows, columns = self.features(height), self.features(width)
        smooth_rows = torch.matmul(rows[0], lightness)
        smooth_columns = torch.matmul(lightness, columns[0].t())
        across = torch.matmul(smooth_rows, columns[1:].mT)
        along = torch.matmul(rows[1:], smooth_columns)
        magnitudes = torch.linalg.vector_norm(torch.stack((across, along)), dim=0)
        return lab, magnitudes[:, :1], magnitudes[:, 1:]


def _linear(srgb: Tensor) -> Tensor:
    bent = ((srgb.clamp(min=0.04045) + 0.055) / 1.055).pow(2.4)
    return torch.where(srgb > 0.04045, bent, srgb / 12.92)


def _per_pixel(matrix: Tensor, pictures: Tensor) -> Tensor:
    """A matrix (3, 3) times the channels of (N, 3, H, W)."""
    return torch.matmul(matrix, pictures.flatten(2)).view(pictures.shape)


def _hunt_lab(linear: Tensor, to_white_xyz: Tensor) -> Tensor:
    """L*, a* and b* of linear RGB, (N, 3, H, W), the last two scaled by L*/100 (Hunt effect)."""
    xyz = _per_pixel(to_white_xyz, linear)
    root = xyz.clamp(min=_LAB_DELTA**3).pow(1 / 3)
    x, y, z = torch.where(xyz > _LAB_DELTA**3, root, xyz / (3 * _LAB_DELTA**2) + 4 / 29).split(1, 1)
    lightness = 116 * y - 16
    hunt = 0.01 * lightness
    return torch.cat((lightness, 500 * (x - y) * hunt, 200 * (y - z) * hunt), 1)


def _hyab(one: Tensor, other: Tensor) -> Tensor:
    """|dL| + sqrt(da^2 + db^2), (N, 1, H, W), the first term at least sqrt(EPSILON)."""
    difference = one - other
    lightness = difference[:, :1].square().clamp(min=EPSILON).sqrt()
    # The norm, unlike a root of a sum, has the gradient 0 at 0.
    return lightness + torch.linalg.vector_norm(difference[:, 1:], dim=1, keepdim=True)


def _balanced(line: list[float]) -> list[float]:
    negative, positive = -sum(v for v in line if v < 0), sum(v for v in line if v > 0)
    return [value / (negative if value < 0 else positive) for value in line]


def _border_repeated(line: list[float], length: int) -> Tensor:
    radius = len(line) // 2
    matrix = torch.zeros(length, length, dtype=torch.float64)
    for row in range(length):
        for offset, value in zip(range(-radius, radius + 1), line, strict=True):
            matrix[row, min(max(row + offset, 0), length - 1)] += value
    return matrix.float()
