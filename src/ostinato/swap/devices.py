"""Where a swap model computes."""

from __future__ import annotations

from pathlib import Path

import torch

from ostinato.errors import UsageError

_KINDS = ("cpu", "cuda", "mps", "xpu")


def choose_device(asked: str | None) -> torch.device:
    """The device asked for, or the best one this machine has.

    :raises UsageError: there is no such device here.
    """
    if asked is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        if torch.backends.mps.is_available():
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
    return device


def computes_half_precision_fast(device: torch.device) -> bool:
    """Whether mixed precision can be faster than float32 here, and not only smaller.

    A processor without bfloat16 instructions computes it piece by piece, many times slower than float32. Where that
    cannot be found out, the answer is no.
    """
    if device.type != "cpu":
        return True
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags
