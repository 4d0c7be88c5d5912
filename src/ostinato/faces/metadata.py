"""What an extracted face knows about itself: its frame, landmarks, stored masks and embeddings.

The text form is the ``repr`` of a nested dictionary, kept in the ``faceswap`` chunk of the face's PNG. Every version of
it (1.0 to 2.4) is read; what an old version lacks gets the value it had by definition, and keys we do not know are kept
and written back.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ostinato.faces.literal import LiteralError, read_literal

Centering = Literal["legacy", "face", "head"]
CENTERINGS: tuple[Centering, ...] = ("legacy", "face", "head")

LANDMARK_COUNTS = (68, 98, 4)
"""The landmark sets that have a meaning here."""

CURRENT_VERSION = 2.4
FIRST_HEAD_VERSION = 2.0
"""Faces of older versions are cut with legacy centering."""

MAX_STORED_SIZE = 2048
"""Pixels a side of a stored mask; bounds what a few bytes of zlib data may unfold to."""

MAX_MASKS = 64
MAX_IDENTITY_LENGTH = 65_536


class MetadataError(ValueError):
    """The text of a face is not usable; the message is a reason without a file name."""


@dataclass(frozen=True, eq=False)
class StoredMask:
    """One mask stored with a face, still packed.

    ``compressed`` is a zlib stream of ``stored_size ** 2`` bytes, row by row, 0 outside and 255 inside the face.
    ``affine_matrix`` is (3, 3) float32 and takes frame pixels to stored-mask pixels. ``stored_centering`` says which
    crop of the face it covers. ``interpolator`` is OpenCV's number for the way back to the frame, carried along unused.
    """

    compressed: bytes = field(repr=False)
    affine_matrix: NDArray[np.float32]
    interpolator: int
    stored_size: int
    stored_centering: Centering
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def pack(
        cls,
        pixels: NDArray[np.uint8],
        affine_matrix: NDArray[np.floating[Any]],
        stored_centering: Centering,
        *,
        interpolator: int = 1,
    ) -> StoredMask:
        """A stored mask from (size, size) uint8 pixels and a (2, 3) or (3, 3) matrix."""
        size = pixels.shape[0]
        if pixels.shape != (size, size) or pixels.dtype != np.uint8 or not 1 <= size <= MAX_STORED_SIZE:
            raise MetadataError(f"a mask to store is square and uint8; this one is {pixels.shape} {pixels.dtype}")
        return cls(zlib.compress(pixels.tobytes()), _three_rows(affine_matrix), interpolator, size, stored_centering)

    def pixels(self) -> NDArray[np.uint8]:
        """The unpacked mask, (stored_size, stored_size) uint8.

        :raises MetadataError: the stream is damaged or does not hold exactly that many bytes; never more is unpacked.
        """
        expected = self.stored_size * self.stored_size
        unpacker = zlib.decompressobj()
        try:
            data = unpacker.decompress(self.compressed, expected + 1)
        except zlib.error as error:
            raise MetadataError(f"a stored mask cannot be unpacked ({error})") from None
        if len(data) != expected or not unpacker.eof:
            amount = f"more than {expected}" if len(data) > expected else f"{len(data)}"
            raise MetadataError(
                f"a stored mask unpacks to {amount} bytes; its size of {self.stored_size} means {expected}"
            )
        return np.frombuffer(data, np.uint8).reshape(self.stored_size, self.stored_size)


@dataclass(frozen=True)
class FaceSource:
    """Where a face came from."""

    source_filename: str
    """The frame's file name, without folder."""
    original_filename: str
    """The name the face was first saved under, ``<frame name>_<face index>.png``."""
    face_index: int = 0
    source_is_video: bool = False
    source_frame_dims: tuple[int, int] | None = None
    """(height, width) of the frame in pixels; None in old files."""
    alignments_version: float = CURRENT_VERSION
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FaceMetadata:
    """Everything the ``faceswap`` chunk of a face says.

    ``x``, ``y``, ``w``, ``h`` is the detection box and ``landmarks`` the (68, 2), (98, 2) or (4, 2) float32 points,
    both in pixels of the source frame. ``extra`` and ``extra_top`` keep unknown keys of two levels for writing back.
    """

    x: int
    y: int
    w: int
    h: int
    landmarks: NDArray[np.float32] = field(repr=False)
    source: FaceSource
    masks: Mapping[str, StoredMask] = field(default_factory=dict)
    identity: Mapping[str, NDArray[np.float32]] = field(default_factory=dict, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict)
    extra_top: Mapping[str, Any] = field(default_factory=dict)

    @property
    def centering(self) -> Centering:
        """How the face image itself is cut: ``legacy`` before version 2.0, ``head`` since."""
        return "legacy" if self.source.alignments_version < FIRST_HEAD_VERSION else "head"


