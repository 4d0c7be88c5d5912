"""The formulas that the golden files of swap models were made with (see their README)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def formula(count: int, stream: int) -> NDArray[np.float64]:
    """v(i, stream) for i = 0 .. count - 1: pseudo-random numbers in [-1, 1)."""
    with np.errstate(over="ignore"):
        x = (np.arange(1, count + 1, dtype=np.uint64) * 2654435761 + stream * 2246822519).astype(np.uint32)
        x ^= x >> np.uint32(16)
        x *= np.uint32(2246822507)
        x ^= x >> np.uint32(13)
        x *= np.uint32(3266489909)
        x ^= x >> np.uint32(16)
    return x.astype(np.float64) / 2**31 - 1


def formula_weight(
    shape: tuple[int, ...], path: str, stream: int, *, out_gain: float, period: int | None = None
) -> NDArray[np.float32]:
    """One weight of a golden model: a kernel or a bias, in Keras' layout."""
    count = math.prod(shape)
    values = formula(count, stream) if period is None else np.resize(formula(period, stream), count)
    *_, layer, kind = path.split("/")
    values *= 0.1 if kind == "bias" else math.sqrt(6 / math.prod(shape[:-1]))
    if kind == "kernel" and layer.startswith(("face_out", "mask_out")):
        values *= out_gain
    return values.astype(np.float32).reshape(shape)


def formula_weights(case: dict[str, Any], *, period: int | None = None) -> dict[str, NDArray[np.float32]]:
    """All weights of a golden case by Faceswap's path."""
    return {
        weight["path"]: formula_weight(
            tuple(weight["shape"]), weight["path"], weight["k"], out_gain=case["out_gain"], period=period
        )
        for weight in case["weights"]
    }


def formula_input(size: int, side: str) -> NDArray[np.float32]:
    """The golden input of side ``a`` or ``b``: (1, size, size, 3)."""
    phase, stream = {"a": (0, 900001), "b": (1, 900002)}[side]
    h, w, c = np.meshgrid(np.arange(size), np.arange(size), np.arange(3), indexing="ij")
    waves = 0.5 + 0.3 * np.sin(0.21 * h * (1 + 0.5 * c) + 0.13 * w + phase)
    noise = 0.2 * formula(size * size * 3, stream).reshape(size, size, 3)
    return (waves + noise).astype(np.float32)[None]


def load_case(golden: Path, name: str) -> dict[str, Any]:
    """The description of one golden case."""
    import json

    return json.loads((golden / "swap-models" / f"{name}.json").read_text())
