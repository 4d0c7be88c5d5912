"""Folders laid out as IJB-C."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from people_pictures import PatchMeans, person_picture, write_templates

from ostinato.data.jpeg import ImageError
from ostinato.data.pictures import encode_png
from ostinato.errors import BadInputError
from ostinato.recognition.verification.pictures import PictureBytes, aligned, prepare_picture
from ostinato.recognition.verification.template_folder import (
    is_template_folder,
    read_template_folder,
    verify_templates,
)


def test_a_folder_is_read_and_its_people_are_told_apart(tmp_path: Path) -> None:
    folder = write_templates(tmp_path / "set")
    assert is_template_folder(folder)
    assert not is_template_folder(tmp_path)
    templates = read_template_folder(folder)
    assert (templates.name, len(templates.pictures), len(templates.same)) == ("ijbx", 24, 66)
    assert templates.same.sum() == 6
    assert templates.templates.tolist() == [number // 2 for number in range(24)]
    assert templates.detector_scores.tolist() == [0.9] * 24
    curve = verify_templates(PatchMeans(), templates, batch_size=7)
    assert curve.at((0.01, 0.1))[0][1] == 1.0


def test_faces_are_brought_to_where_aligned_faces_lie(tmp_path: Path) -> None:
    templates = read_template_folder(write_templates(tmp_path))
    assert np.abs(prepare_picture(templates.pictures[0]).astype(int) - person_picture(0, 0, 112)).max() <= 1


def test_points_on_one_spot_are_refused() -> None:
    with pytest.raises(ImageError, match="one spot"):
        aligned(person_picture(0, 0), ((5.0, 5.0),) * 5)
    picture = PictureBytes("this one", encode_png(person_picture(0, 0)), ((5.0, float("nan")),) * 5)
    with pytest.raises(BadInputError, match="this one cannot be used: its landmarks"):
        prepare_picture(picture)


@pytest.mark.parametrize(
    ("ending", "change", "why"),
    [
        ("face_tid_mid", lambda text: text + "x.png 1 2\n", "x.png has no points"),
        ("face_tid_mid", lambda text: text + "1 2\n", "row 25 has 2 columns and not 3"),
        ("face_tid_mid", lambda text: text.replace("0_0.png 0", "0_0.png a"), "'a' should be a number"),
        ("name_5pts_score", lambda text: text.replace("0.9", "high"), "should be a number"),
        ("template_pair_label", lambda text: text + "1 2 7\n", "two templates and 1 or 0"),
        ("template_pair_label", lambda text: text + "1 x 0\n", "cannot be used"),
        ("template_pair_label", lambda text: None, "holds no list"),
    ],
)
def test_lists_that_are_wrong_are_named(tmp_path: Path, ending: str, change: object, why: str) -> None:
    path = write_templates(tmp_path) / "meta" / f"ijbx_{ending}.txt"
    changed = change(path.read_text())  # type: ignore[operator]
    path.unlink() if changed is None else path.write_text(changed)
    with pytest.raises(BadInputError, match=why):
        read_template_folder(tmp_path)


def test_paths_stay_in_the_folder(tmp_path: Path) -> None:
    folder = write_templates(tmp_path)
    for ending in ("face_tid_mid", "name_5pts_score"):
        path = folder / "meta" / f"ijbx_{ending}.txt"
        path.write_text(path.read_text().replace("0_0.png", "../0_0.png"))
    with pytest.raises(BadInputError, match="leaves the folder"):
        read_template_folder(folder)