# --- reading ---------------------------------------------------------------------------------------------------------


def parse_metadata(text: str) -> FaceMetadata:
    """The metadata a ``faceswap`` text spells.

    What old versions lack is filled in: masks without centering are ``face`` centred, a missing or None frame size is
    unknown, missing masks and embeddings are empty.

    :raises MetadataError: the text is no literal, lacks a key that every version has, or holds a wrong type or value.
    """
    try:
        top = read_literal(text)
    except LiteralError as error:
        raise MetadataError(f"its metadata text cannot be read: {error}") from None
    top = _Fields(top, "the metadata")
    alignments = _Fields(top.take("alignments", _dict), "alignments")
    source = _Fields(top.take("source", _dict), "source")
    landmarks = alignments.take("landmarks_xy", _table)
    if landmarks.shape not in [(count, 2) for count in LANDMARK_COUNTS]:
        shape = " x ".join(str(side) for side in landmarks.shape)
        raise MetadataError(f"its landmarks are {shape}; 68 x 2, 98 x 2 and 4 x 2 are understood")
    if (landmarks == landmarks[0]).all():
        raise MetadataError("its landmarks all lie on one spot")
    masks = alignments.take("mask", _dict, {})
    identity = alignments.take("identity", _dict, {})
    if len(masks) > MAX_MASKS or len(identity) > MAX_MASKS:
        raise MetadataError(
            f"it holds {max(len(masks), len(identity))} masks or embeddings; at most {MAX_MASKS} are read"
        )
    return FaceMetadata(
        x=alignments.take("x", _int),
        y=alignments.take("y", _int),
        w=alignments.take("w", _int),
        h=alignments.take("h", _int),
        landmarks=landmarks,
        masks={_name(name): _parse_mask(name, mask) for name, mask in masks.items()},
        identity={_name(name): _vector(values) for name, values in identity.items()},
        source=FaceSource(
            source_filename=source.take("source_filename", _str),
            original_filename=source.take("original_filename", _str),
            face_index=source.take("face_index", _int),
            source_is_video=source.take("source_is_video", _bool, False),
            source_frame_dims=source.take("source_frame_dims", _frame_size, None),
            alignments_version=source.take("alignments_version", _version),
            extra=source.rest(),
        ),
        extra=alignments.rest(),
        extra_top=top.rest(),
    )


def _parse_mask(name: Any, value: Any) -> StoredMask:
    fields = _Fields(value, f"mask {name!r}")
    return StoredMask(
        compressed=fields.take("mask", _packed),
        affine_matrix=fields.take("affine_matrix", _matrix),
        interpolator=fields.take("interpolator", _int, 1),
        stored_size=fields.take("stored_size", _stored_size),
        stored_centering=fields.take("stored_centering", _centering, "face"),
        extra=fields.rest(),
    )


_REQUIRED: Any = object()


