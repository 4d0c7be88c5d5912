"""Writing one generation: everything under a temporary name, the manifest last, one rename."""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from ostinato.runs.part_names import RANK_STEM, PartName
from ostinato.runs.sessions import Session
from ostinato.runs.shared_files import OPTIMIZER_PREFIX, row_metadata
from ostinato.runs.tensor_file import check_storable, tensor_pieces
from ostinato.runs.tree import Leaves, pack_shared_tree, pack_tree

TEMPORARY_PREFIX = ".tmp-"
"""Folders of this prefix are saves that were never finished; they are removed at the next start."""

STAGING_MARK = ".rank-"
"""Follows the name of the generation in the temporary folder of a rank other than 0."""

_SCAN_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class PackedContent:
    """A :class:`~ostinato.runs.content.GenerationContent` whose plain values are a copy, ready for another thread.

    :param tensors: by (file name, tensor name). They are the caller's own until :meth:`with_tensors` swaps in copies.
    :param documents: JSON values by file name.
    :param row_ranges: for the files of rows, by table: the first row and the rows of the whole table.
    :param rank: which of the ranks packed it.
    :param world_size: how many save together.
    """

    content: GenerationContent
    tensors: Mapping[tuple[str, str], Tensor]
    documents: Mapping[str, dict[str, Any]]
    row_ranges: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    rank: int = 0
    world_size: int = 1

    def with_tensors(self, tensors: Mapping[tuple[str, str], Tensor]) -> PackedContent:
        """The same with other tensors, such as copies."""
        return replace(self, tensors=tensors)

    def tensors_of(self, file: str) -> dict[str, Tensor]:
        """The tensors that go into one file."""
        return {name: tensor for (owner, name), tensor in self.tensors.items() if owner == file}

    @property
    def tensor_files(self) -> list[str]:
        """The files that hold tensors."""
        return list(dict.fromkeys(file for file, _ in self.tensors))

    @property
    def weights(self) -> dict[str, Tensor]:
        """What must be finite numbers: the weights of the model, and all tables that are cut by rows."""
        rows = {name: tensor for (file, name), tensor in self.tensors.items() if file in self.row_ranges}
        return {**self.tensors_of(MODEL_FILE), **rows}

    @property
    def keeps_optimizer(self) -> bool:
        """Whether the optimizer state of the generation before is carried on."""
        return isinstance(self.content.optimizer, str) and self.content.optimizer == KEEP_OPTIMIZER


def pack(
    content: GenerationContent,
    *,
    sessions: Sequence[Session],
    options: Mapping[str, Any],
    time: str,
    rank: int = 0,
    world_size: int = 1,
) -> PackedContent:
    """Cut a content into JSON and tensors. Copies every plain value and no tensor.

    :param rank: of the ranks that save together; all but rank 0 pack only what is theirs.
    :raises ArgumentTypeError: it holds something that cannot be saved; the message names it.
    """
    tensors = {(MODEL_FILE, name): tensor.detach() for name, tensor in content.model.items()}
    state, found = pack_shared_tree(content.state)
    tensors |= {(STATE_TENSORS, name): tensor for name, tensor in found.tensors.items()}
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
    packed = PackedContent(content, tensors, documents, {}, rank, world_size)
    shared = [("", found)]
    if content.optimizer is not None and not packed.keeps_optimizer:
        optimizer, found = pack_shared_tree(content.optimizer)
        tensors |= {(OPTIMIZER_TENSORS, name): tensor for name, tensor in found.tensors.items()}
        documents[OPTIMIZER_FILE] = {"format": 1, "iteration": content.iteration, "optimizer": optimizer}
        shared.append((OPTIMIZER_PREFIX, found))
    if rank != 0:
        tensors, documents = {}, {}
    own_documents, own_tensors, row_ranges = _pack_own(content, shared, rank, world_size)
    tensors |= own_tensors
    for (_, name), tensor in tensors.items():
        check_storable(name, tensor)
    return replace(packed, tensors=tensors, documents={**documents, **own_documents}, row_ranges=row_ranges)


def _pack_own(
    content: GenerationContent, shared: Sequence[tuple[str, Leaves]], rank: int, world_size: int
) -> tuple[dict[str, dict[str, Any]], dict[tuple[str, str], Tensor], dict[str, dict[str, tuple[int, int]]]]:
    """What every rank writes for itself: its rows, and its own state if it has one."""
    tensors: dict[tuple[str, str], Tensor] = {}
    ranges: dict[str, dict[str, tuple[int, int]]] = {}
    own: dict[str, Any] = {}
    for prefix, leaves in shared:
        for name, cut in leaves.rows.items():
            file = str(PartName(prefix + cut.file, rank, world_size))
            tensors[file, name] = cut.tensor.detach()
            ranges.setdefault(file, {})[name] = (cut.first_row, cut.total_rows)
        own |= {prefix + name: leaf.state for name, leaf in leaves.per_rank.items()}
    if content.rank_state is None and not own:
        return {}, tensors, ranges
    state, state_tensors = pack_tree(content.rank_state, "state")
    leaves_json, leaf_tensors = pack_tree(own, "leaves")
    file = PartName(RANK_STEM, rank, world_size)
    tensors |= {(str(file), name): tensor for name, tensor in {**state_tensors, **leaf_tensors}.items()}
    document = {"format": 1, "rank": rank, "world_size": world_size, "state": state, "leaves": leaves_json}
    return {str(replace(file, kind="json")): document}, tensors, ranges


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


def write_files(files: Files, folder: Path, packed: PackedContent) -> dict[str, FileRecord]:
    """Write and flush everything that was packed; what the manifest keeps of each file."""
    records: dict[str, FileRecord] = {}
    for name in packed.tensor_files:
        metadata = row_metadata(packed.row_ranges[name]) if name in packed.row_ranges else None
        tensors = packed.tensors_of(name)
        records[name] = files.write(
            folder / name, lambda tensors=tensors, metadata=metadata: tensor_pieces(tensors, metadata)
        )
    for name, document in packed.documents.items():
        # Serialised before the file is opened: a value that JSON cannot hold never leaves half a file.
        text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
        records[name] = files.write(folder / name, lambda text=text: [text])
    return records


def write_generation(
    files: Files,
    generations: Path,
    packed: PackedContent,
    manifest: Manifest,
    optimizer_from: Manifest | None,
    take_in: Callable[[Path], Mapping[str, FileRecord]] | None = None,
) -> Manifest:
    """Write a generation and commit it by its rename.

    :param generations: the folder that will hold it.
    :param manifest: what is known of it; versions and files are filled in here.
    :param optimizer_from: the generation whose optimizer files are linked, when ``packed`` carries them on.
    :param take_in: puts the files of the other ranks into the folder, before it is committed.
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
        if MODEL_FILE not in packed.tensor_files:  # a generation has this file, and be it without a weight
            empty = files.write(temporary / MODEL_FILE, lambda: tensor_pieces({}))
            records = {MODEL_FILE: empty, **write_files(files, temporary, packed)}
        else:
            records = write_files(files, temporary, packed)
        if optimizer_from is not None:
            for name in optimizer_from.files:
                if name in (OPTIMIZER_TENSORS, OPTIMIZER_FILE) or name.startswith(OPTIMIZER_PREFIX):
                    _carry_on(files, generations / optimizer_from.generation, temporary, name)
                    records[name] = optimizer_from.files[name]
        if take_in is not None:
            records |= take_in(temporary)
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
