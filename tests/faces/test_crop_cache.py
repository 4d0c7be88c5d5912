import dataclasses
import os
import time

import numpy as np
import pytest

from ostinato.faces import crop_cache
from ostinato.faces.crop_cache import cache_key, open_crop_caches
from ostinato.faces.crop_file import file_bytes, file_identity
from ostinato.faces.sample import CropSettings, PreparedFace

SETTINGS = CropSettings(size=16, masks=("extended",))
FACES = [file_identity(f"face_{number}.png", 1, 1) for number in range(10)]
ROOMY = 10 * 2**20
FILE = file_bytes(16, 1, 10)


def _face(number):
    pixels = np.full((16, 16, 3), number, dtype=np.uint8)
    return PreparedFace(pixels, pixels[..., :1], None)


def _open(folder, *sides, settings=SETTINGS, limit=ROOMY):
    return open_crop_caches(folder, sides or [FACES], settings, limit_bytes=limit)


def _close(files):
    for file in files:
        if file is not None:
            file.close()


def _crops(folder):
    return sorted(path.name for path in folder.glob("*.crops"))


def _total(folder):
    return sum(path.stat().st_size for path in folder.glob("*.crops"))


def test_faces_are_found_again_by_the_next_run(tmp_path):
    (file,) = _open(tmp_path / "new" / "cache")
    file.write(3, FACES[3], _face(3))
    file.close()
    (file,) = _open(tmp_path / "new" / "cache")
    assert file.read(3, FACES[3]).image[0, 0, 0] == 3
    file.close()


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(CropSettings)])
def test_every_setting_has_its_own_cache(field):
    other = {
        "size": 17,
        "centering": "head",
        "coverage": 0.9,
        "vertical_offset": 0.1,
        "masks": ("eye",),
        "mask_dilation": 1.0,
        "mask_blur_kernel": 5,
        "mask_threshold": 5.0,
    }
    assert cache_key(FACES, dataclasses.replace(SETTINGS, **{field: other[field]})) != cache_key(FACES, SETTINGS)


@pytest.mark.parametrize("version", ["FORMAT_VERSION", "PREPARATION_VERSION"])
def test_every_version_has_its_own_cache(version, monkeypatch):
    before = cache_key(FACES, SETTINGS)
    monkeypatch.setattr(crop_cache, version, 99)
    assert cache_key(FACES, SETTINGS) != before


def test_names_that_are_no_unicode_have_a_cache():
    assert file_identity("a\udcff.png", 1, 1) != file_identity("a.png", 1, 1)


def test_folders_with_the_same_names_have_their_own_caches(tmp_path):
    # Frames of two films are often called alike.
    other = [file_identity(f"face_{number}.png", 2, 1) for number in range(10)]
    first, second = _open(tmp_path, FACES, other)
    first.write(0, FACES[0], _face(0))
    second.write(0, other[0], _face(1))
    assert first.read(0, FACES[0]).image[0, 0, 0] == 0
    assert second.read(0, other[0]).image[0, 0, 0] == 1
    _close([first, second])


def test_two_sides_of_one_list_share_a_file(tmp_path):
    first, second = _open(tmp_path, FACES, FACES)
    first.write(0, FACES[0], _face(0))
    assert second.read(0, FACES[0]) is not None
    assert len(_crops(tmp_path)) == 1
    _close([first, second])


def test_the_least_recently_used_file_makes_room(tmp_path):
    for coverage, age in ((0.7, 50), (0.8, 90), (0.9, 10)):
        _close(_open(tmp_path, settings=dataclasses.replace(SETTINGS, coverage=coverage)))
        key = cache_key(FACES, dataclasses.replace(SETTINGS, coverage=coverage))
        os.utime(tmp_path / (key.hex() + ".crops"), (time.time() - age, time.time() - age))
    before = set(_crops(tmp_path))
    _close(_open(tmp_path, settings=dataclasses.replace(SETTINGS, mask_dilation=1.0), limit=3 * FILE))
    removed = before - set(_crops(tmp_path))
    assert removed == {cache_key(FACES, dataclasses.replace(SETTINGS, coverage=0.8)).hex() + ".crops"}
    assert _total(tmp_path) <= 3 * FILE


def test_using_a_file_makes_it_the_last_to_go(tmp_path):
    old, new = SETTINGS, dataclasses.replace(SETTINGS, coverage=0.8)
    for settings, age in ((old, 100), (new, 50)):
        _close(_open(tmp_path, settings=settings))
        path = tmp_path / (cache_key(FACES, settings).hex() + ".crops")
        os.utime(path, (time.time() - age, time.time() - age))
    _close(_open(tmp_path, settings=old))
    _close(_open(tmp_path, settings=dataclasses.replace(SETTINGS, coverage=0.9), limit=2 * FILE))
    assert cache_key(FACES, old).hex() + ".crops" in _crops(tmp_path)


