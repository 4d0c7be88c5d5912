from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from record_sets import jpeg, write_people, write_plain_set

from ostinato.errors import ArgumentValueError, DataSetError
from ostinato.recognition.data import open_source
from ostinato.recognition.data.image_folder import scan_identities


def test_labels_are_the_places_of_the_sorted_folder_names(tmp_path: Path) -> None:
    source = open_source(write_people(tmp_path, {"s2": 1, "s10": 2, "s1": 3}))
    assert source.labels.tolist() == [0, 0, 0, 1, 1, 2]
    assert source.classes == 3
    assert source.place(0) == str(tmp_path / "s1" / "000.jpg")
    assert source.read(3)[1] == 1
    assert source.read(3)[0].shape == (16, 16, 3)


def test_what_operating_systems_leave_behind_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_people(tmp_path, {"a": 2, "b": 1})
    before = open_source(tmp_path)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "empty").mkdir()
    for name in (".DS_Store", "Thumbs.db", "a/.DS_Store", "a/desktop.ini", "b/._0001.png", "readme.txt", "b/x.txt"):
        (tmp_path / name).write_bytes(b"?")
    os.symlink("..", tmp_path / "circle")
    os.symlink(".", tmp_path / "itself")
    os.symlink("nothing", tmp_path / "nothing")
    os.symlink("..", tmp_path / "a" / "up")
    with caplog.at_level(logging.WARNING):
        after = open_source(tmp_path)
    assert after.labels.tolist() == before.labels.tolist()
    assert [after.place(index) for index in range(3)] == [before.place(index) for index in range(3)]
    assert caplog.text.count("empty") == 1
    assert "no class is counted" in caplog.text


def test_an_identity_may_be_a_link_and_may_have_folders_inside(tmp_path: Path) -> None:
    write_people(tmp_path / "elsewhere", {"c": 2})
    write_people(tmp_path / "set", {"a": 1, "b/video1": 1, "b/video0": 2})
    os.symlink(tmp_path / "elsewhere" / "c", tmp_path / "set" / "c")
    found = scan_identities(tmp_path / "set")
    assert [identity.name for identity in found.identities] == ["a", "b", "c"]
    assert found.identities[1].files == ("video0/000.jpg", "video0/001.jpg", "video1/000.jpg")
    assert open_source(tmp_path / "set").labels.tolist() == [0, 1, 1, 1, 2, 2]


def test_names_of_all_kinds_are_read_and_shown(tmp_path: Path) -> None:
    raw = os.fsdecode(b"bad\xff")
    write_people(tmp_path, {"한국어": 1, "a\nb": 1, " blank ": 1, raw: 1})
    (tmp_path / "a\nb" / "000.jpg").write_bytes(jpeg(0)[:-40])
    source = open_source(tmp_path)
    assert source.classes == 4
    places = [source.place(index) for index in range(4)]
    assert any("bad\\xff" in place for place in places)
    assert any("한국어" in place for place in places)
    index = next(index for index, place in enumerate(places) if "a\\nb" in place)
    with pytest.raises(DataSetError, match=r"a\\nb.*000\.jpg cannot be used: it is cut off"):
        source.read(index)


def test_small_identities_can_be_left_out(tmp_path: Path) -> None:
    found = scan_identities(write_people(tmp_path, {"a": 1, "b": 3, "c": 2}), min_images=2)
    assert [identity.name for identity in found.identities] == ["b", "c"]
    assert found.too_small == (("a", 1),)
    assert "(a: 1)" in found.notes()[0]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda folder: None, "holds no sub-folders"),
        (lambda folder: (folder / "a").mkdir(), r"hold no pictures \(a\)"),
        (lambda folder: (folder / "x.jpg").write_bytes(b"?"), "1 pictures side by side and no sub-folders"),
        (lambda folder: write_people(folder, {"a": 1, "b": 2}), r"has 3 pictures; the largest, b, has 2"),
        (lambda folder: write_plain_set(folder / "other.rec", [0]), r"holds no train\.rec, but other\.rec"),
    ],
)
def test_a_folder_that_is_no_set_is_named_with_the_reason(tmp_path: Path, make, text: str) -> None:
    make(tmp_path)
    with pytest.raises(DataSetError, match=text) as caught:
        open_source(tmp_path, min_images=3)
    assert caught.value.fields["path"] == str(tmp_path)


def test_a_path_where_nothing_is_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataSetError, match=r"There is no .*nowhere"):
        open_source(tmp_path / "nowhere")
    with pytest.raises(DataSetError, match="cannot be read: No such file"):
        scan_identities(tmp_path / "nowhere")


def test_a_pipe_by_a_pictures_name_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    write_people(tmp_path, {"a": 1})
    os.mkfifo(tmp_path / "a" / "pipe.jpg")
    source = open_source(tmp_path)
    with pytest.raises(DataSetError, match=r"pipe\.jpg cannot be used: it is not an ordinary file"):
        source.read(1)


def test_a_file_that_has_gone_is_named(tmp_path: Path) -> None:
    source = open_source(write_people(tmp_path, {"a": 1}))
    (tmp_path / "a" / "000.jpg").unlink()
    with pytest.raises(DataSetError, match="cannot be read"):
        source.read(0)


def test_a_wrong_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError, match="min_images is 0"):
        scan_identities(tmp_path, min_images=0)
