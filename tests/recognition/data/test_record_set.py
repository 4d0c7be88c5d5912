from __future__ import annotations

import logging
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_sets import jpeg, picture, write_identity_set, write_plain_set

from ostinato.data.recordio import RecordFile, RecordWriter, pack_image_record
from ostinato.errors import ArgumentValueError, DataSetError, RecordError
from ostinato.recognition.data import open_source
from ostinato.recognition.data.record_scan import FLOAT_LIMIT, scan_records
from ostinato.recognition.data.record_set import RecordSet, SetProperty, open_record_set, read_property


def _open(path: Path, *, use_index: bool = True) -> RecordSet:
    found = open_record_set(path, use_index=use_index)
    found.file.close()
    return found


def _change(path: Path, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def test_an_identity_set_is_its_pictures_with_their_labels(tmp_path: Path) -> None:
    source = open_source(write_identity_set(tmp_path / "train.rec", [3, 1, 2]))
    assert source.labels.tolist() == [0, 0, 0, 1, 2, 2]
    assert source.classes == 3
    for index in range(6):
        image, label = source.read(index)
        assert np.abs(image.astype(int) - picture(index + 1)).max() < 40
        assert label == source.labels[index]
    source.close()


def test_a_folder_with_train_rec_is_its_record_file(tmp_path: Path) -> None:
    write_plain_set(tmp_path / "train.rec", [4, 0, 4])
    source = open_source(tmp_path)
    assert source.labels.tolist() == [4, 0, 4]
    assert source.classes == 5
    assert source.place(1).startswith(f"{tmp_path / 'train.rec'} (key 1, byte ")
    source.close()


def test_an_ordinary_set_gives_no_notes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        open_source(write_identity_set(tmp_path / "train.rec", [3, 1, 2])).close()
    assert caplog.text == ""


# --- the index -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [[3, 1, 2], [1], [5, 5]])
def test_a_missing_index_is_rebuilt_and_said(
    tmp_path: Path, counts: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    path = write_identity_set(tmp_path / "train.rec", counts)
    with_index = _open(path)
    (tmp_path / "train.idx").unlink()
    without = _open(path)
    assert without.keys.tolist() == with_index.keys.tolist()
    assert without.header == with_index.header
    assert "There is no index" in without.notes[0]
    open_source(path).close()
    assert "There is no index" in caplog.text


def test_keys_of_a_plain_set_count_from_zero_though_a_shuffling_tool_kept_the_old_ids(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "train.rec") as writer:
        for key, old in enumerate([3, 0, 5, 1]):
            writer.write(key, pack_image_record(key, jpeg(key), id=old))
    assert _open(tmp_path / "train.rec", use_index=False).keys.tolist() == [0, 1, 2, 3]


def test_keys_that_begin_at_one_and_have_gaps_are_taken_from_the_ids(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "train.rec") as writer:
        for key in (1, 2, 5, 9):
            writer.write(key, pack_image_record(0, jpeg(key), id=key))
    assert _open(tmp_path / "train.rec", use_index=False).keys.tolist() == [1, 2, 5, 9]
    assert _open(tmp_path / "train.rec").header is None


def test_ids_of_an_identity_set_that_count_from_zero_are_not_taken_for_keys(tmp_path: Path) -> None:
    path = tmp_path / "train.rec"
    with RecordWriter(path) as writer:
        for key in (1, 2):
            writer.write(key, pack_image_record(0, jpeg(key), id=key - 1))
        writer.write(3, pack_image_record((1, 3), b"", id=2))
        writer.write(0, pack_image_record((3, 4), b"", id=3))
    found = _open(path, use_index=False)
    assert found.keys.tolist() == [1, 2, 3, 0]
    assert found.header == (3, 4)


def test_an_id_that_is_no_key_is_replaced_by_what_fits_between_its_neighbours(tmp_path: Path) -> None:
    path = tmp_path / "train.rec"
    with RecordWriter(path) as writer:
        for key in range(6):
            writer.write(key, pack_image_record(0, jpeg(key), id=2**60 if key == 3 else key))
    assert _open(path, use_index=False).keys.tolist() == [0, 1, 2, 3, 4, 5]


_WRONG_INDEXES = {
    "of another set": lambda index: "".join(f"{n}\t{n * 12}\n" for n in range(5)).encode(),
    "shifted": lambda index: b"".join(
        b"%d\t%d\n" % (int(key), int(offset) + 4) for key, offset in (line.split() for line in index.splitlines())
    ),
    "last line cut": lambda index: index[:-4],
    "a key twice": lambda index: index + index.splitlines(keepends=True)[0],
    "empty": lambda index: b"",
    "text": lambda index: b"<!DOCTYPE html>\n",
}


@pytest.mark.parametrize("fault", _WRONG_INDEXES)
def test_a_wrong_index_is_named_as_the_culprit_with_the_way_out(tmp_path: Path, fault: str) -> None:
    path = write_identity_set(tmp_path / "train.rec", [3, 1, 2])
    index = tmp_path / "train.idx"
    right = index.read_bytes()
    index.write_bytes(_WRONG_INDEXES[fault](right))
    with pytest.raises(RecordError, match=r"train\.idx: the index does not fit train\.rec") as caught:
        open_source(path)
    assert "--write-index" in str(caught.value)


def test_line_ends_and_a_mark_of_other_systems_do_not_keep_from_training(tmp_path: Path) -> None:
    path = write_identity_set(tmp_path / "train.rec", [3, 1])
    index = tmp_path / "train.idx"
    index.write_bytes(b"\xef\xbb\xbf" + index.read_bytes().replace(b"\n", b"\r\n"))
    found = _open(path)
    assert found.labels.tolist() == [0, 0, 0, 1]
    assert len(found.notes) == 2


def test_records_that_the_index_does_not_name_are_not_used_and_mentioned(tmp_path: Path) -> None:
    path = write_plain_set(tmp_path / "train.rec", [0, 1, 2])
    lines = (tmp_path / "train.idx").read_bytes().splitlines(keepends=True)
    (tmp_path / "train.idx").write_bytes(lines[0] + lines[2])
    found = _open(path)
    assert found.labels.tolist() == [0, 2]
    assert "does not name 1 of the 3 records" in found.notes[0]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(0, 30), st.data())
def test_a_scan_with_an_index_finds_what_a_scan_without_one_does(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], damaged: int, data: st.DataObject
) -> None:
    path = write_identity_set(tmp_path_factory.mktemp("scan") / "train.rec", counts)
    offsets = _open(path).index.offsets
    for _ in range(damaged // 10):
        _change(path, data.draw(st.integers(0, path.stat().st_size - 1)), bytes([data.draw(st.integers(0, 255))]))
    with RecordFile(path) as file:
        along, blind = scan_records(file, offsets=offsets), scan_records(file)
    for name in ("offsets", "lengths", "flags", "labels", "seconds", "ids", "has_image"):
        assert np.array_equal(getattr(along, name), getattr(blind, name), equal_nan=name in ("labels", "seconds"))
    assert along.damage == blind.damage


def test_small_blocks_do_not_change_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_identity_set(tmp_path / "train.rec", [3, 1, 2])
    whole = _open(path)
    monkeypatch.setattr("ostinato.recognition.data.record_scan._BLOCK", 100)
    small = _open(path)
    assert small.labels.tolist() == whole.labels.tolist()
    assert small.keys.tolist() == whole.keys.tolist()
    assert small.header == whole.header


# --- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use_index", [True, False])
def test_a_damaged_record_is_reported_with_key_and_byte_and_skipped(
    tmp_path: Path, use_index: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_identity_set(tmp_path / "train.rec", [3, 2])
    offset = int(_open(path).index.offsets[1])
    _change(path, offset, b"XXXX")
    if not use_index:
        (tmp_path / "train.idx").unlink()
    source = open_source(path)
    assert source.labels.tolist() == [0, 0, 1, 1]
    assert len(source.bad) == 1
    (error,) = source.bad.errors
    assert (error.fields["key"], error.fields["offset"]) == (2 if use_index else None, offset)
    assert f"byte {offset:,}" in caplog.text
    assert [source.read(index)[1] for index in range(4)] == [0, 0, 1, 1]
    source.close()


def test_records_lost_in_a_larger_damage_are_all_named(tmp_path: Path) -> None:
    path = write_plain_set(tmp_path / "train.rec", [0, 1, 2, 3, 4])
    offsets = _open(path).index.offsets
    _change(path, int(offsets[1]), bytes(int(offsets[3] - offsets[1])))
    found = _open(path)
    assert found.labels.tolist() == [0, 3, 4]
    assert [error.fields["key"] for error in found.bad] == [1, 2]
    assert "lost in the damage" in found.bad[1].what


def test_a_file_that_was_cut_off_gives_what_is_left(tmp_path: Path) -> None:
    path = write_plain_set(tmp_path / "train.rec", [0, 1, 2])
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 5)
    (tmp_path / "train.idx").unlink()
    found = _open(path)
    assert found.labels.tolist() == [0, 1]
    assert "cut off" in found.bad[0].what


def test_a_file_that_ends_before_its_index_does_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    path = write_plain_set(tmp_path / "train.rec", [0, 1, 2])
    last = int((tmp_path / "train.idx").read_text().splitlines()[-1].split()[1])
    with open(path, "r+b") as file:
        file.truncate(last)
    with pytest.raises(RecordError, match=rf"it ends at byte {last:,}, and its index says that key 2 ") as caught:
        open_source(path)
    assert "copy or download it again" in str(caught.value)


def test_a_picture_that_cannot_be_decoded_is_an_error_with_key_and_byte(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "train.rec") as writer:
        writer.write(0, pack_image_record(0, jpeg(0), id=0))
        offset = writer.write(1, pack_image_record(0, jpeg(1)[:-50], id=1))
    source = open_source(tmp_path)
    with pytest.raises(RecordError, match=f"key 1, byte {offset}.*the picture cannot be used: it is cut off") as caught:
        source.read(1)
    assert (caught.value.fields["key"], caught.value.fields["offset"]) == (1, offset)
    source.close()


def test_more_damage_than_allowed_is_refused_when_the_set_is_opened(tmp_path: Path) -> None:
    path = write_plain_set(tmp_path / "train.rec", [0, 1, 2, 3])
    for offset in _open(path).index.offsets[1:3]:
        _change(path, int(offset), b"XXXX")
    open_source(path, max_bad_records=2).close()
    with pytest.raises(DataSetError, match="2 pictures cannot be used, and at most 1 are skipped"):
        open_source(path, max_bad_records=1)


@pytest.mark.parametrize("label", [-1.0, float("nan"), float("inf"), 2.0**25])
def test_labels_that_are_no_classes_are_refused(tmp_path: Path, label: float) -> None:
    found = _open(write_plain_set(tmp_path / "train.rec", [0, label, 2]))
    assert found.labels.tolist() == [0, 2]
    assert "a label is a number from 0 to 16,777,216" in found.bad[0].what
    assert found.bad[0].fields["key"] == 1


def test_a_record_that_is_no_picture_record_is_named(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "train.rec") as writer:
        writer.write(0, pack_image_record(0, jpeg(0), id=0))
        writer.write(1, b"short")
        writer.write(2, struct.pack("<IfQQ", 50, 0, 0, 0) + bytes(20))
    found = _open(tmp_path / "train.rec")
    assert [error.fields["key"] for error in found.bad] == [1, 2]
    assert found.labels.tolist() == [0]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "it is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "no RecordIO file.*Git LFS"),
        (b"\x00" * 5000, "no RecordIO file"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "train.rec").write_bytes(content)
    with pytest.raises(RecordError, match=text):
        open_source(tmp_path)


def test_a_set_without_pictures_is_refused(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "train.rec") as writer:
        writer.write(0, pack_image_record((1, 2), b"", id=0))
    with pytest.raises(RecordError, match="none of its 1 records holds a picture"):
        open_source(tmp_path)


# --- numbers that are not exact ------------------------------------------------------------------------------------


def test_inexact_numbers_of_record_0_and_of_identities_are_not_relied_on(tmp_path: Path) -> None:
    path = tmp_path / "train.rec"
    first = FLOAT_LIMIT + 1  # of which a single-precision number makes FLOAT_LIMIT
    with RecordWriter(path) as writer:
        for number, label in enumerate([0, 0, 1]):
            writer.write(first + number, pack_image_record(label, jpeg(number), id=first + number))
        writer.write(first + 3, pack_image_record((first, first + 2), b"", id=first + 3))
        writer.write(first + 4, pack_image_record((first + 2, first + 3), b"", id=first + 4))
        writer.write(0, pack_image_record((first + 3, first + 5), b"", id=0))
    found = _open(path)
    assert found.labels.tolist() == [0, 0, 1]
    assert "above 16,777,216 such numbers are not exact" in found.notes[0]


def test_a_record_0_that_counts_wrong_is_mentioned(tmp_path: Path) -> None:
    path = write_identity_set(tmp_path / "train.rec", [3, 2])
    offset = int(_open(path).index.offsets[-1])
    _change(path, offset + 8 + 24, struct.pack("<ff", 5, 8))
    assert "says 4 pictures and 3 identities; there are 5 and 2" in _open(path).notes[0]


# --- options -------------------------------------------------------------------------------------------------------


def test_small_identities_can_be_left_out_and_classes_are_counted_anew(tmp_path: Path) -> None:
    source = open_source(write_identity_set(tmp_path / "train.rec", [3, 1, 2]), min_images=2)
    assert source.labels.tolist() == [0, 0, 0, 1, 1]
    assert source.classes == 2
    assert [source.read(index)[1] for index in range(5)] == [0, 0, 0, 1, 1]
    source.close()
    with pytest.raises(RecordError, match="no identity has 4 pictures; the largest has 3"):
        open_source(tmp_path, min_images=4)
    with pytest.raises(ArgumentValueError, match="min_images is 0"):
        open_source(tmp_path, min_images=0)


def test_labels_with_large_gaps_are_mentioned(tmp_path: Path) -> None:
    (note,) = _open(write_plain_set(tmp_path / "train.rec", [0, 3, 90_000])).notes
    assert "go up to 90,000, and only 3 of these classes have pictures" in note
    assert _open(write_plain_set(tmp_path / "train.rec", [0, 3, 5])).notes == ()


def test_a_property_file_may_name_more_classes_than_have_pictures(tmp_path: Path) -> None:
    write_plain_set(tmp_path / "train.rec", [0, 1])
    (tmp_path / "property").write_text("7,112,112\n")
    assert read_property(tmp_path) == SetProperty(7, 112, 112)
    source = open_source(tmp_path)
    assert source.classes == 7
    source.close()


def test_a_property_file_that_makes_no_sense_is_mentioned(tmp_path: Path) -> None:
    path = write_plain_set(tmp_path / "train.rec", [0, 1])
    (tmp_path / "property").write_text("seven classes\n")
    assert "'seven classes'" in _open(path).notes[0]


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[int] = []
    open_source(write_plain_set(tmp_path / "train.rec", [0, 1, 2]), progress=told.append).close()
    assert told[-1] == 3
