"""``ffl``: focal frequency loss (Jiang et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from ostinato.swap.losses.image_loss import ImageLoss

EPSILON = 1e-6


class FocalFrequency(ImageLoss):
    """Differences of the spectra; frequencies that are furthest off count most. 0..1 for most pictures. Any size.

    With F the orthonormal two-dimensional Fourier transform of each channel and D = F(P) - F(T)::

        w    = |D| / max(largest |D| of the channel, EPSILON)
        loss = mean of w |D|^2 over channels and frequencies

    (eq. 8 to 10 with alpha = 1 and one patch.) The weights w are taken as constants: no gradient flows through them, as
    in the paper, so it is finite where frequencies agree exactly. The parts of the mean belong to frequencies and not
    to places, so a mask cannot weigh them; it can only cut out what is transformed.

    Memory of a step: one map kept, 8 at the highest.
    """

    name = "ffl"
    spatial = False

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Returns (N,)."""
        return _FocalFrequency.apply(prediction - target)


class _FocalFrequency(torch.autograd.Function):
    """The transform is linear, so one transform of the difference serves; pictures are real, so half of it does.

    Frequencies of the half that have a mirror image in the other half count twice. The gradient of the mean of w |D|^2
    with constant w is 2 / (C H W) times the transform of w D back to pixels.
    """

    @staticmethod
    def forward(ctx, difference: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(difference, norm="ortho")
        size = spectrum.abs()
        weights = size / size.amax((-2, -1), keepdim=True).clamp(min=EPSILON)
        ctx.save_for_backward(spectrum * weights)
        ctx.shape = difference.shape
        powers = weights.mul_(size).mul_(size)
        width = difference.shape[-1]
        # Column 0, and the last one of an even width, are their own mirror images.
        sums = 2 * powers.sum((-3, -2, -1)) - powers[..., 0].sum((-2, -1))
        if width % 2 == 0:
            sums = sums - powers[..., -1].sum((-2, -1))
        return sums / difference[0].numel()

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[override]
        (weighted,) = ctx.saved_tensors
        back = torch.fft.irfft2(weighted, s=ctx.shape[-2:], norm="ortho")
        return back * (gradient * (2 / (ctx.shape[-3] * ctx.shape[-2] * ctx.shape[-1])))[:, None, None, None]
