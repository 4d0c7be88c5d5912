"""Run folders: a run's state on disk, durable, verified, restorable."""

from ostinato.runs.batch_size import DeviceBatch, batch_size_for_devices
from ostinato.runs.best import BestBar, judge
from ostinato.runs.content import KEEP_OPTIMIZER, GenerationContent, LoadedGeneration
from ostinato.runs.folder import Commit, RunFolder
from ostinato.runs.manifest import GenerationName, Manifest
from ostinato.runs.retention import RetentionPolicy, to_delete, why_kept
from ostinato.runs.sessions import Session
from ostinato.runs.tree import Tree, pack_tree, unpack_tree
from ostinato.runs.verification import Damage
from ostinato.runs.writer import GenerationWriter, SaveResult

__all__ = [
    "KEEP_OPTIMIZER",
    "BestBar",
    "Commit",
    "Damage",
    "DeviceBatch",
    "GenerationContent",
    "GenerationName",
    "GenerationWriter",
    "LoadedGeneration",
    "Manifest",
    "RetentionPolicy",
    "RunFolder",
    "SaveResult",
    "Session",
    "Tree",
    "batch_size_for_devices",
    "judge",
    "pack_tree",
    "to_delete",
    "unpack_tree",
    "why_kept",
]
