"""Source frames: finding them by a face's metadata, pasting swapped faces into them, writing them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.data.file_names import shown_name
from ostinato.data.jpeg import ImageError, encode_jpeg
from ostinato.data.pictures import bare_png, decode_rgb
from ostinato.errors import BadInputError
from ostinato.faces.alignment import AlignedFace
from ostinato.faces.face_files import open_regular, read_whole
from ostinato.faces.metadata import FaceMetadata
from ostinato.faces.png_chunks import SIGNATURE, PngError, parse_header
from ostinato.faces.png_encoding import encode_png
from ostinato.faces.sample import CropSettings
from ostinato.faces.scan import count_files
from ostinato.runs.atomic import Files
from ostinato.swap.paste import chain, crop_to_face, paste
from ostinato.swap.provenance import SourceType, mark_jpeg, png_chunks, read_provenance

JPEG_QUALITY = 95
_JPEG_SUFFIXES = frozenset({".jpg", ".jpeg"})
_READABLE_SUFFIXES = _JPEG_SUFFIXES | {".png", ".bmp", ".webp"}
_FRAME_SUFFIXES = _READABLE_SUFFIXES | {".tif", ".tiff"}
"""Of the files that count as frames. TIFF cannot be read here: a face from one is told so, and not that it is missing.
"""
_ALPHA_TYPES = (4, 6)  # of a PNG's colour type


@dataclass(frozen=True)
class Skipped:
    """A face or frame that was not done."""

    name: str
    reason: str


def may_write(path: Path) -> str | None:
    """Why a picture must not be written to ``path``; None when it may be.

    Only what an earlier conversion wrote is replaced. A link could lead to an original.
    """
    if path.is_symlink():
        return f"{shown_name(path)} is a link, and what it leads to could be an original"
    if path.exists():
        found = read_provenance(path)
        if found is None or not found.is_synthetic:
            return f"{shown_name(path)} is there already and was not written by a conversion"
    return None


@dataclass(frozen=True, eq=False)
class FrameFolder:
    """The frames in a folder, by what faces call them. Make it with :meth:`read`."""

    path: Path
    by_name: Mapping[str, Path]
    by_stem: Mapping[str, list[Path]]

    @classmethod
    def read(cls, folder: Path) -> FrameFolder:
        """List a folder; no file in it is opened.

        :raises BadInputError: it cannot be read.
        """
        by_stem: dict[str, list[Path]] = defaultdict(list)
        try:
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    stem, suffix = os.path.splitext(entry.name)
                    if suffix.lower() in _FRAME_SUFFIXES and not entry.name.startswith("."):
                        by_stem[stem].append(folder / entry.name)
        except OSError as error:
            raise BadInputError(
                f"The folder of frames {shown_name(folder)} cannot be read: {error.strerror or error}.",
                advice="Give the folder that holds the pictures the faces were extracted from.",
                folder=os.fspath(folder),
            ) from error
        for stem, paths in by_stem.items():
            # A TIFF beside the picture that was made of it is no frame of its own.
            by_stem[stem] = [path for path in paths if path.suffix.lower() in _READABLE_SUFFIXES] or paths
        return cls(folder, {path.name: path for paths in by_stem.values() for path in paths}, dict(by_stem))

    def find(self, name: str) -> Path | Skipped:
        """The frame that a face names, or why it cannot be told."""
        # Names come from files and are looked up, never joined to a folder.
        if name in self.by_name:
            return self.by_name[name]
        # Frames of a video are named after it, and are pictures when they lie in a folder.
        found = self.by_stem.get(os.path.splitext(name)[0], [])
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(shown_name(path.name) for path in found[:3])
            return Skipped(name, f"several frames could be meant: {names}")
        return Skipped(name, f"there is no such frame in {shown_name(self.path)}")


@dataclass(eq=False)
class _OpenFrame:
    """The frame that faces are being pasted into."""

    source: Path
    picture: NDArray[np.uint8]  # (H, W, 3), RGB
    alpha: NDArray[np.uint8] | None
    faces: int = 0


class FramePaster:
    """Pastes faces into frames, one frame at a time: the faces of a frame must come one after the other.

    :param folder: of the source frames; only read.
    :param out: where finished frames go.
    :param text: the sentence that says the picture is synthetic.
    :param skipped, notes: what cannot be done, and what the user should know, is appended to these.
    """

    def __init__(self, folder: FrameFolder, out: Path, text: str, skipped: list[Skipped], notes: list[str]) -> None:
        self._folder = folder
        self._out = out
        self._text = text
        self._skipped = skipped
        self._notes = notes
        self._name: str | None = None
        self._path: Path | None = None
        self._open: _OpenFrame | None = None
        self._seen: set[str] = set()
        self._taken: set[str] = set()
        self._written = 0
        self._sixteen_bits = 0
        self._files = Files()

    def add(
        self,
        face_name: str,
        side: int,
        metadata: FaceMetadata | None,
        aligned: AlignedFace | None,
        crop: CropSettings,
        swapped: NDArray[np.float32],
        alpha: NDArray[np.float32],
    ) -> None:
        """Paste one face into its frame.

        :param side: of the face image, pixels.
        :param swapped: (s, s, 3), RGB, 0 to 1, the swapped crop; ``alpha`` (s, s) says how much of it is used.
        :raises OSError: the frame before it cannot be written.
        """
        if metadata is None or aligned is None:
            self._skipped.append(Skipped(face_name, "it carries no metadata, so its place in a frame is not known"))
            return
        if metadata.source.source_filename != self._name:
            self._turn_to(metadata.source.source_filename)
        frame = self._open
        if frame is None:
            return
        height, width = frame.picture.shape[:2]
        size = metadata.source.source_frame_dims
        if size is not None and size != (height, width):
            cut_from, found = f"{size[1]} x {size[0]}", f"{width} x {height}"
            reason = f"it was cut from a frame of {cut_from}, and {shown_name(frame.source.name)} is {found}"
            self._skipped.append(Skipped(face_name, reason))
            return
        to_face = aligned.crop_matrix(side, metadata.centering)
        to_frame = np.asarray(cv2.invertAffineTransform(to_face), np.float64)
        matrix = chain(crop_to_face(side, metadata.centering, aligned, crop, alpha.shape[0]), to_frame)
        if paste(frame.picture, swapped, alpha, matrix):
            frame.faces += 1
        else:
            self._skipped.append(Skipped(face_name, f"it lies outside of {shown_name(frame.source.name)}"))

    def close(self) -> int:
        """Write the last frame; returns how many were written.

        :raises OSError: it cannot be written.
        """
        self._finish()
        self._name = None
        count = len(self._folder.by_name)
        if without := count - len(self._seen):
            self._notes.append(
                f"Not copied, since no face here comes from them: {without} of the {count} frames in "
                f"{shown_name(self._folder.path)}."
            )
        if self._sixteen_bits:
            self._notes.append(f"{count_files(self._sixteen_bits)} of 16 bits written with 8.")
        return self._written

    def _turn_to(self, name: str) -> None:
        self._name = name
        path = self._folder.find(name)
        if isinstance(path, Skipped):
            self._finish()
            self._skipped.append(path)
        elif path != self._path:
            # Otherwise two names mean this one frame: an older version called the frames of a video differently.
            self._finish()
            self._start(path)

    def _start(self, path: Path) -> None:
        self._path = path
        self._seen.add(path.name)
        try:
            picture, alpha, is_deep = read_frame(path)
        except (ImageError, PngError) as error:
            self._skipped.append(Skipped(path.name, str(error)))
        except OSError as error:
            self._skipped.append(Skipped(path.name, f"it cannot be read ({error.strerror or error})"))
        else:
            self._sixteen_bits += is_deep
            self._open = _OpenFrame(path, picture, alpha)

    def _finish(self) -> None:
        frame, self._open, self._path = self._open, None, None
        if frame is None or not frame.faces:
            return
        target = self._out / self._output_name(frame.source)
        if (reason := may_write(target)) is not None:
            self._skipped.append(Skipped(frame.source.name, reason))
            return
        self._files.make_folder(self._out)
        self._files.replace(target, _encode(target, frame, self._text))
        self._written += 1

    def _output_name(self, source: Path) -> str:
        stem, suffix = source.stem, source.suffix
        kept = suffix if suffix.lower() in _JPEG_SUFFIXES or suffix.lower() == ".png" else ".png"
        name = f"{stem}{kept}"
        while name.casefold() in self._taken:
            stem = f"{stem}{suffix or '_'}"
            name = f"{stem}{kept}"
        self._taken.add(name.casefold())
        return name


def read_frame(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8] | None, bool]:
    """A frame as (H, W, 3) RGB uint8, its alpha (H, W) or None, and whether it had 16 bits.

    :raises ImageError, PngError: it is no picture, or damaged.
    :raises OSError: it cannot be read.
    """
    with open_regular(path) as file:
        data = read_whole(file)
    picture = decode_rgb(data)
    if data[:8] != SIGNATURE:
        return picture, None, False
    header = parse_header(data[16:29])
    is_deep = header.bit_depth == 16
    if header.colour_type not in _ALPHA_TYPES:
        return picture, None, is_deep
    whole = cv2.imdecode(np.frombuffer(bare_png(data), np.uint8), cv2.IMREAD_UNCHANGED)
    if whole is None or whole.ndim != 3 or whole.shape[2] != 4:
        return picture, None, is_deep
    alpha = whole[..., 3]
    return picture, np.asarray(alpha // 257 if is_deep else alpha, np.uint8), is_deep


def _encode(target: Path, frame: _OpenFrame, text: str) -> bytes:
    if target.suffix.lower() not in _JPEG_SUFFIXES:
        picture = frame.picture if frame.alpha is None else np.dstack([frame.picture, frame.alpha])
        return encode_png(picture, chunks=png_chunks(SourceType.COMPOSITE, text))
    return mark_jpeg(encode_jpeg(frame.picture, JPEG_QUALITY), SourceType.COMPOSITE, text)
