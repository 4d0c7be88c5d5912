from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from ostinato.errors import FaceFolderError
from ostinato.faces.metadata import StoredMask
from ostinato.faces.scan import MAX_SIDE, MIN_SIDE, FaceKind, scan_folder

Write = Callable[..., Path]


def _image(suffix: str, width: int, height: int) -> bytes:
    return cv2.imencode(suffix, np.zeros((height, width, 3), np.uint8))[1].tobytes()


def _names(files: object) -> list[str]:
    return [file.name for file in files]  # type: ignore[attr-defined]


def test_faces_are_found_with_what_they_have(tmp_path: Path, write_sample: Write) -> None:
    mask = StoredMask.pack(np.zeros((64, 64), np.uint8), np.eye(3), "face")
    write_sample(tmp_path / "b.png", masks={"vgg-clear": mask, "custom_face": mask})
    write_sample(tmp_path / "a.PNG", points=np.arange(8).reshape(4, 2) % 5, version=1.0)
    write_sample(tmp_path / "c.png", metadata=None)
    scan = scan_folder(tmp_path)
    assert [(file.name, file.kind) for file in scan.files] == [
        ("a.PNG", FaceKind("legacy", 4, ())),
        ("b.png", FaceKind("head", 68, ("custom_face", "vgg-clear"))),
        ("c.png", FaceKind(None, 0, ())),
    ]
    assert scan.paths == [tmp_path / "a.PNG", tmp_path / "b.png", tmp_path / "c.png"]
    assert _names(scan.plain) == ["c.png"]
    assert all(file.side == 96 and file.bytes == file.path.stat().st_size for file in scan.files)
    assert scan.files[0].mtime_ns == (tmp_path / "a.PNG").stat().st_mtime_ns


@pytest.mark.parametrize("name", ["a.jpg", "a.JPEG", "a.bmp", "a.webp", "A.Png"])
def test_square_pictures_of_every_kind_are_plain_faces(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(_image(Path(name).suffix.lower(), 64, 64))
    scan = scan_folder(tmp_path)
    assert _names(scan.plain) == [name]
    assert "masks, warping to landmarks" in scan.notes()[0]


def test_a_picture_is_known_by_its_bytes_and_not_its_name(tmp_path: Path, write_sample: Write) -> None:
    write_sample(tmp_path / "really_png.jpg")
    (tmp_path / "really_jpg.png").write_bytes(_image(".jpg", 64, 64))
    scan = scan_folder(tmp_path)
    assert [file.is_plain for file in scan.files] == [True, False]


def test_odd_shapes_are_named_with_their_reason(tmp_path: Path, write_sample: Write) -> None:
    for side in (64, 128, 256, 512):
        write_sample(tmp_path / f"{side}.png", image=np.zeros((side, side, 3), np.uint8))
    (tmp_path / "wide.png").write_bytes(_image(".png", 300, 200))
    (tmp_path / "dot.png").write_bytes(_image(".png", 1, 1))
    scan = scan_folder(tmp_path)
    assert sorted(file.side for file in scan.files) == [64, 128, 256, 512]
    assert [(bad.name, bad.reason) for bad in scan.bad] == [
        ("dot.png", f"it is 1 pixels wide; {MIN_SIDE} to {MAX_SIDE} are used"),
        ("wide.png", "it is 300 x 200; a face picture is square"),
    ]


def test_every_broken_file_is_listed(tmp_path: Path, write_sample: Write) -> None:
    whole = write_sample(tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[:-100])
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_bytes(b"this is no picture")
    (tmp_path / "cut.jpg").write_bytes(_image(".jpg", 64, 64)[:30])
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "nowhere.png").symlink_to(tmp_path / "missing")
    scan = scan_folder(tmp_path)
    assert _names(scan.files) == ["whole.png"]
    assert _names(scan.bad) == ["cut.jpg", "cut.png", "empty.png", "nowhere.png", "pipe.png", "text.png"]


