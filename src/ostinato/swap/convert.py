"""Swaps the faces of a folder with a trained model, and pastes them into the frames they came from.

For each face image one of the same size, with the same metadata, is written: the model's face lies where its crop lay,
so it can be pasted, or swapped again, later. Given the frames, each is written with all of its faces swapped. Every
picture says in its file that it is synthetic (:mod:`ostinato.swap.provenance`).

Faces stream through in batches: a batch of faces and one frame are in memory at a time. A face or frame that cannot be
done is named in the result and the others go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.data.file_names import shown_name
from ostinato.data.jpeg import ImageError
from ostinato.data.pictures import decode_rgb
from ostinato.errors import ArgumentValueError, BadInputError, FaceFileError, OstinatoError
from ostinato.faces.alignment import AlignedFace
from ostinato.faces.cropping import crop_aligned, resize_square
from ostinato.faces.face_files import face_file_error, read_face_bytes, read_face_header, write_face
from ostinato.faces.folder_checks import can_have_mask, missing_mask_reason
from ostinato.faces.metadata import FaceMetadata, MetadataError
from ostinato.faces.pictures import read_picture
from ostinato.faces.sample import CropSettings, draw_mask
from ostinato.faces.scan import FaceFile, FolderScan, scan_folder
from ostinato.swap.frames import FrameFolder, FramePaster, Skipped, may_write
from ostinato.swap.paste import crop_to_face, enlarge, feather, paste
from ostinato.swap.provenance import SourceType, describe_swap, png_chunks

FRAMES_FOLDER = "frames"
"""The folder within the output folder that frames are written to."""

_CHANGED = "it has changed since the folder was read"
_EMPTY_MASK = "its mask is empty, so nothing of it would be swapped"


class FaceSwapper(Protocol):
    """One direction of a model; :class:`ostinato.swap.models.InferenceModel` is one."""

    input_size: int
    output_sizes: tuple[int, ...]

    def __call__(self, faces: Tensor) -> list[Tensor]: ...


@dataclass
class ConvertResult:
    """What was written, and what was not."""

    faces_written: int = 0
    frames_written: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    """Faces and frames that were not done, with the reason."""
    notes: list[str] = field(default_factory=list)
    """What else the user should know, one sentence each."""

    @property
    def is_complete(self) -> bool:
        """Whether everything that was asked for was done."""
        return not self.skipped


@dataclass(frozen=True, eq=False)
class _Face:
    """A face on its way through."""

    file: FaceFile
    image: NDArray[np.uint8]  # (N, N, 3), RGB, as extracted
    metadata: FaceMetadata | None
    aligned: AlignedFace | None
    feed: NDArray[np.uint8]  # (input, input, 3)
    mask: NDArray[np.uint8] | None  # (output, output); None: all of the crop, or the model's own


@torch.no_grad()
def convert_faces(
    model: FaceSwapper,
    faces: Path | FolderScan,
    out: Path,
    *,
    crop: CropSettings,
    mask: str | None,
    direction: str,
    batch_size: int = 16,
    frames: Path | None = None,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> ConvertResult:
    """Swap all faces of a folder.

    :param model: from RGB faces (batch, 3, input, input), 0 to 1, to outputs, smallest first, maybe a mask last; on
        ``device`` and in evaluation mode.
    :param faces: a folder of extracted faces, or its scan. Plain aligned pictures are swapped whole.
    :param out: faces go there, frames into ``out/frames``. What an earlier conversion wrote is replaced, all else
        kept.
    :param crop: the training's centering, coverage, vertical offset and mask settings; size and masks are not used.
    :param mask: which mask bounds the swapped part; None for the whole crop. A model that gives a mask uses its own.
    :param direction: for people, for example ``a_to_b``; written into every picture.
    :param batch_size: faces that go through the model at once.
    :param frames: the folder of source frames; None swaps faces alone.
    :param progress: called as ``progress(done, total)`` after each batch of faces.
    :raises BadInputError: there is no face, or ``out`` is one of the folders that are read.
    :raises OstinatoError: an output cannot be written. What was written before is whole.
    """
    if batch_size < 1:
        raise ArgumentValueError(f"batch_size is {batch_size}; at least one face goes through the model at a time.")
    scan = faces if isinstance(faces, FolderScan) else scan_folder(faces)
    _refuse_overwriting(out, scan.folder, frames)
    if not scan.files:
        raise BadInputError(
            f"There is no usable face in {shown_name(scan.folder)}.",
            advice="Give a folder of extracted faces." if not scan.bad else f"For example {scan.bad[0].reason}.",
            folder=os.fspath(scan.folder),
        )
    result = ConvertResult(skipped=[Skipped(bad.name, bad.reason) for bad in scan.bad])
    text = describe_swap(direction)
    size = max(model.output_sizes)
    wanted = replace(crop, size=model.input_size, masks=())
    names = _output_names(scan.files)
    order: Sequence[FaceFile] = scan.files
    paster: FramePaster | None = None
    if frames is not None:
        paster = FramePaster(FrameFolder.read(frames), out / FRAMES_FOLDER, text, result.skipped, result.notes)
        order = _by_frame(scan.files)
    done = 0
    try:
        out.mkdir(parents=True, exist_ok=True)
        for batch in _batches(_readable(order, wanted, size, mask, result), batch_size):
            for face, swapped, alpha in _swap(model, batch, size, device, result):
                if not _write_swapped(out / names[face.file.name], face, swapped, alpha, crop, text, result):
                    continue
                if paster is not None:
                    side = face.image.shape[0]
                    paster.add(face.file.name, side, face.metadata, face.aligned, crop, swapped, alpha)
            done += len(batch)
            if progress is not None:
                progress(done, len(scan.files))
        if paster is not None:
            result.frames_written = paster.close()
    except OSError as error:
        raise OstinatoError(
            f"The swapped pictures cannot be written to {shown_name(out)}: {error.strerror or error}.",
            advice="What was written before is whole. Make room, or give another folder, and convert again.",
            folder=os.fspath(out),
        ) from error
    if progress is not None:
        progress(len(scan.files), len(scan.files))
    return result


def _refuse_overwriting(out: Path, faces: Path, frames: Path | None) -> None:
    written = [out, *([out / FRAMES_FOLDER] if frames is not None else [])]
    for source in (faces, *([frames] if frames is not None else [])):
        for target in written:
            if os.path.realpath(source) == os.path.realpath(target):
                raise BadInputError(
                    f"Swapped pictures would be written to {shown_name(target)}, which holds the originals.",
                    advice="Give another folder for the output; originals are never overwritten.",
                    folder=os.fspath(target),
                )


def _output_names(files: Iterable[FaceFile]) -> dict[str, str]:
    """The name each face is written under: its own, ending in ``.png``, and different for each."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for file in sorted(files, key=lambda file: (not file.name.endswith(".png"), file.name)):
        stem, suffix = os.path.splitext(file.name)
        name = f"{stem}.png"
        while name.casefold() in taken:
            stem = f"{stem}{suffix or '_'}"
            name = f"{stem}.png"
        taken.add(name.casefold())
        names[file.name] = name
    return names


