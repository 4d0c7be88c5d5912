"""Reading a generation and telling what is wrong with it."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from ostinato.runs.atomic import ChecksumMismatchError, check_file, read_bounded
from ostinato.runs.content import LoadedGeneration
from ostinato.runs.manifest import MANIFEST_FILE, Manifest, read_manifest
from ostinato.runs.sessions import Session
from ostinato.runs.tensor_file import read_tensors
from ostinato.runs.tree import unpack_tree

MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.json"
OPTIMIZER_TENSORS = "optimizer.safetensors"
STATE_FILE = "state.json"
STATE_TENSORS = "state.safetensors"

MAX_JSON_BYTES = 256 * 1024 * 1024
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong.

    :param generation: name of the generation.
    :param file: name of the file in it.
    :param what: continues the file's name to a sentence: ``is missing``.
    """

    generation: str
    file: str
    what: str

    def __str__(self) -> str:
        return f"generations/{self.generation}/{self.file} {self.what}"


class DamagedGenerationError(Exception):
    """A generation is not whole; ``damage`` says where."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(str(damage))
        self.damage = damage


def verify_generation(folder: Path) -> list[Damage]:
    """Everything that is wrong with a generation; an empty list when it is whole. Reads every byte of it."""
    try:
        manifest = read_manifest_of(folder)
    except DamagedGenerationError as error:
        return [error.damage]
    found = []
    for name, record in manifest.files.items():
        try:
            _blame(folder, name, lambda path=folder / name, record=record: check_file(path, record))
        except DamagedGenerationError as error:
            found.append(error.damage)
    if not found:
        # Checksums prove that nothing changed since the save; reading proves that what was saved can be used.
        try:
            read_generation(folder)
        except DamagedGenerationError as error:
            found.append(error.damage)
    return found


def read_manifest_of(folder: Path) -> Manifest:
    """The manifest of a generation.

    :raises DamagedGenerationError: see :func:`ostinato.runs.manifest.read_manifest`.
    """
    return _blame(folder, MANIFEST_FILE, lambda: read_manifest(folder))


def read_generation(folder: Path) -> LoadedGeneration:
    """A generation, read and verified in one pass over its files.

    :raises DamagedGenerationError: a file is missing, changed or unreadable.
    :raises OSError: it cannot be read for a reason that says nothing about its content, such as missing permission.
    """
    manifest = read_manifest_of(folder)
    state = _read_json(folder, manifest, STATE_FILE)
    state_tensors = _read_tensors(folder, manifest, STATE_TENSORS)
    model = _read_tensors(folder, manifest, MODEL_FILE)
    optimizer = None
    if OPTIMIZER_FILE in manifest.files:
        raw = _read_json(folder, manifest, OPTIMIZER_FILE)
        tensors = _read_tensors(folder, manifest, OPTIMIZER_TENSORS)
        optimizer = _use(folder, OPTIMIZER_FILE, lambda: unpack_tree(raw["optimizer"], tensors))

    def assemble() -> LoadedGeneration:
        if state["iteration"] != manifest.iteration:
            raise ValueError(f"it belongs to iteration {state['iteration']}, the manifest to {manifest.iteration}")
        return LoadedGeneration(
            manifest=manifest,
            model=model,
            optimizer=optimizer,
            state=unpack_tree(state["state"], state_tensors),
            options=dict(state["options"]),
            sessions=tuple(Session.from_json(raw) for raw in state["sessions"]),
        )

    return _use(folder, STATE_FILE, assemble)


def _read_tensors(folder: Path, manifest: Manifest, name: str) -> dict[str, Tensor]:
    """The tensors of a file, none where the manifest has no such file (and the model must have one)."""
    if name not in manifest.files and name != MODEL_FILE:
        return {}
    record = _blame(folder, name, lambda: _recorded(manifest, name))
    return _blame(folder, name, lambda: read_tensors(folder / name, record))


def read_state(folder: Path) -> dict[str, Any]:
    """The state file alone, as plain JSON: sessions, options, counters. For showing and comparing.

    :raises DamagedGenerationError: manifest or state file are not whole.
    """
    return _read_json(folder, read_manifest_of(folder), STATE_FILE)


def _read_json(folder: Path, manifest: Manifest, name: str) -> dict[str, Any]:
    record = _blame(folder, name, lambda: _recorded(manifest, name))

    def read() -> dict[str, Any]:
        path = folder / name
        check_file(path, record)
        content = json.loads(read_bounded(path, MAX_JSON_BYTES).decode())
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
        return content

    return _use(folder, name, lambda: _blame(folder, name, read))


def _recorded(manifest: Manifest, name: str) -> Any:
    if name not in manifest.files:
        raise ChecksumMismatchError("is not listed in the manifest")
    return manifest.files[name]


def _use(folder: Path, name: str, call: Callable[[], _Result]) -> _Result:
    try:
        return call()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedGenerationError(
            Damage(folder.name, name, f"cannot be used: {type(error).__name__}: {error}")
        ) from error


def _blame(folder: Path, name: str, call: Callable[[], _Result]) -> _Result:
    try:
        return call()
    except ChecksumMismatchError as error:
        raise DamagedGenerationError(Damage(folder.name, name, str(error))) from error
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise DamagedGenerationError(Damage(folder.name, name, "cannot be read from the disk (I/O error)")) from error
