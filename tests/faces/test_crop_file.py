import os
import zlib

import numpy as np
import pytest

from ostinato.faces import crop_file
from ostinato.faces.crop_file import create_crop_file, file_bytes, file_identity, open_crop_file, record_bytes
from ostinato.faces.sample import PreparedFace

KEY = bytes(range(16))
SIZE, MASKS, CAPACITY = 16, 2, 5
SHAPE = {"size": SIZE, "masks": MASKS}


def _face(number, landmarks=True):
    random = np.random.default_rng(number)
    return PreparedFace(
        image=random.integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8),
        masks=random.integers(0, 256, (SIZE, SIZE, MASKS)).astype(np.uint8),
        landmarks=random.normal(size=(68, 2)).astype(np.float32) if landmarks else None,
    )


def _identity(number):
    return file_identity(f"{number}.png", 100, 5)


def _assert_equal(found, face):
    assert found is not None
    np.testing.assert_array_equal(found.image, face.image)
    np.testing.assert_array_equal(found.masks, face.masks)
    if face.landmarks is None:
        assert found.landmarks is None
    else:
        np.testing.assert_array_equal(found.landmarks, face.landmarks)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "faces.crops"
    create_crop_file(path, **SHAPE, capacity=CAPACITY, key=KEY)
    return path


@pytest.fixture
def file(path):
    file = open_crop_file(path, **SHAPE, key=KEY)
    yield file
    file.close()


def _record_start(slot):
    return crop_file._first_record(CAPACITY) + slot * record_bytes(SIZE, MASKS)


def _entry_start(slot):
    return 4096 + 32 * slot


def _overwrite(path, offset, data):
    with open(path, "r+b") as raw:
        raw.seek(offset)
        raw.write(data)


def test_a_new_file_holds_nothing(file):
    assert all(file.read(slot, _identity(slot)) is None for slot in range(CAPACITY))


def test_what_is_written_can_be_read_at_once_and_later(path, file):
    faces = [_face(number, landmarks=number != 2) for number in range(CAPACITY)]
    for slot, face in enumerate(faces):
        file.write(slot, _identity(slot), face)
    again = open_crop_file(path, **SHAPE, key=KEY)
    for reader in (file, again):
        for slot, face in enumerate(faces):
            _assert_equal(reader.read(slot, _identity(slot)), face)
    again.close()


def test_another_process_s_faces_are_seen_while_the_file_is_open(path, file):
    assert file.read(0, _identity(0)) is None
    other = open_crop_file(path, **SHAPE, key=KEY)
    other.write(0, _identity(0), _face(0))
    other.close()
    _assert_equal(file.read(0, _identity(0)), _face(0))


def test_a_face_of_a_changed_source_is_not_used_and_can_be_replaced(path, file):
    file.write(0, _identity(0), _face(0))
    _assert_equal(file.read(0, _identity(0)), _face(0))
    changed = file_identity("0.png", 100, 6)
    assert file.read(0, changed) is None
    file.write(0, changed, _face(1))
    _assert_equal(file.read(0, changed), _face(1))
    assert file.read(0, _identity(0)) is None


@pytest.mark.parametrize("place", [0, SIZE * SIZE * 3 + 7, SIZE * SIZE * 5 + 100])
def test_a_flipped_bit_in_a_record_is_found(path, file, place):
    file.write(1, _identity(1), _face(1))
    start = _record_start(1) + place
    _overwrite(path, start, bytes([path.read_bytes()[start] ^ 4]))
    assert file.read(1, _identity(1)) is None


@pytest.mark.parametrize("place", range(28))
def test_a_flipped_bit_in_an_entry_is_found(path, file, place):
    file.write(1, _identity(1), _face(1))
    start = _entry_start(1) + place
    _overwrite(path, start, bytes([path.read_bytes()[start] ^ 4]))
    assert file.read(1, _identity(1)) is None


def test_a_record_that_was_written_without_its_entry_is_not_used(path, file, monkeypatch):
    # As when the process dies between the two.
    writes = []

    def dies(descriptor, data, offset):
        if writes and writes[-1] >= _record_start(0):
            raise KeyboardInterrupt
        writes.append(offset)
        os.pwrite(descriptor, data, offset)

    monkeypatch.setattr(crop_file, "_write_all", dies)
    with pytest.raises(KeyboardInterrupt):
        file.write(0, _identity(0), _face(0))
    assert file.read(0, _identity(0)) is None


def test_replacing_a_record_takes_the_old_entry_away_first(path, file, monkeypatch):
    file.write(0, _identity(0), _face(0))

    def dies(descriptor, data, offset):
        os.pwrite(descriptor, data, offset)
        if offset >= _record_start(0):
            raise KeyboardInterrupt

    monkeypatch.setattr(crop_file, "_write_all", dies)
    with pytest.raises(KeyboardInterrupt):
        file.write(0, file_identity("0.png", 1, 1), _face(1))
    assert file.read(0, _identity(0)) is None


