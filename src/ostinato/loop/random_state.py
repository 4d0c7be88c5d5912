"""The states of the random generators of a process, as a tree that can be saved."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ostinato.errors import ArgumentValueError


def capture_random_state() -> dict[str, Any]:
    """The states of Python's, NumPy's and torch's generators, those of the accelerators included.

    :return: a tree of JSON values, uint32 arrays and uint8 tensors.
    """
    return {
        **_tree(random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()),
        # Asking an accelerator that nobody has used would start it.
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "mps": [torch.mps.get_rng_state()] if torch.backends.mps.is_available() else [],
    }


def derived_random_state(seed: int) -> dict[str, Any]:
    """Generators seeded with a number, as :func:`capture_random_state` would tell of them; none of this process is
    touched.

    Accelerators are left out: their generators stay as the program has seeded them.

    :param seed: a whole number from 0 up; NumPy takes its lowest 32 bits, torch its lowest 63.
    """
    return {
        **_tree(
            random.Random(seed).getstate(),
            np.random.RandomState(seed % 2**32).get_state(legacy=False),
            torch.Generator().manual_seed(seed % 2**63).get_state(),
        ),
        "cuda": [],
        "mps": [],
    }


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Set the generators to a state that :func:`capture_random_state` has returned.

    States of accelerators that this machine does not have are left out.
    """
    python = state["python"]
    if isinstance(python, Mapping):
        python = (python["version"], python["key"], python["gauss"])
    version, internal, gauss = python  # states of earlier versions are a list of these three
    random.setstate((version, tuple(map(int, internal)), gauss))
    saved = state["numpy"]
    np.random.set_state(
        ("MT19937", np.asarray(saved["key"], np.uint32), saved["position"], saved["has_gauss"], saved["gauss"])
    )
    torch.set_rng_state(_as_bytes(state["torch"]))
    if state["cuda"] and torch.cuda.is_available():
        for device, generator in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(_as_bytes(generator), device)
    if state.get("mps") and torch.backends.mps.is_available():  # states of earlier versions do not know it
        torch.mps.set_rng_state(_as_bytes(state["mps"][0]))


def seed_random_state(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators, those of the accelerators included.

    :param seed: a whole number from 0 to 2**32 - 1.
    :raises ArgumentValueError: for another number.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ArgumentValueError(f"A seed must be a whole number from 0 to 2**32 - 1, not {seed!r}.", value=seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _tree(python: tuple[Any, ...], legacy: Any, torch_state: torch.Tensor) -> dict[str, Any]:
    version, internal, gauss = python
    return {
        "python": {"version": version, "key": np.array(internal, np.uint32), "gauss": gauss},
        "numpy": {
            "key": legacy["state"]["key"].copy(),
            "position": int(legacy["state"]["pos"]),
            "has_gauss": int(legacy["has_gauss"]),
            "gauss": float(legacy["gauss"]),
        },
        "torch": torch_state,
    }


def _as_bytes(state: torch.Tensor) -> torch.Tensor:
    # A copy: torch wants a generator's state in memory of its own, not in a part of a larger block.
    return state.detach().to("cpu", torch.uint8).clone()