def test_a_file_in_use_is_never_removed(tmp_path):
    held = _open(tmp_path)
    other = _open(tmp_path, settings=dataclasses.replace(SETTINGS, coverage=0.8), limit=FILE)
    assert other == [None]
    assert len(_crops(tmp_path)) == 1
    _close(held)
    other = _open(tmp_path, settings=dataclasses.replace(SETTINGS, coverage=0.8), limit=FILE)
    assert other != [None]
    assert _total(tmp_path) <= FILE
    _close(other)


def test_sides_that_do_not_fit_keep_the_same_share(tmp_path, caplog):
    many = [file_identity(f"{number}.png", 1, 1) for number in range(400)]
    few = many[:100]
    limit = file_bytes(16, 1, 250)
    large, small = _open(tmp_path, many, few, limit=limit)
    assert 150 < large.capacity < 200
    assert abs(large.capacity / 4 - small.capacity) <= 1
    assert _total(tmp_path) <= limit
    assert "are kept" in caplog.text
    _close([large, small])


def test_a_cache_grows_when_it_may_be_larger(tmp_path):
    many = [file_identity(f"{number}.png", 1, 1) for number in range(400)]
    _close(_open(tmp_path, many, limit=file_bytes(16, 1, 250)))
    (file,) = _open(tmp_path, many)
    assert file.capacity == 400
    file.close()


def test_a_lowered_limit_is_kept(tmp_path):
    _close(_open(tmp_path))
    _close(_open(tmp_path, settings=dataclasses.replace(SETTINGS, coverage=0.8)))
    _close(_open(tmp_path, limit=FILE))
    assert _total(tmp_path) <= FILE
    assert _crops(tmp_path) == [cache_key(FACES, SETTINGS).hex() + ".crops"]


def test_no_room_at_all_means_no_cache(tmp_path):
    assert _open(tmp_path, limit=0) == [None]
    assert _crops(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"OSTCROPS" + b"\xff" * 5000])
def test_a_damaged_file_is_built_anew(tmp_path, content):
    (file,) = _open(tmp_path)
    file.close()
    file.path.write_bytes(content)
    (file,) = _open(tmp_path)
    assert file.read(0, FACES[0]) is None
    file.write(0, FACES[0], _face(0))
    assert file.read(0, FACES[0]) is not None
    file.close()


def test_a_folder_in_place_of_the_file_costs_the_cache_and_not_the_run(tmp_path, caplog):
    (tmp_path / (cache_key(FACES, SETTINGS).hex() + ".crops")).mkdir()
    assert _open(tmp_path) == [None]
    assert "goes on without it" in caplog.text


def test_a_file_in_place_of_the_folder_costs_the_cache_and_not_the_run(tmp_path, caplog):
    (tmp_path / "cache").write_text("a file")
    assert _open(tmp_path / "cache") == [None]
    assert "can be kept in" in caplog.text


def test_a_cache_on_a_read_only_mount_is_used(tmp_path, monkeypatch, caplog):
    (file,) = _open(tmp_path)
    file.write(1, FACES[1], _face(1))
    file.close()
    real_open = os.open

    def read_only_mount(path, flags, *rest):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(30, "Read-only file system")
        return real_open(path, flags, *rest)

    monkeypatch.setattr(os, "open", read_only_mount)
    monkeypatch.setattr(os, "utime", lambda *_: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
    (file,) = _open(tmp_path)
    assert file.read(1, FACES[1]) is not None
    file.close()
    assert caplog.text == ""
    assert _open(tmp_path, [*FACES, file_identity("new.png", 1, 1)]) == [None]
    assert "(it cannot be written). Training goes on without it" in caplog.text


def test_parts_that_a_killed_process_left_are_cleared_after_a_while(tmp_path):
    old, young = tmp_path / "a.crops.1-aa.part", tmp_path / "b.crops.2-bb.part"
    for part in (old, young):
        part.write_bytes(b"")
    os.utime(old, (1, 1))
    _close(_open(tmp_path))
    assert not old.exists()
    assert young.exists()


def test_without_locks_the_cache_works(tmp_path, monkeypatch):
    monkeypatch.setattr(crop_cache, "fcntl", None)
    (file,) = _open(tmp_path)
    file.write(0, FACES[0], _face(0))
    assert file.read(0, FACES[0]) is not None
    file.close()
