"""Says in a picture's file that the picture is synthetic, and reads it back.

The mark is the IPTC *digital source type* in an XMP packet: an ``iTXt`` chunk ``XML:com.adobe.xmp`` in a PNG, an APP1
segment in a JPEG. A PNG also gets a plain text chunk, which every picture viewer shows.

Sources: IPTC Photo Metadata Standard 2023.2, property *Digital Source Type*; XMP Specification Part 3 (2020), sections
1.1.3 (JPEG) and 1.1.5 (PNG).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from html import unescape
from typing import BinaryIO
from xml.sax.saxutils import escape, quoteattr

from ostinato import __version__
from ostinato.faces.face_files import open_regular
from ostinato.faces.png_chunks import (
    SIGNATURE,
    PngError,
    international_text,
    latin_text,
    read_chunk,
    walk_chunks,
)

PNG_KEYWORD = "XML:com.adobe.xmp"
JPEG_MARK = b"http://ns.adobe.com/xap/1.0/\x00"
TOOL = f"Ostinato {__version__}"

_VOCABULARY = "http://cv.iptc.org/newscodes/digitalsourcetype/"
_MAX_PACKET = 1024 * 1024
_MAX_SEGMENTS = 10_000


class SourceType(str, Enum):
    """The two IPTC terms that fit what a swap model does."""

    TRAINED = f"{_VOCABULARY}trainedAlgorithmicMedia"
    """The whole picture was made by a trained model."""
    COMPOSITE = f"{_VOCABULARY}compositeWithTrainedAlgorithmicMedia"
    """Something made by a trained model was put into another picture."""


@dataclass(frozen=True)
class Provenance:
    """What a picture says of its making.

    :param source_type: the IPTC term's address; :class:`SourceType` has those that we write.
    :param tool: the program that made it, or "".
    :param description: one sentence for people, or "".
    """

    source_type: str
    tool: str = ""
    description: str = ""

    @property
    def is_synthetic(self) -> bool:
        """Whether a trained model had a part in the picture."""
        return self.source_type in (SourceType.TRAINED.value, SourceType.COMPOSITE.value)


def describe_swap(direction: str) -> str:
    """The sentence that swapped pictures carry."""
    return f"Synthetic: a face in this picture was drawn by a trained model ({direction}, {TOOL})."


def describe_sheet() -> str:
    """The sentence that previews and other sheets of swapped faces carry."""
    return f"Synthetic: faces in this picture were drawn by a trained model ({TOOL})."


def xmp_packet(source_type: SourceType, description: str) -> str:
    """The XMP packet: digital source type, tool and description."""
    return (
        '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>'
        '<x:xmpmeta xmlns:x="adobe:ns:meta/">'
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description rdf:about=""'
        ' xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/"'
        ' xmlns:xmp="http://ns.adobe.com/xap/1.0/"'
        ' xmlns:dc="http://purl.org/dc/elements/1.1/"'
        f" Iptc4xmpExt:DigitalSourceType={quoteattr(source_type.value)}"
        f" xmp:CreatorTool={quoteattr(TOOL)}>"
        f'<dc:description><rdf:Alt><rdf:li xml:lang="x-default">{escape(description)}</rdf:li></rdf:Alt>'
        "</dc:description>"
        '</rdf:Description></rdf:RDF></x:xmpmeta><?xpacket end="w"?>'
    )


def png_chunks(source_type: SourceType, description: str) -> list[bytes]:
    """Whole chunks to put before a PNG's pixels: the XMP packet and a plain text."""
    return [
        international_text(PNG_KEYWORD, xmp_packet(source_type, description)),
        latin_text("Description", description.encode("latin-1", "replace").decode("latin-1")),
    ]


def mark_jpeg(data: bytes, source_type: SourceType, description: str) -> bytes:
    """The JPEG with the XMP packet in an APP1 segment, after an APP0 segment where there is one.

    :raises ValueError: ``data`` is no JPEG.
    """
    if data[:2] != b"\xff\xd8":
        raise ValueError("not a JPEG: the start mark is missing")
    body = JPEG_MARK + xmp_packet(source_type, description).encode("utf-8")
    segment = b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body
    at = 2
    if data[2:4] == b"\xff\xe0":
        at = 4 + int.from_bytes(data[4:6], "big")
    return data[:at] + segment + data[at:]


def read_provenance(path: str | os.PathLike[str]) -> Provenance | None:
    """What a PNG or JPEG file says of its making; None when it says nothing, or is neither.

    :raises OSError: the file cannot be read.
    """
    try:
        with open_regular(path) as file:
            start = file.read(8)
            if start == SIGNATURE:
                packets = _png_packets(file)
            elif start[:2] == b"\xff\xd8":
                packets = _jpeg_packets(file)
            else:
                return None
            for packet in packets:
                found = _parse(packet.decode("utf-8", "replace"))
                if found is not None:
                    return found
    except PngError:
        return None
    return None


def _png_packets(file: BinaryIO) -> Iterator[bytes]:
    head = PNG_KEYWORD.encode() + b"\x00\x00"  # never compressed, by the standard
    for chunk in walk_chunks(file, os.fstat(file.fileno()).st_size):
        if chunk.type == b"iTXt" and chunk.length <= _MAX_PACKET:
            data = read_chunk(file, chunk)
            if data.startswith(head):
                # compression method, language tag and translated keyword come before the text
                yield data[len(head) + 1 :].split(b"\x00", 2)[-1]


def _jpeg_packets(file: BinaryIO) -> Iterator[bytes]:
    position = 2
    for _ in range(_MAX_SEGMENTS):
        file.seek(position)
        head = file.read(4)
        if len(head) < 4 or head[0] != 0xFF or head[1] == 0xDA:
            return
        length = int.from_bytes(head[2:], "big")
        if length < 2:
            return
        if head[1] == 0xE1:
            body = file.read(length - 2)
            if body.startswith(JPEG_MARK):
                yield body[len(JPEG_MARK) :]
        position += 2 + length


def _parse(packet: str) -> Provenance | None:
    # Three known properties are looked for, as attribute or element; an XML parser would also resolve entities, and
    # with them whatever a hostile file wants.
    source_type = _property(packet, "Iptc4xmpExt:DigitalSourceType")
    if not source_type:
        return None
    return Provenance(source_type, _property(packet, "xmp:CreatorTool"), _property(packet, "dc:description"))


def _property(packet: str, name: str) -> str:
    quoted = re.escape(name)
    for pattern in (
        rf"\b{quoted}\s*=\s*\"([^\"<]*)\"",
        rf"\b{quoted}\s*=\s*'([^'<]*)'",
        rf"<{quoted}\s*>([^<]*)</{quoted}\s*>",
        rf"<{quoted}\s*>\s*<rdf:Alt\s*>\s*<rdf:li[^>]*>([^<]*)</rdf:li>",
        rf"<{quoted}\s+rdf:resource\s*=\s*\"([^\"<]*)\"",
    ):
        if (match := re.search(pattern, packet)) is not None:
            return unescape(match[1]).strip()
    return ""
