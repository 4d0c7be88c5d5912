"""Pictures that an exported network is compared on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from people_pictures import person_picture, write_people

from ostinato.data.pictures import encode_png
from ostinato.errors import BadInputError
from ostinato.recognition.check_pictures import read_check_pictures


def test_pictures_of_a_folder_are_read_in_order_up_to_a_number(tmp_path: Path) -> None:
    write_people(tmp_path, 3, 2, size=112)
    (tmp_path / "person_00" / "notes.txt").write_text("no picture")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "0.png").write_bytes(b"")
    found = read_check_pictures(tmp_path, most=3)
    assert found.shape == (3, 3, 112, 112)
    for picture, (person, number) in zip(found, [(0, 0), (0, 1), (1, 0)], strict=True):
        pixels = torch.from_numpy(person_picture(person, number, 112)).permute(2, 0, 1).float()
        assert torch.equal(picture, (pixels - 127.5) / 127.5)
    assert len(read_check_pictures(tmp_path)) == 6


def test_a_single_picture_of_any_size_will_do(tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(encode_png(person_picture(1, 1, 64)))
    assert read_check_pictures(tmp_path / "one.png").shape == (1, 3, 112, 112)


def test_people_may_be_links_and_a_circle_of_links_ends(tmp_path: Path) -> None:
    write_people(tmp_path / "all", 2, 2, size=112)
    few = tmp_path / "few"
    few.mkdir()
    (few / "person").symlink_to(tmp_path / "all" / "person_01", target_is_directory=True)
    (few / "round").symlink_to(few, target_is_directory=True)
    assert len(read_check_pictures(few)) == 2


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(BadInputError, match="is no picture and no folder with pictures in it"):
            read_check_pictures(path)
