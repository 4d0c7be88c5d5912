"""Where a process computes."""

from __future__ import annotations

from pathlib import Path

import torch

from ostinato.dist.group import Alone, Group
from ostinato.errors import UsageError

_KINDS = ("cpu", "cuda", "mps", "xpu")


def choose_device(asked: str | None, group: Group | None = None) -> torch.device:
    """The device of this rank: the one asked for, or the best one this machine has.

    :param asked: such as ``cpu``, ``cuda``, ``cuda:1``; None for the best.
    :param group: the ranks that compute together; by default this process is alone.
    :raises UsageError: there is no such device here, or several ranks would share it.
    """
    group = Alone() if group is None else group
    if asked is None:
        if torch.cuda.is_available():
            return torch.device("cuda", group.local_rank if group.size > 1 else torch.cuda.current_device())
        if group.size == 1 and torch.backends.mps.is_available():
            return torch.device("mps")
        return torch.device("cpu")
    try:
        device = torch.device(asked)
        if device.type not in _KINDS:
            raise RuntimeError(f"models are not trained on {device.type}")
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        here = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
        here += ["mps"] if torch.backends.mps.is_available() else []
        # torch's own sentence lists every device that anybody ever built.
        reason = "there is no such kind of device" if "device type" in str(error) else str(error).splitlines()[0]
        raise UsageError(
            f"--device {asked} cannot be used: {reason}.", advice=f"Here are: {', '.join(here)}.", device=asked
        ) from error
    if device.type == "cpu" or group.size == 1:
        return device
    if device.index is not None:
        raise UsageError(
            f"--device {asked} names one device, and {group.size} ranks train.",
            advice=f"Write --device {device.type}: each rank takes its own.",
            device=asked,
        )
    return torch.device(device.type, group.local_rank)


def computes_half_precision_fast(device: torch.device) -> bool:
    """Whether half precision can be faster than float32 here, and not only smaller.

    A processor without instructions for it computes it piece by piece, many times slower than float32. Where that
    cannot be found out, the answer is no.
    """
    if device.type != "cpu":
        return True
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags
