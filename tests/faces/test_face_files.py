from __future__ import annotations

import io
import os
import stat
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from ostinato.errors import ArgumentValueError, FaceFileError
from ostinato.faces import face_files
from ostinato.faces.face_files import read_face_header, read_whole, update_face, write_face
from ostinato.faces.metadata import FaceMetadata, StoredMask, render_metadata
from ostinato.faces.pictures import read_picture
from ostinato.faces.png_chunks import insert_before_pixels, international_text, latin_text, make_chunk, walk_chunks

Make = Callable[..., FaceMetadata]
Write = Callable[..., Path]


def _types(path: Path) -> list[bytes]:
    with open(path, "rb") as file:
        return [chunk.type for chunk in walk_chunks(file, path.stat().st_size)]


def _with_chunks(path: Path, *chunks: bytes) -> None:
    path.write_bytes(insert_before_pixels(path.read_bytes(), chunks))


def test_a_written_face_is_read_back(tmp_path: Path, picture: np.ndarray, make_metadata: Make) -> None:
    mask = StoredMask.pack(np.full((64, 64), 255, np.uint8), np.eye(3), "face")
    metadata = make_metadata(masks={"vgg-clear": mask}, identity={"t-face": np.ones(512, np.float32)})
    path = tmp_path / "face.png"
    write_face(path, picture, metadata)
    header = read_face_header(path)
    assert header.path == path
    assert (header.png.width, header.png.height) == (96, 96)
    assert header.metadata is not None
    assert render_metadata(header.metadata) == render_metadata(metadata)
    assert np.array_equal(read_picture(path), picture)


def test_the_text_stands_directly_before_the_pixels(tmp_path: Path, write_sample: Write) -> None:
    types = _types(write_sample(tmp_path / "face.png"))
    assert types[types.index(b"IDAT") - 1] == b"iTXt"


def test_further_chunks_are_written_too(tmp_path: Path, picture: np.ndarray, make_metadata: Make) -> None:
    path = tmp_path / "face.png"
    write_face(path, picture, make_metadata(), chunks=[latin_text("Comment", "synthetic")])
    assert _types(path)[1:3] == [b"tEXt", b"iTXt"]
    assert read_face_header(path).metadata is not None


def test_a_plain_picture_has_no_metadata(tmp_path: Path, write_sample: Write) -> None:
    assert read_face_header(write_sample(tmp_path / "plain.png", metadata=None)).metadata is None


def test_other_text_chunks_are_passed_over(tmp_path: Path, picture: np.ndarray, make_metadata: Make) -> None:
    path = tmp_path / "face.png"
    others = [international_text("Comment", "faceswap"), international_text("faceswapper", "{}"), latin_text("x", "y")]
    write_face(path, picture, make_metadata(), chunks=others)
    assert read_face_header(path).metadata is not None


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_could_not_be_read_back_is_not_written(
    tmp_path: Path, picture: np.ndarray, make_metadata: Make, landmarks: np.ndarray, bad: float
) -> None:
    landmarks[5] = bad
    path = tmp_path / "face.png"
    with pytest.raises(FaceFileError, match=r"face\.png .*not finite"):
        write_face(path, picture, make_metadata(landmarks))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shape", [(96, 96), (96, 96, 4), (96, 80, 3)])
def test_only_square_colour_pictures_are_written(tmp_path: Path, make_metadata: Make, shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentValueError):
        write_face(tmp_path / "face.png", np.zeros(shape, np.uint8), make_metadata())


def test_a_new_file_gets_the_usual_rights(tmp_path: Path, write_sample: Write) -> None:
    (tmp_path / "other").touch()
    path = write_sample(tmp_path / "face.png")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)


# --- broken and hostile files -----------------------------------------------------------------------------------------


def _refused(path: Path, reason: str) -> None:
    with pytest.raises(FaceFileError, match=reason) as caught:
        read_face_header(path)
    assert path.name in str(caught.value)
    assert caught.value.fields["path"] == str(path)
    assert caught.value.fields["reason"] in str(caught.value)


