"""A copy of a state in host memory, in one block that is used again at every save."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

_Key = TypeVar("_Key", bound=Hashable)
_ALIGNMENT = 64


class HostCopy:
    """One block of host memory that holds a copy of a set of tensors.

    The block grows to the largest set seen and is kept: from the second save on, a copy costs no allocation and no
    page faults, only the moving of the bytes. The copies are valid until the next call.
    """

    def __init__(self) -> None:
        self._block = torch.empty(0, dtype=torch.uint8)

    @property
    def allocated_bytes(self) -> int:
        """Size of the block."""
        return self._block.numel()

    def prepare(self, size: int, *, pinned: bool = False) -> None:
        """Get memory for copies of ``size`` bytes and touch it, so that the first copy is as fast as all others.

        :param pinned: whether tensors will come from a CUDA device.
        :raises MemoryError: there is no room for it.
        """
        self._reserve(size, pinned=pinned)
        self._block.zero_()

    def copy(self, tensors: Mapping[_Key, Tensor]) -> dict[_Key, Tensor]:
        """Copy tensors, from any device.

        The memory order of channels-last tensors is kept, since turning it around would cost several times the copy;
        whoever writes them to disk turns them around one by one.

        :return: CPU tensors of the same shapes, types and values.
        :raises MemoryError: there is no room for the block; the old block is given up as well.
        """
        sizes = [-(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT for tensor in tensors.values()]
        on_device = {tensor.device for tensor in tensors.values() if tensor.device.type != "cpu"}
        self._reserve(sum(sizes), pinned=any(device.type == "cuda" for device in on_device))
        starts = itertools.accumulate(sizes, initial=0)
        copies = {}
        with torch.no_grad():
            for (key, tensor), start in zip(tensors.items(), starts, strict=False):
                size = tensor.numel() * tensor.element_size()
                flat = self._block[start : start + size].view(tensor.dtype)
                target = (
                    flat.as_strided(tensor.size(), tensor.stride()) if _is_dense(tensor) else flat.view(tensor.size())
                )
                target.copy_(tensor.detach(), non_blocking=True)
                copies[key] = target
        for device in on_device:  # the one wait for the accelerator: before training may change the tensors again
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()
            elif device.type == "mps":
                torch.mps.synchronize()
        return copies

    def _reserve(self, size: int, *, pinned: bool) -> None:
        if size <= self._block.numel():
            return
        self._block = torch.empty(0, dtype=torch.uint8)  # first give up the old one: never hold both
        if pinned:
            try:
                self._block = torch.empty(size, dtype=torch.uint8, pin_memory=True)
                return
            except RuntimeError:
                pass  # pinned memory is scarce and only makes it faster
        # By numpy, because it tells "no memory" by a MemoryError and not by a sentence in a RuntimeError.
        self._block = torch.from_numpy(np.empty(size, dtype=np.uint8))


def _is_dense(tensor: Tensor) -> bool:
    """Whether its elements fill one stretch of memory without gaps, in whatever order."""
    return (
        tensor.is_contiguous()
        or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))
        or (tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d))
    )
