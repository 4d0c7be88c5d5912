"""Run folders: a run's state on disk, durable, verified, restorable.

The names below are imported when they are first used, so that looking at run folders does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostinato.dist.per_rank import PerRank, RankStates
    from ostinato.runs.best import BestBar, judge
    from ostinato.runs.content import KEEP_OPTIMIZER, GenerationContent, LoadedGeneration
    from ostinato.runs.folder import Commit, RunFolder
    from ostinato.runs.generation_files import Damage
    from ostinato.runs.manifest import GenerationName, Manifest
    from ostinato.runs.ranked_store import RankedStore
    from ostinato.runs.retention import RetentionPolicy, to_delete, why_kept
    from ostinato.runs.row_cut import RowCut, RowCutTable
    from ostinato.runs.sessions import Session
    from ostinato.runs.store import RunStore
    from ostinato.runs.tree import Tree, pack_tree, unpack_tree
    from ostinato.runs.view import RunView
    from ostinato.runs.writer import GenerationWriter, SaveResult

_HOMES = {
    "ostinato.dist.per_rank": ("PerRank", "RankStates"),
    "ostinato.runs.best": ("BestBar", "judge"),
    "ostinato.runs.content": ("KEEP_OPTIMIZER", "GenerationContent", "LoadedGeneration"),
    "ostinato.runs.folder": ("Commit", "RunFolder"),
    "ostinato.runs.generation_files": ("Damage",),
    "ostinato.runs.manifest": ("GenerationName", "Manifest"),
    "ostinato.runs.ranked_store": ("RankedStore",),
    "ostinato.runs.retention": ("RetentionPolicy", "to_delete", "why_kept"),
    "ostinato.runs.row_cut": ("RowCut", "RowCutTable"),
    "ostinato.runs.sessions": ("Session",),
    "ostinato.runs.store": ("RunStore",),
    "ostinato.runs.tree": ("Tree", "pack_tree", "unpack_tree"),
    "ostinato.runs.view": ("RunView",),
    "ostinato.runs.writer": ("GenerationWriter", "SaveResult"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "KEEP_OPTIMIZER",
    "BestBar",
    "Commit",
    "Damage",
    "GenerationContent",
    "GenerationName",
    "GenerationWriter",
    "LoadedGeneration",
    "Manifest",
    "PerRank",
    "RankStates",
    "RankedStore",
    "RetentionPolicy",
    "RowCut",
    "RowCutTable",
    "RunFolder",
    "RunStore",
    "RunView",
    "SaveResult",
    "Session",
    "Tree",
    "judge",
    "pack_tree",
    "to_delete",
    "unpack_tree",
    "why_kept",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
