from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from record_sets import jpeg, picture, write_identity_set, write_people, write_plain_set

from ostinato.data.pictures import decode_rgb, encode_png
from ostinato.data.recordio import RecordFile, unpack_image_record
from ostinato.errors import ArgumentValueError, DataSetError
from ostinato.recognition.data import open_source
from ostinato.recognition.data.image_folder import FolderIdentity, FolderSet, scan_identities
from ostinato.recognition.data.packing import PackOptions, pack_folder, shuffle_records, unpack_records
from ostinato.recognition.data.record_set import SetProperty, open_record_set, read_property

_KEEP = PackOptions(image_size=None)


def _records(path: Path) -> dict[int, tuple[object, int, bytes]]:
    found = open_record_set(path)
    with closing(found.file):
        return {
            int(key): (record.labels, record.id, record.image)
            for key, offset in zip(found.keys, found.scan.offsets, strict=True)
            for record in [unpack_image_record(found.file.read(int(offset)))]
        }


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def people(tmp_path: Path) -> Path:
    return write_people(tmp_path / "people", {"b": 1, "a": 3, "c": 2})


def test_a_packed_folder_is_an_identity_set(people: Path, tmp_path: Path) -> None:
    packed = pack_folder(scan_identities(people), tmp_path / "train.rec", _KEEP)
    assert (packed.images, packed.identities, packed.unchanged) == (6, 3, 6)
    records = _records(tmp_path / "train.rec")
    files = ["a/000", "a/001", "a/002", "b/000", "c/000", "c/001"]
    for key, (name, label) in enumerate(zip(files, [0, 0, 0, 1, 2, 2], strict=True), 1):
        assert records[key] == (float(label), key, (people / f"{name}.jpg").read_bytes())
    assert [records[key] for key in (7, 8, 9)] == [((1, 4), 7, b""), ((4, 5), 8, b""), ((5, 7), 9, b"")]
    assert records[0] == ((7, 10), 0, b"")
    assert (tmp_path / "train.idx").read_text().splitlines()[-1].startswith("0\t")
    assert read_property(tmp_path) == SetProperty(3, 16, 16)
    assert packed.bytes == (tmp_path / "train.rec").stat().st_size


def test_a_packed_folder_trains_like_the_folder(people: Path, tmp_path: Path) -> None:
    pack_folder(scan_identities(people), tmp_path / "train.rec", _KEEP)
    folder, records = open_source(people), open_source(tmp_path)
    assert folder.labels.tolist() == records.labels.tolist()
    assert folder.classes == records.classes
    assert all(np.array_equal(folder.read(index)[0], records.read(index)[0]) for index in range(6))
    records.close()