def test_every_cut_is_noticed(tmp_path: Path, write_sample: Write) -> None:
    data = write_sample(tmp_path / "face.png").read_bytes()
    path = tmp_path / "cut.png"
    for end in [*range(0, 64, 3), *range(64, len(data), 401), len(data) - 1]:
        path.write_bytes(data[:end])
        with pytest.raises(FaceFileError):
            read_face_header(path)


def test_bytes_after_the_picture_are_harmless(tmp_path: Path, write_sample: Write) -> None:
    path = write_sample(tmp_path / "face.png")
    path.write_bytes(path.read_bytes() + b"something else")
    assert read_face_header(path).metadata is not None


def test_a_damaged_text_is_refused(tmp_path: Path, write_sample: Write) -> None:
    path = write_sample(tmp_path / "face.png")
    data = bytearray(path.read_bytes())
    data[data.index(b"landmarks_xy") + 20] ^= 1
    path.write_bytes(data)
    _refused(path, "checksum of its 'iTXt' chunk")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"faceswap\x00\x00\x00\x00\x00{'alignments': __import__('os').system('true')}", "no plain value"),
        (b"faceswap\x00\x00\x00\x00\x00" + b"[" * 100_000, "nested deeper"),
        (b"faceswap\x00\x00\x00\x00\x00" + b"9" * 100_000, "no plain value"),
        (b"faceswap\x00\x00\x00\x00\x00\xff\xfe", "not UTF-8"),
        (b"faceswap\x00\x01\x00\x00\x00" + zlib.compress(b"{}"), "compressed"),
        (b"faceswap\x00\x00\x00\x00\x00{}", "lacks 'alignments'"),
        (b"faceswap\x00\x00\x00\x00\x00", "ends too early"),
    ],
    ids=["call", "deep", "huge", "latin", "packed", "empty", "nothing"],
)
def test_hostile_texts_are_refused(tmp_path: Path, write_sample: Write, body: bytes, reason: str) -> None:
    path = write_sample(tmp_path / "face.png", metadata=None)
    _with_chunks(path, make_chunk(b"iTXt", body))
    _refused(path, reason)


def test_an_endless_text_is_refused_unread(
    tmp_path: Path, write_sample: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(face_files, "MAX_TEXT_BYTES", 1000)
    _refused(write_sample(tmp_path / "face.png"), "at most 1,000 are read")


def test_large_other_chunks_are_not_read(tmp_path: Path, write_sample: Write) -> None:
    path = write_sample(tmp_path / "face.png")
    data = path.read_bytes()
    # A sparse file: a private chunk that claims 1 GiB, which a reader that loads all chunks would notice.
    header, rest = data[:33], data[33:]
    with open(path, "wb") as file:
        file.write(header + struct.pack(">I", 1 << 30) + b"prVt")
        file.seek((1 << 30) + 4, os.SEEK_CUR)
        file.write(rest)
    assert read_face_header(path).metadata is not None


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"\xff\xd8\xff\xe0" + bytes(100), b"text file"])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "face.png"
    path.write_bytes(data)
    _refused(path, "empty|not a PNG")


def test_folders_and_pipes_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    _refused(tmp_path / "folder.png", "not an ordinary file|directory")
    os.mkfifo(tmp_path / "pipe.png")
    _refused(tmp_path / "pipe.png", "not an ordinary file")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    _refused(tmp_path / "loop.png", "cannot be opened")
    _refused(tmp_path / "missing.png", "No such file")


def test_names_of_any_bytes_can_be_written_read_and_shown(tmp_path: Path, write_sample: Write) -> None:
    names = [
        "얼굴.png",
        "e\u0301.png",
        "\u00e9.png",
        "new\nline.png",
        "blank .png",
        os.fsdecode(b"\xff\xfe.png"),
        "👩\u200d🚀.png",
    ]
    for name in names:
        header = read_face_header(write_sample(tmp_path / name))
        assert header.metadata is not None
        assert read_picture(tmp_path / name).shape == (96, 96, 3)
    path = tmp_path / os.fsdecode(b"bad\n\xff.png")
    path.write_bytes(b"x")
    with pytest.raises(FaceFileError, match=r"bad\\n\\xff.png") as caught:
        read_face_header(path)
    str(caught.value).encode("ascii")


