"""What the records of picture sets hold: a header with labels, and an encoded picture or nothing."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ostinato.errors import ArgumentValueError

HEADER = struct.Struct("<IfQQ")
"""Flag, label, id, second id."""


@dataclass(frozen=True)
class ImageRecord:
    """One record. ``labels`` is a number or several; both forms are in use and mean the same where there is one."""

    labels: float | tuple[float, ...]
    """Single precision, as stored."""
    id: int
    """By habit the key."""
    id2: int
    image: bytes
    """JPEG or PNG; empty in the records that only say which keys an identity has."""

    @property
    def flag(self) -> int:
        """The header's first word: the number of labels that follow it, 0 for a single label within it."""
        return len(self.labels) if isinstance(self.labels, tuple) else 0

    @property
    def label(self) -> float:
        """The label, or the first of several."""
        return self.labels[0] if isinstance(self.labels, tuple) else self.labels


def pack_image_record(labels: float | Sequence[float], image: bytes, *, id: int, id2: int = 0) -> bytes:
    """A record's payload.

    :param labels: a number is stored in the header, a sequence after it; single precision.
    :raises ArgumentValueError: an empty sequence, or an id that does not fit into 64 bits.
    """
    several = not isinstance(labels, (int, float))
    if several and not len(labels):
        raise ArgumentValueError("A record has no label.", advice="Give a number, or a sequence of at least one.")
    try:
        if several:
            return HEADER.pack(len(labels), 0.0, id, id2) + struct.pack(f"<{len(labels)}f", *labels) + image
        return HEADER.pack(0, labels, id, id2) + image
    except (struct.error, OverflowError) as error:
        raise ArgumentValueError(
            f"A record with labels {labels} and ids {id}, {id2} cannot be stored: {error}."
        ) from None


def unpack_image_record(payload: bytes) -> ImageRecord:
    """Read a payload.

    :raises ValueError: it is too short for its header; the text is a reason.
    """
    if len(payload) < HEADER.size:
        raise ValueError(f"it has {len(payload)} bytes, and the header of a picture record alone has {HEADER.size}")
    flag, label, first_id, second_id = HEADER.unpack_from(payload)
    end = HEADER.size + 4 * flag
    if end > len(payload):
        room = (len(payload) - HEADER.size) // 4
        raise ValueError(f"its header announces {flag:,} labels, and there is room for {room:,}")
    labels = struct.unpack_from(f"<{flag}f", payload, HEADER.size) if flag else label
    return ImageRecord(labels, first_id, second_id, payload[end:])