def test_what_would_fail_at_a_face_s_first_use_is_found_at_the_start(
    tmp_path: Path, write_sample: Write, landmarks: np.ndarray
) -> None:
    far, one_spot = landmarks.copy(), landmarks.copy()
    far[0] = 1e12
    one_spot[17:] = one_spot[17]
    mask = StoredMask.pack(np.zeros((64, 64), np.uint8), np.eye(3), "face")
    write_sample(tmp_path / "far.png", points=far)
    write_sample(tmp_path / "one_spot.png", points=one_spot)
    write_sample(tmp_path / "mask.png", masks={"vgg-clear": replace(mask, stored_size=128)})
    write_sample(tmp_path / "unpackable.png", masks={"vgg-clear": replace(mask, compressed=b"no stream")})
    scan = scan_folder(tmp_path)
    assert scan.files == ()
    far_bad, mask_bad, spot_bad, unpackable = scan.bad
    assert "times the face's width away from the face" in far_bad.reason
    assert mask_bad.reason == "a stored mask unpacks to 4096 bytes; its size of 128 means 16384"
    assert spot_bad.reason == "the landmarks of a face all lie on one spot; it cannot be aligned"
    assert "a stored mask cannot be unpacked" in unpackable.reason


def test_what_the_system_leaves_behind_is_ignored_and_counted(tmp_path: Path, write_sample: Write) -> None:
    write_sample(tmp_path / "face.png")
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "._0001.png", ".hidden.jpg", "Icon\r"):
        (tmp_path / name).write_bytes(b"\x00\x05\x16\x07")
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.png").mkdir()
    scan = scan_folder(tmp_path)
    assert (_names(scan.files), scan.bad, scan.left_behind, scan.others) == (["face.png"], (), 6, 3)
    assert len(scan.notes()) == 2


def test_links_are_followed_to_files_and_never_in_circles(tmp_path: Path, write_sample: Write) -> None:
    inside = tmp_path / "faces"
    inside.mkdir()
    outside = write_sample(tmp_path / "outside.png")
    (inside / "link.png").symlink_to(outside)
    (inside / "loop.png").symlink_to("loop.png")
    (inside / "up.png").symlink_to(tmp_path)
    (inside / "self").symlink_to(inside)
    scan = scan_folder(inside)
    assert _names(scan.files) == ["link.png"]
    assert [(bad.name, "symbolic links" in bad.reason) for bad in scan.bad] == [("loop.png", True)]
    assert scan.others == 2


def test_sub_folders_are_not_entered(tmp_path: Path, write_sample: Write) -> None:
    (tmp_path / "more").mkdir()
    write_sample(tmp_path / "more" / "face.png")
    assert scan_folder(tmp_path).files == ()


def test_names_of_any_bytes_are_found_and_shown(tmp_path: Path, write_sample: Write) -> None:
    names = ["얼굴.png", "e\u0301.png", "\u00e9.png", "new\nline.png", " .png", os.fsdecode(b"\xff.png")]
    for name in names:
        write_sample(tmp_path / name, metadata=None)
    scan = scan_folder(tmp_path)
    assert sorted(_names(scan.files)) == sorted(names)
    assert all("\n" not in note and note.encode() for note in scan.notes())


def test_order_is_by_name(tmp_path: Path, write_sample: Write) -> None:
    for name in ("b", "a", "B", "a10", "a2"):
        write_sample(tmp_path / f"{name}.png")
    assert _names(scan_folder(tmp_path).files) == ["B.png", "a.png", "a10.png", "a2.png", "b.png"]


@pytest.mark.parametrize("name", ["missing", "file"])
def test_what_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FaceFolderError, match=f"{name} cannot be read"):
        scan_folder(tmp_path / name)


def test_progress_ends_at_the_total(tmp_path: Path, write_sample: Write) -> None:
    for number in range(3):
        write_sample(tmp_path / f"{number}.png")
    calls: list[tuple[int, int]] = []
    scan_folder(tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(0, 3), (3, 3)]


def test_a_face_costs_a_few_hundred_bytes(tmp_path: Path, write_sample: Write) -> None:
    mask = StoredMask.pack(np.random.default_rng(0).integers(0, 255, (128, 128), np.uint8), np.eye(3), "face")
    first = write_sample(tmp_path / "0000.png", masks={"vgg-clear": mask, "custom_face": mask})
    for number in range(1, 150):
        os.link(first, tmp_path / f"{number:04}.png")
    tracemalloc.start()
    scan = scan_folder(tmp_path)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(scan.files) == 150
    assert kept / 150 < 600
    assert len({id(file.kind) for file in scan.files}) == 1
