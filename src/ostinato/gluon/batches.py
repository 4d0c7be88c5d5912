"""What Gluon keeps in ``gluon.utils``: batches cut over devices, and gradients clipped by their joint norm."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore import split_and_load, split_data
from ostinato.optim.argument_checks import require_number

__all__ = ["clip_global_norm", "split_and_load", "split_data"]

_EPSILON = 1e-8


def clip_global_norm(arrays: Sequence[Tensor | None], max_norm: float, check_isfinite: bool = True) -> float:
    """Scale tensors in place so that their joint 2-norm is at most ``max_norm``.

    With several replicas call it once for each, on the gradients of all its parameters, between ``allreduce_grads()``
    and ``update()``. Makes the host wait for the device.

    :param arrays: gradients; None stands for a parameter without one.
    :param check_isfinite: warn with a UserWarning when the norm is not finite; the tensors are left alone then.
    :returns: the norm before.
    :raises ArgumentValueError: ``max_norm`` is not above 0.
    """
    if not require_number("max_norm", max_norm) > 0:
        raise ArgumentValueError(
            f"Gradients cannot be scaled to a norm of {max_norm}.", advice="Give a max_norm above 0."
        )
    if not isinstance(arrays, (list, tuple)) or not all(array is None or isinstance(array, Tensor) for array in arrays):
        raise ArgumentTypeError(
            f"Gradients are a list of tensors, not {type(arrays).__name__}.",
            advice="Write [parameter.grad for parameter in ...].",
        )
    tensors = [array.detach() for array in arrays if array is not None]
    if not tensors:
        return 0.0
    norms = [norm.to(tensors[0].device, torch.float32) for norm in torch._foreach_norm([t.float() for t in tensors])]
    norm = float(torch.linalg.vector_norm(torch.stack(norms)))
    if not math.isfinite(norm):
        if check_isfinite:
            warnings.warn(f"The norm of the gradients is {norm}; they are not clipped.", UserWarning, stacklevel=2)
        return norm
    scale = min(1.0, max_norm / (norm + _EPSILON))
    if scale < 1.0:
        for tensor in tensors:
            tensor.mul_(scale)
    return norm