# --- updating ---------------------------------------------------------------------------------------------------------


def test_an_update_replaces_the_text_and_nothing_else(tmp_path: Path, picture: np.ndarray, make_metadata: Make) -> None:
    path = tmp_path / "face.png"
    others = [latin_text("Comment", "IDAT"), international_text("XML:com.adobe.xmp", "<x/>")]
    write_face(path, picture, make_metadata(), chunks=others)
    path.write_bytes(path.read_bytes() + b"trailer")
    changed = replace(make_metadata(), x=-7)
    update_face(path, changed)
    expected = tmp_path / "expected.png"
    write_face(expected, picture, changed, chunks=others)
    assert path.read_bytes() == expected.read_bytes() + b"trailer"


def test_an_update_gives_a_plain_file_a_text(tmp_path: Path, write_sample: Write, make_metadata: Make) -> None:
    path = write_sample(tmp_path / "face.png", metadata=None)
    update_face(path, make_metadata())
    assert path.read_bytes() == write_sample(tmp_path / "expected.png").read_bytes()


def test_an_update_leaves_one_text(tmp_path: Path, write_sample: Write, make_metadata: Make) -> None:
    path = write_sample(tmp_path / "face.png")
    _with_chunks(path, international_text("faceswap", "{}"))
    update_face(path, make_metadata())
    assert _types(path).count(b"iTXt") == 1


def test_an_update_of_a_damaged_file_leaves_it_alone(tmp_path: Path, write_sample: Write, make_metadata: Make) -> None:
    path = write_sample(tmp_path / "face.png")
    data = path.read_bytes()[:-20]
    path.write_bytes(data)
    with pytest.raises(FaceFileError, match="cut off"):
        update_face(path, make_metadata())
    assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


def test_an_update_with_bad_numbers_leaves_the_file_alone(
    tmp_path: Path, write_sample: Write, make_metadata: Make, landmarks: np.ndarray
) -> None:
    path = write_sample(tmp_path / "face.png")
    data = path.read_bytes()
    with pytest.raises(FaceFileError, match="not finite"):
        update_face(path, make_metadata(landmarks * np.inf))
    assert path.read_bytes() == data


@pytest.mark.parametrize("broken", ["fsync", "replace", "chmod"])
def test_a_failing_disk_leaves_the_old_file_and_no_rubbish(
    tmp_path: Path, write_sample: Write, make_metadata: Make, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = write_sample(tmp_path / "face.png")
    data = path.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, broken, fail)
    if broken == "chmod":  # some file systems have no rights to set; that is no reason to fail
        update_face(path, make_metadata(version=2.3))
    else:
        with pytest.raises(OSError, match="No space"):
            update_face(path, make_metadata(version=2.3))
        assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


def test_an_update_goes_through_a_link_and_keeps_the_rights(
    tmp_path: Path, write_sample: Write, make_metadata: Make
) -> None:
    path = write_sample(tmp_path / "face.png")
    path.chmod(0o640)
    link = tmp_path / "link.png"
    link.symlink_to(path)
    update_face(link, make_metadata(version=2.2))
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    header = read_face_header(path)
    assert header.metadata is not None
    assert header.metadata.source.alignments_version == 2.2


def test_pictures_decoded_elsewhere_are_the_same(tmp_path: Path, write_sample: Write, picture: np.ndarray) -> None:
    path = write_sample(tmp_path / "face.png")
    assert np.array_equal(cv2.imread(str(path)), picture[..., ::-1])


def test_reading_a_file_sets_aside_no_more_memory_than_it_has_bytes(tmp_path: Path) -> None:
    path = tmp_path / "face.png"
    path.write_bytes(b"0123456789")
    asked: list[int] = []

    class Watched(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(-1 if size is None else size)
            return super().read(size)

    with Watched(io.FileIO(path)) as file:
        assert read_whole(file) == b"0123456789"
    assert asked == [10]