def _by_frame(files: Iterable[FaceFile]) -> list[FaceFile]:
    """The faces of a frame next to each other. A header that cannot be read now is met again, and named, later."""
    keyed = []
    for file in files:
        key = ("", "", 0)
        if not file.is_plain:
            try:
                metadata = read_face_header(file.path).metadata
                if metadata is not None:
                    name = metadata.source.source_filename
                    key = (os.path.splitext(name)[0], name, metadata.source.face_index)
            except FaceFileError:
                pass
        keyed.append((key, file.name, file))
    keyed.sort(key=lambda item: item[:2])
    return [file for _, _, file in keyed]


def _readable(
    files: Iterable[FaceFile], wanted: CropSettings, size: int, mask: str | None, result: ConvertResult
) -> Iterator[_Face]:
    for file in files:
        try:
            yield _read(file, wanted, size, mask)
        except FaceFileError as error:
            result.skipped.append(Skipped(file.name, error.fields["reason"]))


def _read(file: FaceFile, wanted: CropSettings, size: int, mask: str | None) -> _Face:
    if file.is_plain:
        image = read_picture(file.path)
        if image.shape[0] != image.shape[1]:
            raise face_file_error(file.path, _CHANGED)
        return _Face(file, image, None, None, resize_square(image, wanted.size), None)
    data, header = read_face_bytes(file.path)
    metadata = header.metadata
    try:
        image = decode_rgb(data)
        if metadata is None or image.shape[0] != image.shape[1]:
            raise ImageError(_CHANGED)
        if mask is not None and not can_have_mask(file.kind, mask):
            raise ImageError(f"it cannot have the {mask!r} mask: {missing_mask_reason(file.kind, mask)}")
        aligned = AlignedFace.of(metadata.landmarks)
        place = (wanted.centering, wanted.coverage, wanted.vertical_offset)
        feed = crop_aligned(image, metadata, wanted.size, *place, aligned=aligned)
        drawn = None if mask is None else draw_mask(mask, metadata, aligned, replace(wanted, size=size))
    except (ImageError, MetadataError, ArgumentValueError) as error:
        raise face_file_error(file.path, str(error)) from None
    return _Face(file, image, metadata, aligned, feed, drawn)