def test_packing_twice_gives_the_same_bytes(people: Path, tmp_path: Path) -> None:
    digests = []
    for name in ("one.rec", "two.rec"):
        pack_folder(scan_identities(people), tmp_path / name, overwrite=True)
        digests.append(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert digests[0] == digests[1]


def test_pictures_of_another_size_are_resized_and_others_stay(tmp_path: Path) -> None:
    people = write_people(tmp_path / "people", {"a": 2}, size=16)
    (people / "a" / "large.jpg").write_bytes(jpeg(9, 20))
    packed = pack_folder(scan_identities(people), tmp_path / "train.rec", PackOptions(image_size=16))
    assert packed.unchanged == 2
    assert [decode_rgb(record[2]).shape for key, record in _records(tmp_path / "train.rec").items() if record[2]] == [
        (16, 16, 3)
    ] * 3


def test_other_formats_become_jpeg_or_png(tmp_path: Path) -> None:
    people = write_people(tmp_path / "people", {"a": 1}, ending="png")
    (people / "a" / "grey.pgm").write_bytes(b"P5 16 16 255\n" + picture(1)[:, :, 0].tobytes())
    pack_folder(scan_identities(people), tmp_path / "jpeg.rec", _KEEP)
    as_jpeg = _records(tmp_path / "jpeg.rec")
    assert all(as_jpeg[key][2].startswith(b"\xff\xd8") for key in (1, 2))
    assert np.abs(decode_rgb(as_jpeg[1][2]).astype(int) - picture(0)).mean() < 8
    packed = pack_folder(scan_identities(people), tmp_path / "p.rec", PackOptions(None, "png"), overwrite=True)
    as_png = _records(tmp_path / "p.rec")
    assert packed.unchanged == 1
    assert as_png[1][2] == encode_png(picture(0))
    assert np.array_equal(decode_rgb(as_png[2][2])[:, :, 2], picture(1)[:, :, 0])


def test_a_damaged_picture_does_not_get_into_the_set_and_its_identity_keeps_its_class(
    people: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (people / "b" / "000.jpg").write_bytes(jpeg(0)[:-30])
    packed = pack_folder(scan_identities(people), tmp_path / "train.rec", _KEEP)
    assert packed.images == 5
    assert packed.without_images == ("b",)
    assert "000.jpg cannot be used: it is cut off" in packed.skipped[0].what
    assert caplog.text.count("Skipped") == 1
    records = _records(tmp_path / "train.rec")
    assert [records[key][0] for key in (6, 7, 8, 0)] == [(1, 4), (4, 4), (4, 6), (6, 9)]
    source = open_source(tmp_path)
    assert source.labels.tolist() == [0, 0, 0, 2, 2]
    assert source.classes == 3
    source.close()


def test_too_many_damaged_pictures_leave_nothing_behind(people: Path, tmp_path: Path) -> None:
    for name in ("a/000.jpg", "c/001.jpg"):
        (people / name).write_bytes(b"")
    with pytest.raises(DataSetError, match="2 pictures cannot be used, and at most 1 are skipped"):
        pack_folder(scan_identities(people), tmp_path / "train.rec", max_bad_records=1)
    assert _names(tmp_path) == ["people"]


def test_a_folder_in_which_nothing_can_be_used_leaves_nothing_behind(tmp_path: Path) -> None:
    people = write_people(tmp_path / "people", {"a": 1})
    (people / "a" / "000.jpg").write_bytes(b"?")
    with pytest.raises(DataSetError, match="None of the 1 pictures"):
        pack_folder(scan_identities(people), tmp_path / "train.rec", _KEEP)
    assert _names(tmp_path) == ["people"]


def test_a_plain_set_has_pictures_alone(people: Path, tmp_path: Path) -> None:
    pack_folder(scan_identities(people), tmp_path / "train.rec", PackOptions(None, plain=True))
    found = open_record_set(tmp_path / "train.rec")
    assert found.header is None
    assert found.keys.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.labels.tolist() == [0, 0, 0, 1, 2, 2]
    found.file.close()


def test_more_than_single_precision_can_count_is_refused_with_the_reason(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.recognition.data.packing.FLOAT_LIMIT", 9)
    with pytest.raises(DataSetError, match=r"6 pictures of 3 identities.*single-precision.*--plain"):
        pack_folder(scan_identities(people), tmp_path / "train.rec", _KEEP)
    pack_folder(scan_identities(people), tmp_path / "train.rec", PackOptions(None, plain=True))
    many = FolderSet(people, tuple(FolderIdentity(str(number), ("x.jpg",)) for number in range(10)))
    with pytest.raises(DataSetError, match=r"10 identities.*train from the folder"):
        pack_folder(many, tmp_path / "other.rec", PackOptions(None, plain=True), overwrite=True)


@pytest.mark.parametrize("there", ["train.rec", "train.idx", "property"])
def test_nothing_is_replaced_unasked(people: Path, tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("precious")
    with pytest.raises(DataSetError, match=there):
        pack_folder(scan_identities(people), tmp_path / "train.rec", _KEEP)
    assert (tmp_path / there).read_text() == "precious"
    pack_folder(scan_identities(people), tmp_path / "train.rec", _KEEP, overwrite=True)
    assert len(_records(tmp_path / "train.rec")) == 10


@pytest.mark.parametrize(("name", "text"), [("train", r"does not end with \.rec"), ("no/train.rec", "no folder")])
def test_a_name_that_cannot_be_written_is_refused(people: Path, tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(DataSetError, match=text):
        pack_folder(scan_identities(people), tmp_path / name)


@pytest.mark.parametrize("options", [{"quality": 0}, {"image_size": 8}])
def test_wrong_options_are_named(options: dict[str, int]) -> None:
    with pytest.raises(ArgumentValueError, match=next(iter(options))):
        PackOptions(**options)


# --- shuffling -----------------------------------------------------------------------------------------------------


def test_a_shuffled_set_has_the_same_pictures_in_another_order_with_one_label_each(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    before = _records(write_identity_set(tmp_path / "train.rec", [4, 3, 5]))
    (tmp_path / "property").write_text("3,16,16\n")
    shuffle_records(tmp_path / "train.rec", tmp_path / "out" / "train.rec", seed=3)
    after = _records(tmp_path / "out" / "train.rec")
    assert list(after) == list(range(12))
    assert sorted(id for _, id, _ in after.values()) == list(range(1, 13))
    assert [id for _, id, _ in after.values()] != list(range(1, 13))
    for labels, id, image in after.values():
        assert (labels, image) == (before[id][0][0], before[id][2])
    assert read_property(tmp_path / "out") == SetProperty(3, 16, 16)


def test_the_seed_decides_the_order(tmp_path: Path) -> None:
    write_plain_set(tmp_path / "train.rec", range(10))
    orders = []
    for seed in (1, 1, 2):
        shuffle_records(tmp_path / "train.rec", tmp_path / "out.rec", seed=seed, overwrite=True)
        orders.append([labels for labels, _, _ in _records(tmp_path / "out.rec").values()])
    assert orders[0] == orders[1] != orders[2]


def test_damaged_records_are_left_out_up_to_a_bound(tmp_path: Path) -> None:
    path = write_plain_set(tmp_path / "train.rec", range(6))
    found = open_record_set(path)
    found.file.close()
    with open(path, "r+b") as file:
        file.seek(int(found.scan.offsets[2]))
        file.write(b"XXXX")
    packed = shuffle_records(path, tmp_path / "out.rec")
    assert packed.images == 5
    assert packed.skipped[0].fields["key"] == 2
    with pytest.raises(DataSetError, match="at most 0 are skipped"):
        shuffle_records(path, tmp_path / "more.rec", max_bad_records=0)


def test_a_set_is_not_shuffled_onto_itself(tmp_path: Path) -> None:
    path = write_plain_set(tmp_path / "train.rec", range(6))
    before = path.read_bytes()
    with pytest.raises(DataSetError, match="is the set itself"):
        shuffle_records(path, path, overwrite=True)
    assert path.read_bytes() == before


# --- unpacking -----------------------------------------------------------------------------------------------------


def test_an_unpacked_set_is_a_folder_of_people_with_the_same_bytes_and_classes(tmp_path: Path) -> None:
    counts = [1] * 9 + [2, 3]
    path = write_identity_set(tmp_path / "train.rec", counts)
    packed = unpack_records(path, tmp_path / "out")
    assert (packed.images, packed.identities) == (14, 11)
    assert _names(tmp_path / "out") == [f"id_{label:02d}" for label in range(11)]
    assert _names(tmp_path / "out" / "id_10") == ["10_0.jpg", "10_1.jpg", "10_2.jpg"]
    records, folder = open_source(path), open_source(tmp_path / "out")
    assert folder.labels.tolist() == records.labels.tolist()
    assert (tmp_path / "out" / "id_09" / "09_1.jpg").read_bytes() == _records(path)[11][2]
    records.close()


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = write_plain_set(tmp_path / "train.rec", [0])
    (tmp_path / "out").mkdir()
    with pytest.raises(DataSetError, match="there already"):
        unpack_records(path, tmp_path / "out")
    assert _names(tmp_path) == ["out", "train.idx", "train.rec"]


def test_an_unpacking_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    path = write_plain_set(tmp_path / "train.rec", [0, 1])
    found = open_record_set(path)
    found.file.close()
    with open(path, "r+b") as file:
        file.seek(int(found.scan.offsets[1]) + 8 + 24)
        file.write(b"no picture")
    with pytest.raises(DataSetError, match="at most 0"):
        unpack_records(path, tmp_path / "out", max_bad_records=0)
    assert _names(tmp_path) == ["train.idx", "train.rec"]
    assert unpack_records(path, tmp_path / "out").images == 1


def test_progress_is_told(people: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    pack_folder(scan_identities(people), tmp_path / "a.rec", progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 6) for done in range(1, 7)]
    told.clear()
    shuffle_records(tmp_path / "a.rec", tmp_path / "b.rec", progress=lambda done, total: told.append((done, total)))
    unpack_records(tmp_path / "a.rec", tmp_path / "c", progress=lambda done, total: told.append((done, total)))
    assert told[5] == told[-1] == (6, 6)
    assert RecordFile(tmp_path / "b.rec").path.exists()
