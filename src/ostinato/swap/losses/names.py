"""Loss functions by the names they have in options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ostinato.errors import ArgumentValueError
from ostinato.swap.losses.ffl import FocalFrequency
from ostinato.swap.losses.flip import Flip
from ostinato.swap.losses.gmsd import EdgeSimilarity
from ostinato.swap.losses.image_loss import ImageLoss
from ostinato.swap.losses.l_inf_norm import LargestDifference
from ostinato.swap.losses.laploss import LaplacianPyramid
from ostinato.swap.losses.logcosh import LogCosh
from ostinato.swap.losses.lpips import Lpips, LpipsAlex, LpipsSqueeze, LpipsVgg16
from ostinato.swap.losses.lpips_weights import LpipsWeights
from ostinato.swap.losses.mae import MeanAbsolute
from ostinato.swap.losses.ms_ssim import MultiScaleSsim
from ostinato.swap.losses.mse import MeanSquared
from ostinato.swap.losses.pixel_gradient_diff import PixelGradientDifference
from ostinato.swap.losses.smooth_loss import SmoothLoss
from ostinato.swap.losses.ssim import Ssim

_CLASSES: dict[str, type[ImageLoss]] = {
    cls.name: cls
    for cls in (
        EdgeSimilarity,
        Flip,
        FocalFrequency,
        LaplacianPyramid,
        LargestDifference,
        LogCosh,
        MeanAbsolute,
        MeanSquared,
        MultiScaleSsim,
        PixelGradientDifference,
        SmoothLoss,
        Ssim,
    )
}


_LPIPS: dict[str, type[Lpips]] = {cls.name: cls for cls in (LpipsAlex, LpipsSqueeze, LpipsVgg16)}


def loss_names() -> tuple[str, ...]:
    """The names that :func:`build_loss` knows, apart from ``none``."""
    return tuple(sorted([*_CLASSES, *_LPIPS]))


def build_loss(name: str, lengths: Iterable[int], weights: Mapping[str, LpipsWeights] | None = None) -> ImageLoss:
    """The loss function of that name.

    :param name: one of :func:`loss_names`.
    :param lengths: all heights and widths that pictures will have, pixels.
    :param weights: loss name to weights, as :func:`read_lpips_weights` gives them; for ``lpips_...`` alone.
    :raises ArgumentValueError: the name is not known, a length is too small for the function, or its weights are
        missing.
    """
    if name in _LPIPS:
        if weights is None or name not in weights:
            raise ArgumentValueError(
                f"{name} was given no weights.",
                advice="Read them with read_lpips_weights(), from the files that loss.lpips_files names.",
            )
        return _LPIPS[name](lengths, weights[name])
    if name not in _CLASSES:
        raise ArgumentValueError(
            f"There is no loss function called {name!r}.", advice=f"Choose one of: {', '.join(loss_names())}."
        )
    return _CLASSES[name](lengths)
