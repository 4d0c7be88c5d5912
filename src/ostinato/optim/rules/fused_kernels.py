"""Torch's fused optimizer kernels, where there are some: every value is read and written once per update.

They are what ``torch.optim`` runs with ``fused=True``. Each function here tells whether it did the work; where it says
False the caller uses torch's operations on lists, which exist everywhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

_DEVICES = frozenset({"cpu", "cuda"})
_DTYPES = frozenset({torch.float32, torch.float64})

# The sgd kernel is told 1 - scale, which keeps so many digits of the scale as the dtype has only above these.
SMALLEST_SCALE = {torch.float32: 1e-9, torch.float64: 1e-3}


def are_there_for(tensor: Tensor) -> bool:
    """True where all the kernels used here exist for tensors like this one."""
    names = ("_fused_sgd_", "_fused_adam_")
    return tensor.device.type in _DEVICES and tensor.dtype in _DTYPES and all(hasattr(torch, name) for name in names)


def _fits(*lists: list[Tensor]) -> bool:
    # The kernels walk over all tensors side by side in memory, and take one dtype.
    first = lists[0][0]
    return (
        first.device.type in _DEVICES
        and first.dtype in _DTYPES
        and all(tensor.is_contiguous() and tensor.dtype == first.dtype for tensors in lists for tensor in tensors)
    )


def sgd(
    weights: list[Tensor],
    gradients: list[Tensor],
    momenta: list[Tensor],
    *,
    rate: float,
    scale: float,
    decay: float,
    momentum: float,
) -> bool:
    """``m = momentum*m + scale*(g + decay*w)``, then ``w = w - rate*m``; without ``momenta``, m is the new part alone.

    :returns: False where there is no such kernel; nothing has changed then.
    """
    kernel = getattr(torch, "_fused_sgd_", None)
    if kernel is None or not _fits(weights, gradients, momenta):
        return False
    if momenta and abs(scale) < SMALLEST_SCALE[weights[0].dtype]:
        return False
    kernel(
        weights,
        gradients,
        momenta,
        weight_decay=decay,
        momentum=momentum,
        lr=rate if momenta else rate * scale,
        dampening=1.0 - scale if momenta else 0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )
    return True


def adam(
    weights: list[Tensor],
    gradients: list[Tensor],
    means: list[Tensor],
    variances: list[Tensor],
    *,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    count: float,
    decay: float,
) -> bool:
    """Adam as torch writes it: ``w = w - rate/(1-b1^t) * m/(sqrt(v/(1-b2^t)) + epsilon)``.

    :param count: t, possibly infinite, which stands for no bias correction.
    :param decay: what times the weight is added to the gradient.
    :returns: False where there is no such kernel; nothing has changed then.
    """
    kernel = getattr(torch, "_fused_adam_", None)
    if kernel is None or not _fits(weights, gradients, means, variances):
        return False
    step = torch.full((), float(count), dtype=torch.float32, device=weights[0].device)  # full waits for no copy
    kernel(
        weights,
        gradients,
        means,
        variances,
        [],
        [step] * len(weights),
        lr=rate,
        beta1=beta1,
        beta2=beta2,
        weight_decay=decay,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )
    return True
