from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from ostinato.config import FaceOptions, MaskOptions
from ostinato.errors import ArgumentValueError, FaceFileError
from ostinato.faces.alignment import AlignedFace
from ostinato.faces.cropping import crop_aligned, resize_square
from ostinato.faces.landmark_masks import landmark_mask
from ostinato.faces.mean_face import POINTS_98_TO_68
from ostinato.faces.metadata import FaceMetadata, StoredMask
from ostinato.faces.png_chunks import insert_before_pixels, latin_text
from ostinato.faces.sample import CropSettings, prepare_face
from ostinato.faces.stored_masks import stored_mask

Make = Callable[..., FaceMetadata]
Write = Callable[..., Path]
DISC = StoredMask.pack((np.hypot(*np.mgrid[-64:64, -64:64]) < 40).astype(np.uint8) * 255, np.eye(3), "face")


def test_picture_masks_and_landmarks_fit_together(
    tmp_path: Path, write_sample: Write, picture: np.ndarray, make_metadata: Make, landmarks: np.ndarray
) -> None:
    path = write_sample(tmp_path / "face.png", masks={"vgg-clear": DISC})
    settings = CropSettings(64, "face", 0.875, 0.05, ("mouth", "vgg-clear", "extended", "eye"), 2.0, 3, 4.0)
    face = prepare_face(path, settings)
    aligned = AlignedFace.of(landmarks)
    crop = (64, "face", 0.875, 0.05)
    assert np.array_equal(face.image, crop_aligned(picture, make_metadata(), *crop))  # type: ignore[arg-type]
    points = aligned.crop_landmarks(*crop)  # type: ignore[arg-type]
    assert face.landmarks is not None
    assert np.array_equal(face.landmarks, points)
    assert face.masks.shape == (64, 64, 4)
    assert np.array_equal(face.masks[..., 0], landmark_mask(points, "mouth", 64))
    assert np.array_equal(face.masks[..., 2], landmark_mask(points, "extended", 64, 2.0, 3))
    assert np.array_equal(face.masks[..., 3], landmark_mask(points, "eye", 64))
    expected = stored_mask(DISC, aligned, *crop, dilation=2.0, blur_kernel=3, threshold=4.0)  # type: ignore[arg-type]
    assert np.array_equal(face.masks[..., 1], expected)
    assert {face.image.dtype, face.masks.dtype} == {np.dtype(np.uint8)}


def test_masks_are_drawn_in_the_order_asked_for(tmp_path: Path, write_sample: Write) -> None:
    path = write_sample(tmp_path / "face.png")
    there = prepare_face(path, CropSettings(64, masks=("eye", "extended"))).masks
    back = prepare_face(path, CropSettings(64, masks=("extended", "eye"))).masks
    assert np.array_equal(there, back[..., ::-1])
    assert prepare_face(path, CropSettings(64)).masks.shape == (64, 64, 0)


def test_98_points_become_68(tmp_path: Path, write_sample: Write, landmarks: np.ndarray) -> None:
    many = np.full((98, 2), landmarks.mean(axis=0), np.float32)
    many[POINTS_98_TO_68] = landmarks
    path = write_sample(tmp_path / "face.png", points=many)
    settings = CropSettings(64, masks=("extended",))
    face, few = prepare_face(path, settings), prepare_face(write_sample(tmp_path / "few.png"), settings)
    assert face.landmarks is not None
    assert few.landmarks is not None
    assert np.array_equal(face.landmarks, few.landmarks)
    assert np.array_equal(face.masks, few.masks)


def test_legacy_faces_are_cut_as_legacy(tmp_path: Path, write_sample: Write, picture: np.ndarray) -> None:
    path = write_sample(tmp_path / "old.png", version=1.0)
    assert np.array_equal(prepare_face(path, CropSettings(96, "legacy")).image, picture)
    assert not np.array_equal(prepare_face(path, CropSettings(96, "head")).image, picture)


def test_four_points_give_a_picture_without_landmarks(tmp_path: Path, write_sample: Write) -> None:
    path = write_sample(tmp_path / "four.png", points=[[95, 55], [215, 60], [210, 180], [90, 175]])
    face = prepare_face(path, CropSettings(64))
    assert face.landmarks is None
    assert face.image.shape == (64, 64, 3)
    with pytest.raises(FaceFileError, match=r"four\.png .*'extended' mask.*68 or 98 landmarks, and the face has 4"):
        prepare_face(path, CropSettings(64, masks=("extended",)))


