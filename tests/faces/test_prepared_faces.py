import os

import numpy as np
import pytest

from ostinato.errors import FaceFileError
from ostinato.faces import prepared_faces
from ostinato.faces.crop_cache import open_crop_caches
from ostinato.faces.face_files import write_face
from ostinato.faces.prepared_faces import PreparedFaces
from ostinato.faces.sample import CropSettings, prepare_face
from ostinato.faces.scan import scan_folder

SETTINGS = CropSettings(size=32, masks=("extended", "eye"))


@pytest.fixture
def folder(tmp_path, write_sample, picture):
    folder = tmp_path / "faces"
    folder.mkdir()
    for number in range(3):
        write_sample(folder / f"face_{number}.png", np.roll(picture, number * 7, axis=1))
    return folder


@pytest.fixture
def calls(monkeypatch):
    calls = []

    def counted(path, settings):
        calls.append(path.name)
        return prepare_face(path, settings)

    monkeypatch.setattr(prepared_faces, "prepare_face", counted)
    return calls


@pytest.fixture(params=["scan", "paths"])
def faces(request, folder):
    return PreparedFaces(scan_folder(folder) if request.param == "scan" else sorted(folder.iterdir()), SETTINGS)


def _open(faces, tmp_path):
    faces.use_cache(*open_crop_caches(tmp_path / "cache", [faces.identify()], SETTINGS, limit_bytes=10**8))


def test_a_face_is_prepared_once_and_the_cache_gives_the_same_pixels(tmp_path, faces, calls):
    _open(faces, tmp_path)
    first = [faces.load(number) for number in range(3)]
    second = [faces.load(number) for number in range(3)]
    assert calls == ["face_0.png", "face_1.png", "face_2.png"]
    for prepared, cached in zip(first, second, strict=True):
        np.testing.assert_array_equal(prepared.image, cached.image)
        np.testing.assert_array_equal(prepared.masks, cached.masks)
        np.testing.assert_array_equal(prepared.landmarks, cached.landmarks)


def test_both_kinds_of_list_find_the_same_cache(tmp_path, folder, calls):
    for side in (scan_folder(folder), sorted(folder.iterdir())):
        faces = PreparedFaces(side, SETTINGS)
        _open(faces, tmp_path)
        faces.load(1)
        assert faces.path(1) == folder / "face_1.png"
    assert len(calls) == 1


def test_without_a_cache_each_use_prepares(faces, calls):
    faces.identify()
    faces.load(0)
    faces.load(0)
    assert len(calls) == 2


def test_a_file_changed_between_runs_is_prepared_anew(tmp_path, folder, write_sample, picture, calls):
    for number in range(2):
        faces = PreparedFaces(scan_folder(folder), SETTINGS)
        _open(faces, tmp_path)
        loaded = faces.load(0)
        write_sample(folder / "face_0.png", 255 - picture)
        os.utime(folder / "face_0.png", ns=(number, number))
    np.testing.assert_array_equal(loaded.image, prepare_face(folder / "face_0.png", SETTINGS).image)
    assert len(calls) == 2


@pytest.mark.parametrize("kind", ["scan", "paths"])
def test_other_pixels_under_the_same_name_size_and_time_are_prepared_anew(
    tmp_path, folder, picture, make_metadata, calls, kind
):
    path = folder / "face_0.png"
    sizes = set()
    for image in (picture, 255 - picture):
        write_face(path, image, make_metadata(), compression=0)  # not packed, so as long as any other
        os.utime(path, ns=(7, 7))
        sizes.add(path.stat().st_size)
        faces = PreparedFaces(scan_folder(folder) if kind == "scan" else sorted(folder.iterdir()), SETTINGS)
        _open(faces, tmp_path)
        faces.load(0)
    assert len(sizes) == 1
    assert len(calls) == 2


def test_a_file_that_vanished_is_named_unless_it_is_cached(tmp_path, folder, faces):
    _open(faces, tmp_path)
    faces.load(0)
    for name in ("face_0.png", "face_1.png"):
        (folder / name).unlink()
    faces.load(0)
    with pytest.raises(FaceFileError, match=r"face_1\.png") as caught:
        faces.load(1)
    assert caught.value.fields["path"].endswith("face_1.png")


def test_a_file_that_changed_while_training_is_named(folder, faces, write_sample, picture):
    faces.identify()
    write_sample(folder / "face_2.png", 255 - picture)
    os.utime(folder / "face_2.png", ns=(5, 5))
    with pytest.raises(FaceFileError, match=r"face_2.png.*changed while training") as caught:
        faces.load(2)
    assert "same command" in caught.value.advice


def test_a_missing_file_is_named_when_a_list_is_opened(folder):
    faces = PreparedFaces([folder / "face_0.png", folder / "gone.png"], SETTINGS)
    with pytest.raises(FaceFileError, match=r"gone\.png"):
        faces.identify()


def test_landmarks_are_those_of_the_prepared_face(faces):
    faces.identify()
    np.testing.assert_allclose(faces.landmarks(0), faces.load(0).landmarks, atol=1e-4)


def test_a_face_without_landmarks_is_named(folder, write_sample):
    write_sample(folder / "plain.png", metadata=None)
    write_sample(folder / "square.png", points=[[10, 10], [90, 10], [90, 90], [10, 90]])
    faces = PreparedFaces([folder / "plain.png", folder / "square.png"], CropSettings(32))
    faces.identify()
    for number, name in enumerate(("plain.png", "square.png")):
        with pytest.raises(FaceFileError, match=rf"{name}.*no 68 landmarks"):
            faces.landmarks(number)