def _batches(faces: Iterable[_Face], size: int) -> Iterator[list[_Face]]:
    batch: list[_Face] = []
    for face in faces:
        batch.append(face)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _swap(
    model: FaceSwapper, batch: Sequence[_Face], size: int, device: torch.device | str, result: ConvertResult
) -> Iterator[tuple[_Face, NDArray[np.float32], NDArray[np.float32]]]:
    """Each face of the batch with its swapped crop (size, size, 3), 0 to 1, and how much of it is used (size, size)."""
    feed = torch.from_numpy(np.stack([face.feed for face in batch])).to(device)
    outputs = model(feed.permute(0, 3, 1, 2).float() / 255)
    drawn = next(output for output in reversed(outputs) if output.shape[1] == 3 and output.shape[-1] == size)
    learned = [output for output in outputs if output.shape[1] == 1 and output.shape[-1] == size]
    pictures = drawn.float().permute(0, 2, 3, 1).cpu().numpy()
    masks = learned[-1].float().clamp(0, 1).mul(255).round().byte()[:, 0].cpu().numpy() if learned else None
    for index, face in enumerate(batch):
        if not np.isfinite(pictures[index]).all():
            result.skipped.append(Skipped(face.file.name, "the model drew values that are not finite"))
            continue
        if face.aligned is None and masks is None:
            alpha = np.ones((size, size), np.float32)  # a plain picture is swapped whole
        else:
            alpha = feather(face.mask if masks is None else masks[index], size)
        if not alpha.any():
            result.skipped.append(Skipped(face.file.name, _EMPTY_MASK))
            continue
        yield face, np.clip(pictures[index], 0, 1), alpha


def _write_swapped(
    path: Path,
    face: _Face,
    swapped: NDArray[np.float32],
    alpha: NDArray[np.float32],
    crop: CropSettings,
    text: str,
    result: ConvertResult,
) -> bool:
    if (reason := may_write(path)) is not None:
        result.skipped.append(Skipped(face.file.name, reason))
        return False
    side, size = face.image.shape[0], alpha.shape[0]
    source_type = SourceType.COMPOSITE
    if alpha.min() == 1:  # nothing of the original is left
        picture = resize_square(np.rint(swapped * 255).astype(np.uint8), side)
        source_type = SourceType.TRAINED
    else:
        picture = face.image.copy()
        matrix = enlarge(side / size)
        if face.metadata is not None and face.aligned is not None:
            matrix = crop_to_face(side, face.metadata.centering, face.aligned, crop, size)
        paste(picture, swapped, alpha, matrix)
    try:
        write_face(path, picture, face.metadata, chunks=png_chunks(source_type, text))
    except FaceFileError as error:
        result.skipped.append(Skipped(face.file.name, error.fields["reason"]))
        return False
    result.faces_written += 1
    return True
