"""How much memory a training takes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from ostinato.loop import PRIORITY_WRITER, Extension, TrainerView, report

_STATM = Path("/proc/self/statm")


class MemoryUse(Extension):
    """Reports, in bytes:

    * ``memory/host``: what this process holds of the host's memory now (resident set size);
    * ``memory/host_peak``: the most it has held since it started;
    * with CUDA, of the present device, ``memory/allocated_peak``: the most that tensors have taken since the process
      started, and ``memory/reserved_peak``: the most that PyTorch has kept for them.

    What the system does not tell is left out. Every rank reports its own.
    """

    trigger = (100, "iteration")
    priority = PRIORITY_WRITER
    name = "memory"

    def __call__(self, trainer: TrainerView) -> None:
        """Ask the system and the device; nothing waits for the device."""
        for name, size in memory_use().items():
            report(f"memory/{name}", size)


def memory_use() -> dict[str, int]:
    """Bytes by name, see :class:`MemoryUse`; without what this system does not tell."""
    sizes: dict[str, int] = {}
    resident = _resident_size()
    if resident is not None:
        sizes["host"] = resident
    peak = _peak_size()
    if peak is not None:
        # The two come from different counters of the system, which agree only roughly.
        sizes["host_peak"] = max(peak, resident or 0)
    # Not torch.cuda.is_available: asking for memory would start CUDA in a process that trains on the processor.
    if torch.cuda.is_initialized():
        sizes["allocated_peak"] = torch.cuda.max_memory_allocated()
        sizes["reserved_peak"] = torch.cuda.max_memory_reserved()
    return sizes


def _resident_size() -> int | None:
    try:
        pages = int(_STATM.read_text().split()[1])
    except (OSError, IndexError, ValueError):  # not Linux
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _peak_size() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
