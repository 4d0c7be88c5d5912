from __future__ import annotations

import struct
from pathlib import Path

import pytest
from record_sets import jpeg, write_identity_set, write_people, write_plain_set

from ostinato.data.recordio import RecordWriter, pack_image_record
from ostinato.errors import RecordError
from ostinato.recognition.data.inspection import inspect_set
from ostinato.recognition.data.record_set import open_record_set


def test_a_whole_identity_set(tmp_path: Path) -> None:
    path = write_identity_set(tmp_path / "train.rec", [3, 1])
    told: list[tuple[int, int]] = []
    report = inspect_set(tmp_path, path, decode=True, progress=lambda done, total: told.append((done, total)))
    assert (report.kind, report.images, report.counts) == ("identity set", 4, {"0": 3, "1": 1})
    assert (report.sizes, report.formats) == ({(16, 16): 4}, {"JPEG": 4})
    assert report.bytes == path.stat().st_size
    assert report.index == "names 7 records, and fits"
    assert (report.bad, report.notes, report.bad_index, report.missing_labels) == ((), (), None, 0)
    assert told[-1] == (4, 4)


def test_a_plain_set_with_gaps_and_two_formats(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "train.rec") as writer:
        for key, label in enumerate([0, 3, 3]):
            data = b"P5 20 30 255\n" + bytes(600) if key == 1 else jpeg(key)
            writer.write(key, pack_image_record(label, data, id=key))
    report = inspect_set(tmp_path, tmp_path / "train.rec")
    assert (report.kind, report.counts, report.missing_labels) == ("plain set", {"0": 1, "3": 2}, 2)
    assert report.sizes == {(16, 16): 2, (20, 30): 1}
    assert report.formats == {"JPEG": 2, "PNM": 1}


def test_damage_of_records_and_of_pictures_is_listed(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "train.rec") as writer:
        for key in range(5):
            data = jpeg(key)[:-40] if key == 1 else b"<html>" if key == 2 else jpeg(key)
            writer.write(key, pack_image_record(0, data, id=key))
    with open(tmp_path / "train.rec", "r+b") as file:
        file.write(b"X")
    headers = inspect_set(tmp_path, tmp_path / "train.rec")
    assert [error.fields["key"] for error in headers.bad] == [0, 2]
    decoded = inspect_set(tmp_path, tmp_path / "train.rec", decode=True)
    assert [error.fields["key"] for error in decoded.bad] == [0, 1, 2]
    assert decoded.images == 4
    assert decoded.index == "names 5 records, and fits"


def test_a_wrong_index_is_told_and_everything_else_is_as_if_there_were_none(tmp_path: Path) -> None:
    path = write_plain_set(tmp_path / "train.rec", [0, 1])
    (tmp_path / "train.idx").write_bytes(b"0\t4\n")
    report = inspect_set(tmp_path, path)
    assert "no record begins" in report.index
    assert report.bad_index is not None
    assert report.images == 2


def test_a_file_of_another_kind_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.rec").write_bytes(b"<html></html>")
    with pytest.raises(RecordError, match="no RecordIO file"):
        inspect_set(tmp_path, tmp_path / "train.rec")


@pytest.mark.parametrize("numbers", [(1.0, 5.0), (3.0, 1.0), (float("nan"), 2.0)])
def test_identity_records_that_mix_people_are_mentioned(tmp_path: Path, numbers: tuple[float, float]) -> None:
    path = write_identity_set(tmp_path / "train.rec", [3, 1])
    found = open_record_set(path)
    found.file.close()
    with open(path, "r+b") as file:
        file.seek(int(found.scan.offsets[4]) + 8 + 24)
        file.write(struct.pack("<ff", *numbers))
    (note,) = inspect_set(tmp_path, path).notes
    assert "1 identity records (key 5)" in note


def test_a_property_file_that_says_something_else_is_mentioned(tmp_path: Path) -> None:
    path = write_plain_set(tmp_path / "train.rec", [0, 1])
    (tmp_path / "property").write_text("5,112,112")
    (note,) = inspect_set(tmp_path, path).notes
    assert "says 5 classes; the largest label makes 2" in note


def test_a_folder_of_people(tmp_path: Path) -> None:
    write_people(tmp_path, {"a": 2, "b": 1})
    (tmp_path / "b" / "torn.jpg").write_bytes(jpeg(0)[:-40])
    (tmp_path / "b" / "page.png").write_bytes(b"<html>")
    (tmp_path / "empty").mkdir()
    report = inspect_set(tmp_path, None, decode=True)
    assert (report.kind, report.images, report.counts) == ("folder of people", 5, {"a": 2, "b": 3})
    assert len(report.bad) == 2
    assert "empty" in report.notes[0]
    assert report.index == ""
    assert len(inspect_set(tmp_path, None).bad) == 1
