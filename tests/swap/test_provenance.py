"""The synthetic mark in PNG and JPEG files: written by the standards, and read back also from other writers' files."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest

from ostinato.faces.face_files import write_face
from ostinato.faces.png_chunks import SIGNATURE, insert_before_pixels, international_text, walk_chunks
from ostinato.swap.provenance import (
    JPEG_MARK,
    SourceType,
    describe_swap,
    mark_jpeg,
    png_chunks,
    read_provenance,
    xmp_packet,
)

PICTURE = np.arange(20 * 20 * 3, dtype=np.uint8).reshape(20, 20, 3)
TRAINED = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
COMPOSITE = "http://cv.iptc.org/newscodes/digitalsourcetype/compositeWithTrainedAlgorithmicMedia"


def _jpeg() -> bytes:
    return cv2.imencode(".jpg", PICTURE)[1].tobytes()


@pytest.mark.parametrize(("kind", "address"), [(SourceType.TRAINED, TRAINED), (SourceType.COMPOSITE, COMPOSITE)])
def test_a_marked_png_says_what_it_is(tmp_path: Path, kind: SourceType, address: str) -> None:
    path = tmp_path / "face.png"
    write_face(path, PICTURE, None, chunks=png_chunks(kind, describe_swap("a_to_b")))
    found = read_provenance(path)
    assert found is not None
    assert found.source_type == address
    assert found.is_synthetic
    assert found.tool.startswith("Ostinato ")
    assert "a_to_b" in found.description
    assert np.array_equal(cv2.imread(str(path))[..., ::-1], PICTURE)


def test_a_png_also_carries_the_sentence_as_plain_text_before_its_pixels(tmp_path: Path) -> None:
    path = tmp_path / "face.png"
    write_face(path, PICTURE, None, chunks=png_chunks(SourceType.TRAINED, "made by a → model"))
    data = path.read_bytes()
    assert b"tEXtDescription\x00made by a ? model" in data  # Latin-1 has no arrow
    assert "made by a → model".encode() in data
    with path.open("rb") as file:
        kinds = [chunk.type for chunk in walk_chunks(file, len(data))]
    assert kinds.index(b"iTXt") < kinds.index(b"IDAT")
    assert kinds.index(b"tEXt") < kinds.index(b"IDAT")


def test_a_marked_jpeg_says_what_it_is_and_keeps_its_pixels(tmp_path: Path) -> None:
    path = tmp_path / "frame.jpg"
    path.write_bytes(mark_jpeg(_jpeg(), SourceType.COMPOSITE, "a sentence"))
    found = read_provenance(path)
    assert found is not None
    assert (found.source_type, found.description) == (COMPOSITE, "a sentence")
    plain = cv2.imdecode(np.frombuffer(_jpeg(), np.uint8), cv2.IMREAD_COLOR)
    assert np.array_equal(cv2.imread(str(path)), plain)
    data = path.read_bytes()
    assert data[2:4] == b"\xff\xe0"  # the JFIF segment has to come first
    with pytest.raises(ValueError, match="not a JPEG"):
        mark_jpeg(b"GIF89a", SourceType.COMPOSITE, "x")


def test_the_packet_is_well_formed_whatever_the_description_holds() -> None:
    packet = xmp_packet(SourceType.COMPOSITE, "<&\"' ]]> \u00e9\u4e00")
    body = re.sub(r"<\?xpacket[^>]*\?>", "", packet)
    root = ElementTree.fromstring(body)
    description = root[0][0]
    assert description.attrib["{http://iptc.org/std/Iptc4xmpExt/2008-02-29/}DigitalSourceType"] == COMPOSITE
    assert "".join(description.itertext()) == "<&\"' ]]> \u00e9\u4e00"


@pytest.mark.parametrize(
    "property_text",
    [
        f"<rdf:Description><Iptc4xmpExt:DigitalSourceType>{TRAINED}</Iptc4xmpExt:DigitalSourceType></rdf:Description>",
        f"<rdf:Description Iptc4xmpExt:DigitalSourceType = '{TRAINED}' />",
        f'<rdf:Description><Iptc4xmpExt:DigitalSourceType rdf:resource="{TRAINED}"/></rdf:Description>',
    ],
)
def test_other_ways_to_write_the_property_are_read(tmp_path: Path, property_text: str) -> None:
    png = insert_before_pixels(
        cv2.imencode(".png", PICTURE)[1].tobytes(), [international_text("XML:com.adobe.xmp", property_text)]
    )
    path = tmp_path / "other.png"
    path.write_bytes(png)
    found = read_provenance(path)
    assert found is not None
    assert found.source_type == TRAINED
    body = JPEG_MARK + property_text.encode()
    jpeg = _jpeg()
    (tmp_path / "other.jpg").write_bytes(jpeg[:2] + b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body + jpeg[2:])
    found = read_provenance(tmp_path / "other.jpg")
    assert found is not None
    assert found.is_synthetic


def test_a_photograph_says_something_else_and_is_not_synthetic(tmp_path: Path) -> None:
    address = "http://cv.iptc.org/newscodes/digitalsourcetype/digitalCapture"
    text = f'<rdf:Description Iptc4xmpExt:DigitalSourceType="{address}"/>'
    png = cv2.imencode(".png", PICTURE)[1].tobytes()
    (tmp_path / "photo.png").write_bytes(insert_before_pixels(png, [international_text("XML:com.adobe.xmp", text)]))
    found = read_provenance(tmp_path / "photo.png")
    assert found is not None
    assert not found.is_synthetic


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no picture",
        SIGNATURE,
        b"\xff\xd8",
        b"\xff\xd8\xff\xe1\x00\x00",
        b"\xff\xd8\xff\xe1\x00\x02" * 3,
        b"\xff\xd8\xff\xe1\xff\xff" + JPEG_MARK,
    ],
)
def test_pictures_without_a_mark_and_broken_ones_say_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert read_provenance(path) is None
    cv2.imwrite(str(tmp_path / "plain.png"), PICTURE)
    cv2.imwrite(str(tmp_path / "plain.jpg"), PICTURE)
    assert read_provenance(tmp_path / "plain.png") is None
    assert read_provenance(tmp_path / "plain.jpg") is None
