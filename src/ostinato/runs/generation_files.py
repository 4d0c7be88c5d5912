"""The files of a generation, as far as they can be read without torch: manifest and state file."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ostinato.runs.atomic import CheckedReader, ChecksumMismatchError, FileRecord
from ostinato.runs.manifest import MANIFEST_FILE, Manifest, read_manifest

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


def read_manifest_of(folder: Path) -> Manifest:
    """The manifest of a generation.

    :raises DamagedGenerationError: see :func:`ostinato.runs.manifest.read_manifest`.
    """
    return blaming(folder, MANIFEST_FILE, lambda: read_manifest(folder))


def read_state(folder: Path) -> dict[str, Any]:
    """The state file alone, as plain JSON: sessions, options, counters. For showing and comparing.

    :raises DamagedGenerationError: manifest or state file are not whole.
    """
    return read_json(folder, read_manifest_of(folder), STATE_FILE)


def read_json(folder: Path, manifest: Manifest, name: str) -> dict[str, Any]:
    """A JSON file of a generation, verified while it is read.

    :raises DamagedGenerationError: it is not whole.
    """
    record = blaming(folder, name, lambda: recorded(manifest, name))

    def read() -> dict[str, Any]:
        if record.bytes > MAX_JSON_BYTES:
            raise ChecksumMismatchError(f"has {record.bytes:,} bytes, more than the {MAX_JSON_BYTES:,} allowed")
        with CheckedReader(folder / name, record) as reader:
            text = reader.read(record.bytes)
            reader.finish()
        content = json.loads(text.decode())
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
        return content

    return using(folder, name, lambda: blaming(folder, name, read))


def recorded(manifest: Manifest, name: str) -> FileRecord:
    """What the manifest says of a file.

    :raises ChecksumMismatchError: nothing.
    """
    if name not in manifest.files:
        raise ChecksumMismatchError("is not listed in the manifest")
    return manifest.files[name]


def using(folder: Path, name: str, call: Callable[[], _Result]) -> _Result:
    """Make what goes wrong while a verified file is interpreted a damage of that file."""
    try:
        return call()
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedGenerationError(
            Damage(folder.name, name, f"cannot be used: {type(error).__name__}: {error}")
        ) from error


def blaming(folder: Path, name: str, call: Callable[[], _Result]) -> _Result:
    """Make a mismatch or an unreadable disk a damage of that file."""
    try:
        return call()
    except ChecksumMismatchError as error:
        raise DamagedGenerationError(Damage(folder.name, name, str(error))) from error
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise DamagedGenerationError(Damage(folder.name, name, "cannot be read from the disk (I/O error)")) from error