def test_an_entry_whose_record_never_reached_the_disk_is_not_used(path, file):
    file.write(0, _identity(0), _face(0))
    _overwrite(path, _record_start(0), bytes(record_bytes(SIZE, MASKS)))
    assert file.read(0, _identity(0)) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"something else" * 1000),
        lambda path: os.truncate(path, file_bytes(SIZE, MASKS, CAPACITY) - 1),
        lambda path: os.truncate(path, 30),
        lambda path: _overwrite(path, 26, b"\x01"),
        lambda path: path.unlink(),
    ],
)
def test_a_damaged_file_is_not_opened(path, damage):
    damage(path)
    assert open_crop_file(path, **SHAPE, key=KEY) is None


@pytest.mark.parametrize("other", [{"size": 17}, {"masks": 1}, {"key": bytes(16)}])
def test_a_file_of_another_kind_is_not_opened(path, other):
    assert open_crop_file(path, **{**SHAPE, "key": KEY, **other}) is None


def test_a_file_that_is_cut_short_while_it_is_open_ends_its_use_and_not_the_process(path, file, caplog):
    file.write(4, _identity(4), _face(4))
    os.truncate(path, 4096)
    assert file.read(4, _identity(4)) is None
    assert file.read(4, _identity(4)) is None
    assert caplog.text.count("cut short") == 1


def test_a_file_that_cannot_be_written_is_only_read(path, file, monkeypatch, caplog):
    file.write(0, _identity(0), _face(0))
    file.close()
    real_open = os.open

    def read_only_mount(name, flags, *rest):
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(30, "Read-only file system")
        return real_open(name, flags, *rest)

    monkeypatch.setattr(os, "open", read_only_mount)
    reader = open_crop_file(path, **SHAPE, key=KEY)
    for slot in (1, 2):
        reader.write(slot, _identity(slot), _face(slot))
        assert reader.read(slot, _identity(slot)) is None
    _assert_equal(reader.read(0, _identity(0)), _face(0))
    reader.close()
    assert caplog.text.count("Read-only file system") == 1


def test_a_full_disk_ends_the_writing_and_nothing_else(file, monkeypatch, caplog):
    file.write(0, _identity(0), _face(0))
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: len(data) // 2)
    file.write(1, _identity(1), _face(1))
    monkeypatch.undo()
    file.write(2, _identity(2), _face(2))
    assert file.read(1, _identity(1)) is None
    assert file.read(2, _identity(2)) is None
    _assert_equal(file.read(0, _identity(0)), _face(0))
    assert caplog.text.count("disk is full") == 1


def test_without_a_mapping_the_file_is_read_all_the_same(path, monkeypatch):
    def refuses(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(crop_file.mmap, "mmap", refuses)
    file = open_crop_file(path, **SHAPE, key=KEY)
    file.write(3, _identity(3), _face(3))
    _assert_equal(file.read(3, _identity(3)), _face(3))
    file.close()


def test_a_face_read_before_closing_stays_readable(file):
    file.write(0, _identity(0), _face(0))
    found = file.read(0, _identity(0))
    file.close()
    _assert_equal(found, _face(0))
    assert file.read(0, _identity(0)) is None


def test_the_mapping_cannot_be_written(file):
    file.write(0, _identity(0), _face(0))
    with pytest.raises(ValueError, match="read-only"):
        file.read(0, _identity(0)).image[0, 0] = 1


def test_a_face_beyond_the_capacity_is_neither_kept_nor_found(path, file):
    before = path.read_bytes()
    file.write(CAPACITY, _identity(9), _face(9))
    assert path.read_bytes() == before
    assert file.read(CAPACITY, _identity(9)) is None


def test_creating_leaves_no_other_file_behind(tmp_path, path, monkeypatch):
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(1, "no")))
    with pytest.raises(OSError, match="no"):
        create_crop_file(tmp_path / "other.crops", **SHAPE, capacity=1, key=KEY)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_identity_follows_name_size_time_and_content():
    facts = [("a.png", 1, 2, 3), ("b.png", 1, 2, 3), ("a.png", 2, 2, 3), ("a.png", 1, 3, 3), ("a.png", 1, 2, 4)]
    assert len({file_identity(*fact) for fact in facts}) == 5
    assert file_identity(*facts[0]) == file_identity(*facts[0])


def test_the_layout_is_the_documented_one(path, file):
    face = _face(2)
    file.write(2, _identity(2), face)
    data = path.read_bytes()
    assert data[:8] == b"OSTCROPS"
    assert len(data) == file_bytes(SIZE, MASKS, CAPACITY)
    record = data[_record_start(2) : _record_start(3)]
    pixels = face.image.tobytes() + face.masks.transpose(2, 0, 1).tobytes() + face.landmarks.tobytes()
    assert record.startswith(pixels)
    entry = data[_entry_start(2) : _entry_start(3)]
    assert entry[:16] == _identity(2)
    assert int.from_bytes(entry[16:20], "little") == zlib.crc32(record)
