"""Reading a whole generation and telling what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from ostinato.runs.atomic import check_file
from ostinato.runs.content import LoadedGeneration
from ostinato.runs.generation_files import (
    MODEL_FILE,
    OPTIMIZER_FILE,
    OPTIMIZER_TENSORS,
    STATE_FILE,
    STATE_TENSORS,
    Damage,
    DamagedGenerationError,
    blaming,
    read_json,
    read_manifest_of,
    recorded,
    using,
)
from ostinato.runs.manifest import Manifest
from ostinato.runs.part_names import PartName
from ostinato.runs.sessions import Session
from ostinato.runs.shared_files import OPTIMIZER_PREFIX, SharedFiles, is_checked_by
from ostinato.runs.tensor_file import read_tensors
from ostinato.runs.tree import Tree, unpack_tree


def verify_generation(folder: Path) -> list[Damage]:
    """Everything that is wrong with a generation; an empty list when it is whole. Reads every byte of it."""
    try:
        manifest = read_manifest_of(folder)
    except DamagedGenerationError as error:
        return [error.damage]
    found = []
    for name, record in manifest.files.items():
        try:
            blaming(folder, name, lambda path=folder / name, record=record: check_file(path, record))
        except DamagedGenerationError as error:
            found.append(error.damage)
    if not found:
        # Checksums prove that nothing changed since the save; reading proves that what was saved can be used.
        try:
            read_generation(folder)
        except DamagedGenerationError as error:
            found.append(error.damage)
    return found


def read_generation(folder: Path, rank: int = 0, size: int = 1) -> LoadedGeneration:
    """A generation, read and verified in one pass over its files.

    :param rank: with ``size``: of the ranks that load together. Files that were written in parts are checked in shares:
        only all of the ranks together have checked everything.
    :raises DamagedGenerationError: a file is missing, changed or unreadable.
    :raises OSError: it cannot be read for a reason that says nothing about its content, such as missing permission.
    """
    manifest = read_manifest_of(folder)
    for name, record in manifest.files.items():
        if PartName.parse(name) is not None and is_checked_by(name, rank, size):
            blaming(folder, name, lambda name=name, record=record: check_file(folder / name, record))
    shared = SharedFiles(folder, manifest)
    model = _read_tensors(folder, manifest, MODEL_FILE)
    optimizer = None
    if OPTIMIZER_FILE in manifest.files:
        raw = read_json(folder, manifest, OPTIMIZER_FILE)
        tensors = _read_tensors(folder, manifest, OPTIMIZER_TENSORS)
        optimizer = using(
            folder, OPTIMIZER_FILE, lambda: unpack_tree(raw["optimizer"], tensors, shared.leaves(OPTIMIZER_PREFIX))
        )
    return _assemble(folder, manifest, model, optimizer, shared)


def read_weights(folder: Path, wanted: Callable[[str], bool]) -> LoadedGeneration:
    """What it takes to use a part of a trained model: the generation without its optimizer, and of its weights some.

    Verified are the files that are read, all of their bytes, and no others.

    :param wanted: whether the weight of a name is needed; the others take no memory.
    :raises DamagedGenerationError: as :func:`read_generation`.
    :raises OSError: as :func:`read_generation`.
    """
    manifest = read_manifest_of(folder)
    model = _read_tensors(folder, manifest, MODEL_FILE, wanted)
    return _assemble(folder, manifest, model, None, SharedFiles(folder, manifest))


def _assemble(
    folder: Path, manifest: Manifest, model: Mapping[str, Tensor], optimizer: Tree, shared: SharedFiles
) -> LoadedGeneration:
    state = read_json(folder, manifest, STATE_FILE)
    state_tensors = _read_tensors(folder, manifest, STATE_TENSORS)

    def assemble() -> LoadedGeneration:
        if state["iteration"] != manifest.iteration:
            raise ValueError(f"it belongs to iteration {state['iteration']}, the manifest to {manifest.iteration}")
        return LoadedGeneration(
            manifest=manifest,
            model=model,
            optimizer=optimizer,
            state=unpack_tree(state["state"], state_tensors, shared.leaves()),
            options=dict(state["options"]),
            sessions=tuple(Session.from_json(raw) for raw in state["sessions"]),
            rank_states=shared.own_states(),
        )

    return using(folder, STATE_FILE, assemble)


def _read_tensors(
    folder: Path, manifest: Manifest, name: str, wanted: Callable[[str], bool] | None = None
) -> dict[str, Tensor]:
    """The wanted tensors of a file, none where the manifest has no such file (and the model must have one)."""
    if name not in manifest.files and name != MODEL_FILE:
        return {}
    record = blaming(folder, name, lambda: recorded(manifest, name))
    return blaming(folder, name, lambda: read_tensors(folder / name, record, wanted))
