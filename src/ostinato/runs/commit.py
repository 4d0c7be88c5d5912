"""Writing one generation: everything under a temporary name, the manifest last, one rename."""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ostinato.runs.atomic import ChecksumMismatchError, FileRecord, Files
from ostinato.runs.content import KEEP_OPTIMIZER, GenerationContent
from ostinato.runs.generation_files import (
    MODEL_FILE,
    OPTIMIZER_FILE,
    OPTIMIZER_TENSORS,
    STATE_FILE,
    STATE_TENSORS,
    Damage,
    DamagedGenerationError,
)
from ostinato.runs.manifest import MANIFEST_FILE, Manifest
from ostinato.runs.sessions import Session
from ostinato.runs.tensor_file import check_storable, tensor_pieces
from ostinato.runs.tree import pack_tree

TEMPORARY_PREFIX = ".tmp-"
"""Folders of this prefix are saves that were never finished; they are removed at the next start."""

_SCAN_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class PackedContent:
    """A :class:`~ostinato.runs.content.GenerationContent` whose plain values are a copy, ready for another thread.

    :param tensors: by (file name, tensor name). They are the caller's own until :meth:`with_tensors` swaps in copies.
    :param documents: JSON values by file name.
    """

    content: GenerationContent
    tensors: Mapping[tuple[str, str], Tensor]
    documents: Mapping[str, dict[str, Any]]

    def with_tensors(self, tensors: Mapping[tuple[str, str], Tensor]) -> PackedContent:
        """The same with other tensors, such as copies."""
        return replace(self, tensors=tensors)

    def tensors_of(self, file: str) -> dict[str, Tensor]:
        """The tensors that go into one file."""
        return {name: tensor for (owner, name), tensor in self.tensors.items() if owner == file}

    @property
    def keeps_optimizer(self) -> bool:
        """Whether the optimizer state of the generation before is carried on."""
        return isinstance(self.content.optimizer, str) and self.content.optimizer == KEEP_OPTIMIZER


def pack(
    content: GenerationContent, *, sessions: Sequence[Session], options: Mapping[str, Any], time: str
) -> PackedContent:
    """Cut a content into JSON and tensors. Copies every plain value and no tensor.

    :raises ArgumentTypeError: it holds something that cannot be saved; the message names it.
    """
    tensors = {(MODEL_FILE, name): tensor.detach() for name, tensor in content.model.items()}
    state, state_tensors = pack_tree(content.state)
    tensors |= {(STATE_TENSORS, name): tensor for name, tensor in state_tensors.items()}
    documents = {
        STATE_FILE: {
            "format": 1,
            "iteration": content.iteration,
            "epoch": content.epoch,
            "time": time,
            "lowest_average": content.bar.lowest,
            "loss_definition": content.bar.definition,
            "sessions": [session.to_json() for session in sessions],
            "options": json.loads(json.dumps(options, allow_nan=False)),
            "state": state,
        }
    }
    packed = PackedContent(content, tensors, documents)
    if content.optimizer is not None and not packed.keeps_optimizer:
        optimizer, optimizer_tensors = pack_tree(content.optimizer)
        tensors |= {(OPTIMIZER_TENSORS, name): tensor for name, tensor in optimizer_tensors.items()}
        documents[OPTIMIZER_FILE] = {"format": 1, "iteration": content.iteration, "optimizer": optimizer}
    for (_, name), tensor in tensors.items():
        check_storable(name, tensor)
    return packed


def non_finite_names(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of the tensors that hold a value that is not finite. Needs no memory to speak of."""
    found = []
    for name, tensor in tensors.items():
        if tensor.dtype.is_floating_point:
            flat = tensor.detach().permute(_memory_order(tensor)).reshape(-1)
            if not all(_is_finite(part) for part in flat.split(_SCAN_ELEMENTS)):
                found.append(name)
    return found


def _is_finite(part: Tensor) -> bool:
    # Types of one byte cannot be asked; wide ones must not become narrower, which would make large numbers infinite.
    return bool((part.float() if part.element_size() < 4 else part).isfinite().all())


def _memory_order(tensor: Tensor) -> list[int]:
    # In this order reshape(-1) is a view for dense tensors of any memory format, and no copy.
    return sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))


def write_generation(
    files: Files, generations: Path, packed: PackedContent, manifest: Manifest, optimizer_from: Manifest | None
) -> Manifest:
    """Write a generation and commit it by its rename.

    :param generations: the folder that will hold it.
    :param manifest: what is known of it; versions and files are filled in here.
    :param optimizer_from: the generation whose optimizer files are linked, when ``packed`` carries them on.
    :return: the complete manifest.
    :raises DamagedGenerationError: an optimizer file to be linked is missing; nothing was committed.
    :raises OSError: nothing was committed, or the last flush failed; then the generation is there, and whether a power
        cut would leave it there is not known. The temporary folder is removed as far as that is possible.
    """
    temporary = generations / f"{TEMPORARY_PREFIX}{manifest.generation}"
    with contextlib.suppress(FileNotFoundError):
        files.remove_tree(temporary)  # left by a save of this iteration that failed
    try:
        files.make_folder(temporary)
        records: dict[str, FileRecord] = {}
        for name in (MODEL_FILE, OPTIMIZER_TENSORS, STATE_TENSORS):
            tensors = packed.tensors_of(name)
            if tensors or name == MODEL_FILE:
                records[name] = files.write(temporary / name, lambda tensors=tensors: tensor_pieces(tensors))
        for name, document in packed.documents.items():
            # Serialised before the file is opened: a value that JSON cannot hold never leaves half a file.
            text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
            records[name] = files.write(temporary / name, lambda text=text: [text])
        if optimizer_from is not None:
            for name in (OPTIMIZER_TENSORS, OPTIMIZER_FILE):
                if name in optimizer_from.files:
                    _carry_on(files, generations / optimizer_from.generation, temporary, name)
                    records[name] = optimizer_from.files[name]
        manifest = replace(manifest, files=records, versions=program_versions())
        content = manifest.to_bytes()
        files.write(temporary / MANIFEST_FILE, lambda: [content])
        files.flush_folder(temporary)
        files.rename(temporary, generations / manifest.generation)
    except BaseException:
        with contextlib.suppress(OSError):
            files.remove_tree(temporary)
        raise
    files.flush_folder(generations)
    return manifest


def _carry_on(files: Files, source: Path, target: Path, name: str) -> None:
    try:
        files.link_or_copy(source / name, target / name)
    except ChecksumMismatchError as error:
        raise DamagedGenerationError(Damage(source.name, name, str(error))) from error


def program_versions() -> dict[str, str]:
    """Versions that may matter to whoever reads a generation later."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for package in ("ostinato", "numpy", "opencv-python-headless"):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