def test_a_missing_mask_names_the_face_and_what_it_has(tmp_path: Path, write_sample: Write) -> None:
    path = write_sample(tmp_path / "face.png", masks={"vgg-clear": DISC, "custom_face": DISC})
    with pytest.raises(FaceFileError, match=r"face\.png .*'unet-dfl'.*custom_face, vgg-clear") as caught:
        prepare_face(path, CropSettings(64, masks=("unet-dfl",)))
    assert "mask.mask_type" in str(caught.value)


def test_plain_pictures_are_only_resized(tmp_path: Path, write_sample: Write, picture: np.ndarray) -> None:
    path = write_sample(tmp_path / "plain.png", metadata=None)
    face = prepare_face(path, CropSettings(48, "head", 0.7, 0.2))
    assert np.array_equal(face.image, resize_square(picture, 48))
    assert face.landmarks is None
    assert face.masks.shape == (48, 48, 0)
    with pytest.raises(FaceFileError, match=r"plain picture has neither landmarks.*penalized_mask_loss") as caught:
        prepare_face(path, CropSettings(48, masks=("extended",)))
    assert "plain.png" in str(caught.value)


@pytest.mark.parametrize("suffix", [".jpg", ".bmp", ".webp"])
def test_plain_pictures_of_other_kinds(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"plain{suffix}"
    image = np.full((64, 64, 3), (200, 100, 30), np.uint8)
    path.write_bytes(cv2.imencode(suffix, image)[1].tobytes())
    found = prepare_face(path, CropSettings(32)).image
    assert np.abs(found.astype(int) - [30, 100, 200]).max() <= 3


@pytest.mark.parametrize("kind", ["grey", "alpha", "deep"])
def test_other_pixel_formats_with_metadata(tmp_path: Path, write_sample: Write, picture: np.ndarray, kind: str) -> None:
    data = write_sample(tmp_path / "face.png").read_bytes()
    text = data[data.index(b"iTXt") - 4 : data.index(b"IDAT") - 4]
    bgr = picture[..., ::-1]
    image = {
        "grey": np.ascontiguousarray(bgr[..., 1]),
        "alpha": np.dstack([bgr, np.zeros((96, 96), np.uint8)]),
        "deep": bgr.astype(np.uint16) * 257,
    }[kind]
    path = tmp_path / "other.png"
    path.write_bytes(insert_before_pixels(cv2.imencode(".png", image)[1].tobytes(), [text]))
    found = prepare_face(path, CropSettings(96, "head"))
    assert np.array_equal(found.image, np.repeat(picture[..., 1:2], 3, axis=2) if kind == "grey" else picture)
    assert found.landmarks is not None


@pytest.mark.parametrize("damage", ["cut", "flip", "mask", "bomb", "wide", "gone"])
def test_damage_is_told_with_the_file(tmp_path: Path, write_sample: Write, make_metadata: Make, damage: str) -> None:
    name = os.fsdecode(b"f\xff\n.png")
    packed = zlib.compress(bytes(100_000_000)) if damage == "bomb" else b"no zlib data"
    bad_mask = replace(DISC, compressed=packed)
    path = write_sample(tmp_path / name, masks={"vgg-clear": bad_mask if damage in ("mask", "bomb") else DISC})
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[:-500])
    elif damage == "flip":
        path.write_bytes(data[:-200] + bytes([data[-200] ^ 1]) + data[-199:])
    elif damage == "wide":
        wide = cv2.imencode(".png", np.zeros((50, 60, 3), np.uint8))[1].tobytes()
        path.write_bytes(insert_before_pixels(wide, [latin_text("a", "b")]))
    elif damage == "gone":
        path.unlink()
    with pytest.raises(FaceFileError, match=r"f\\xff\\n\.png cannot be used: ") as caught:
        prepare_face(path, CropSettings(64, masks=("vgg-clear",)))
    assert caught.value.fields["path"] == os.fspath(path)
    assert damage == "gone" or "take it out, and start the same command again" in caught.value.advice


def test_settings_come_from_the_options() -> None:
    face = FaceOptions(centering="head", coverage=87.5, vertical_offset=-10)
    mask = MaskOptions(mask_dilation=1.5, mask_blur_kernel=5, mask_threshold=7)
    settings = CropSettings.from_options(128, face, mask, ("eye",))
    assert settings == CropSettings(128, "head", 0.875, -0.1, ("eye",), 1.5, 5, 7)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"size": 0}, "size"),
        ({"centering": "nose"}, "centering"),
        ({"coverage": 87.5}, "in percent"),
        ({"coverage": 0}, "coverage"),
        ({"vertical_offset": 10}, "in percent"),
    ],
)
def test_settings_out_of_range_are_refused(changes: dict[str, object], word: str) -> None:
    with pytest.raises(ArgumentValueError, match=word):
        CropSettings(**{"size": 64, **changes})  # type: ignore[arg-type]
