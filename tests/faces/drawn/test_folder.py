"""Folders of drawn faces are folders of extracted faces."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from ostinato.errors import ArgumentValueError
from ostinato.faces.drawn import DEMO_IDENTITIES, FaceState, draw_face, draw_frame, frame_landmarks, write_drawn_folder
from ostinato.faces.face_files import read_face_header
from ostinato.faces.sample import CropSettings, prepare_face
from ostinato.faces.scan import scan_folder

IDENTITY = DEMO_IDENTITIES["a"]


def test_the_files_are_extracted_faces_of_the_current_version(tmp_path: Path) -> None:
    written = write_drawn_folder(tmp_path, IDENTITY, 3, seed=5, size=96)
    scan = scan_folder(tmp_path)
    assert scan.paths == written
    assert not scan.bad
    for index, path in enumerate(written):
        metadata = read_face_header(path).metadata
        assert metadata is not None
        state = FaceState.from_seed(5, index)
        assert np.array_equal(metadata.landmarks, frame_landmarks(IDENTITY, state))
        assert metadata.centering == "head"
        assert metadata.source.alignments_version == 2.4
        assert metadata.source.source_frame_dims == state.frame_size
        assert metadata.source.source_filename == f"drawn_{index:06d}.png"
        assert metadata.source.original_filename == path.name
        assert np.array_equal(cv2.imread(str(path))[..., ::-1], draw_face(IDENTITY, state, 96).image)


@pytest.mark.parametrize("mask", ["extended", "components", "eye", "mouth", "custom_face"])
def test_the_faces_can_be_cut_and_masked_like_extracted_ones(tmp_path: Path, mask: str) -> None:
    (path,) = write_drawn_folder(tmp_path, IDENTITY, 1, seed=2, size=256)
    prepared = prepare_face(path, CropSettings(128, masks=(mask,)))
    direct = draw_face(IDENTITY, FaceState.from_seed(2, 0), 128, centering="face")
    assert np.abs(prepared.image.astype(int) - direct.image).mean() < 6
    assert prepared.landmarks is not None
    assert np.abs(prepared.landmarks - direct.landmarks).max() < 0.01
    assert 0.002 < (prepared.masks > 127).mean() < 0.6
    if mask == "custom_face":
        assert np.abs(prepared.masks[..., 0].astype(int) - direct.mask).mean() < 4


def test_a_folder_written_in_parts_equals_one_written_at_once(tmp_path: Path) -> None:
    write_drawn_folder(tmp_path / "whole", IDENTITY, 4, seed=1, size=64)
    write_drawn_folder(tmp_path / "parts", IDENTITY, 1, seed=1, size=64)
    write_drawn_folder(tmp_path / "parts", IDENTITY, 3, seed=1, size=64, first=1)
    whole, parts = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("whole", "parts")
    )
    assert whole == parts
    assert len(whole) == 4


def test_frames_are_written_when_asked_for(tmp_path: Path) -> None:
    write_drawn_folder(tmp_path / "faces", IDENTITY, 2, seed=1, size=64, frames=tmp_path / "frames")
    for index in range(2):
        frame = cv2.imread(str(tmp_path / "frames" / f"drawn_{index:06d}.png"))[..., ::-1]
        assert np.array_equal(frame, draw_frame([(IDENTITY, FaceState.from_seed(1, index))]))


def test_a_negative_count_is_refused_and_none_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError, match="count is -1"):
        write_drawn_folder(tmp_path, IDENTITY, -1)
    assert write_drawn_folder(tmp_path, IDENTITY, 0) == []
