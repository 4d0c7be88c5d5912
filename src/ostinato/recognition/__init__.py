"""Face recognition with very many identities: a class-sharded margin softmax, its backbones, data and verification.

The names below are imported when they are first used, so that planning a training does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostinato.recognition.backbones import backbone_names, build_backbone
    from ostinato.recognition.margins import Margin, arcface, combined, cosface, normalised_softmax
    from ostinato.recognition.noise_cleaning import clean_labels
    from ostinato.recognition.partial_fc import PartialFC
    from ostinato.recognition.planning import HeadPlan
    from ostinato.recognition.trained_run import load_backbone

_HOMES = {
    "backbones": ("backbone_names", "build_backbone"),
    "margins": ("Margin", "arcface", "combined", "cosface", "normalised_softmax"),
    "noise_cleaning": ("clean_labels",),
    "partial_fc": ("PartialFC",),
    "planning": ("HeadPlan",),
    "trained_run": ("load_backbone",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "HeadPlan",
    "Margin",
    "PartialFC",
    "arcface",
    "backbone_names",
    "build_backbone",
    "clean_labels",
    "combined",
    "cosface",
    "load_backbone",
    "normalised_softmax",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