class _Fields:
    """A dictionary of the text that is emptied key by key; what remains is unknown to us."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise MetadataError(f"{where} should be a dictionary and is {_short(value)}")
        self._values = dict(value)
        self._where = where

    def take(self, key: str, convert: Callable[[Any], Any], default: Any = _REQUIRED) -> Any:
        """The converted value of a key; the default where it has one and the key is missing."""
        if key not in self._values:
            if default is _REQUIRED:
                raise MetadataError(f"{self._where} lacks {key!r}")
            return default
        value = self._values.pop(key)
        try:
            return convert(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise MetadataError(f"{key!r} of {self._where} {error}") from None

    def rest(self) -> dict[str, Any]:
        """The keys nobody took."""
        return self._values


def _short(value: Any) -> str:
    shown = repr(value) if not isinstance(value, (dict, list, tuple, bytes)) else ""
    return shown if shown and len(shown) <= 40 else f"a {type(value).__name__}"


def _typed(kind: type, word: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"should be {word} and is {_short(value)}")
        return value

    return convert


_dict = _typed(dict, "a dictionary")
_str = _typed(str, "text")
_bool = _typed(bool, "True or False")
_packed = _typed(bytes, "a byte string")


def _int(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or abs(value) >= 2**31:
        raise ValueError(f"should be a whole number of at most 31 bits and is {_short(value)}")
    return value


def _name(value: Any) -> str:
    if type(value) is not str:
        raise MetadataError(f"the name of a mask or embedding should be text and is {_short(value)}")
    return value


def _version(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < 100:
        raise ValueError(f"should be a version such as 2.4 and is {_short(value)}")
    return float(value)


def _floats(value: Any) -> NDArray[np.float32]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"should be a list of numbers and is {_short(value)}")
    # Without a type NumPy takes what it finds: text, ragged lists and huge integers then show as another kind.
    with np.errstate(over="ignore"):
        try:
            found = np.array(value)
        except ValueError:
            raise ValueError("should be a table of numbers, and its rows differ in length") from None
        if found.size and found.dtype.kind not in "iuf":
            raise ValueError("should hold numbers and nothing else")
        array = found.astype(np.float32)
    if not np.isfinite(array).all():
        raise ValueError("holds a number that is not finite")
    return array


def _table(value: Any) -> NDArray[np.float32]:
    return _floats(value)


def _vector(value: Any) -> NDArray[np.float32]:
    try:
        array = _floats(value)
    except ValueError as error:
        raise MetadataError(f"an embedding {error}") from None
    if array.ndim != 1 or array.size > MAX_IDENTITY_LENGTH:
        raise MetadataError(f"an embedding should be one list of numbers and has the shape {array.shape}")
    return array


def _matrix(value: Any) -> NDArray[np.float32]:
    array = _floats(value)
    if array.shape not in ((2, 3), (3, 3)):
        raise ValueError(f"should be 2 x 3 or 3 x 3 and is {array.shape}")
    return _three_rows(array)


def _three_rows(matrix: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    result = np.eye(3, dtype=np.float32)
    result[: matrix.shape[0]] = matrix
    return result


def _stored_size(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MAX_STORED_SIZE:
        raise ValueError(f"should be 1 to {MAX_STORED_SIZE} pixels and is {_short(value)}")
    return value


def _centering(value: Any) -> Centering:
    for known in CENTERINGS:
        if value == known:
            return known
    raise ValueError(f"should be one of {', '.join(CENTERINGS)} and is {_short(value)}")


def _frame_size(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"should be (height, width) and is {_short(value)}")
    return _int(value[0]), _int(value[1])


# --- writing ---------------------------------------------------------------------------------------------------------


def render_metadata(metadata: FaceMetadata) -> str:
    """The text form: the current layout, in the list form with 2 x 3 matrices that every known reader takes.

    :raises MetadataError: a number is not finite (such a text could never be read back), or an unknown value that was
        kept cannot be written as plain data.
    """
    if metadata.landmarks.shape not in [(count, 2) for count in LANDMARK_COUNTS]:
        raise MetadataError(f"landmarks of the shape {metadata.landmarks.shape} cannot be written")
    source = metadata.source
    tree = {
        "alignments": {
            "x": metadata.x,
            "y": metadata.y,
            "w": metadata.w,
            "h": metadata.h,
            "landmarks_xy": np.asarray(metadata.landmarks, np.float32).tolist(),
            "mask": {name: _render_mask(mask) for name, mask in metadata.masks.items()},
            "identity": {name: np.asarray(values, np.float32).tolist() for name, values in metadata.identity.items()},
            **metadata.extra,
        },
        "source": {
            "alignments_version": float(source.alignments_version),
            "original_filename": source.original_filename,
            "face_index": source.face_index,
            "source_filename": source.source_filename,
            "source_is_video": source.source_is_video,
            "source_frame_dims": None if source.source_frame_dims is None else list(source.source_frame_dims),
            **source.extra,
        },
        **metadata.extra_top,
    }
    _check_plain(tree, "")
    return repr(tree)


def _render_mask(mask: StoredMask) -> dict[str, Any]:
    return {
        "mask": mask.compressed,
        "affine_matrix": np.asarray(mask.affine_matrix, np.float32)[:2].tolist(),
        "interpolator": mask.interpolator,
        "stored_size": mask.stored_size,
        "stored_centering": mask.stored_centering,
        **mask.extra,
    }


def _check_plain(value: Any, where: str) -> None:
    # Exact types: the repr of a subclass (a NumPy scalar, an enum) is not a literal.
    if value is None or type(value) in (bool, int, str, bytes):
        return
    if type(value) is float:
        if not math.isfinite(value):
            raise MetadataError(f"{where} holds {value}, which is not finite: such a face could not be read back")
    elif type(value) in (list, tuple):
        for item in value:
            _check_plain(item, where)
    elif type(value) is dict:
        for key, item in value.items():
            if type(key) not in (str, int):
                raise MetadataError(f"{where} holds the key {key!r}; keys are text")
            _check_plain(item, f"{where}.{key}".lstrip("."))
    else:
        raise MetadataError(f"{where} holds a {type(value).__name__}, which is not plain data")
