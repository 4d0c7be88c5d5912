"""Writing and reading .bin files."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from people_pictures import person_picture

from ostinato.data.jpeg import encode_jpeg
from ostinato.data.pictures import decode_rgb, encode_png
from ostinato.errors import BadInputError
from ostinato.recognition.verification import PairSet, pair_file, read_pair_file, write_pair_file
from ostinato.recognition.verification.pictures import PictureBytes, prepare_picture


def pair_set() -> PairSet:
    """Four pictures in three pairs: PNG and JPEG of the right size, and two that are not."""
    right = person_picture(0, 0, 112)
    pictures = [
        PictureBytes("png", encode_png(right)),
        PictureBytes("jpeg", encode_jpeg(right)),
        PictureBytes("small", encode_png(person_picture(1, 0, 32))),
        PictureBytes("grey", b"P5 92 112 255\n" + bytes(range(92)) * 112),
    ]
    return PairSet("some", pictures, np.array([[0, 1], [2, 3], [0, 2]]), np.array([True, False, False]))


def test_what_is_written_is_read_by_pickle_and_by_us(tmp_path: Path) -> None:
    pairs, path = pair_set(), tmp_path / "new" / "some.bin"
    done: list[tuple[int, int]] = []
    write_pair_file(path, pairs, progress=lambda now, total: done.append((now, total)))
    images, same = pickle.loads(path.read_bytes())
    assert same == [True, False, False]
    assert images[0] == pairs.pictures[0].read()
    assert images[1] == pairs.pictures[1].read()
    assert all(decode_rgb(image).shape == (112, 112, 3) for image in images)
    assert np.array_equal(decode_rgb(images[3]), prepare_picture(pairs.pictures[3]))
    assert images[0] is images[4]  # written once
    assert images[2] is images[5]
    assert done[-1] == (6, 6)
    read = read_pair_file(path)
    assert (read.name, read.folds) == ("some", 10)
    assert read.pairs.tolist() == pairs.pairs.tolist()
    assert [picture.read() for picture in read.pictures] == images[:4]
    assert read.pictures[3].name == f"{path}, picture 3 (pair 2)"


def test_long_files_use_the_wide_memo(tmp_path: Path) -> None:
    pictures = [PictureBytes(str(n), encode_png(np.full((112, 112, 3), n % 256, np.uint8))) for n in range(300)]
    numbers = np.tile(np.arange(300), 2).reshape(-1, 2)
    write_pair_file(tmp_path / "x.bin", PairSet("x", pictures, numbers, np.arange(300) % 2 == 0))
    assert pickle.loads((tmp_path / "x.bin").read_bytes())[0][300] == pictures[0].read()
    assert read_pair_file(tmp_path / "x.bin").pairs.tolist() == numbers.tolist()


def test_nothing_is_left_of_a_file_with_a_picture_that_cannot_be_used(tmp_path: Path) -> None:
    pairs = pair_set()
    bad = PairSet("x", [*pairs.pictures[:3], PictureBytes("broken one", b"x")], pairs.pairs, pairs.same)
    (tmp_path / "x.bin").write_bytes(b"before")
    with pytest.raises(BadInputError, match="broken one cannot be used"):
        write_pair_file(tmp_path / "x.bin", bad)
    assert (tmp_path / "x.bin").read_bytes() == b"before"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (([b"a"], [True]), "1 pictures and 1 answers"),
        (([b"a", b"b", b"c", b"d"], [True]), "4 pictures and 1 answers"),
        (([], []), "0 pictures and 0 answers"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(tmp_path: Path, content: object, why: str) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(pickle.dumps(content, 2))
    with pytest.raises(BadInputError, match=why):
        read_pair_file(path)


def test_a_file_that_is_missing_or_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInputError, match="cannot be read: No such file"):
        read_pair_file(tmp_path / "lfw.bin")
    (tmp_path / "lfw.bin").write_bytes(bytes(100))
    monkeypatch.setattr(pair_file, "MAX_BYTES", 99)
    with pytest.raises(BadInputError, match="has 100 bytes; pair files of up to 99"):
        read_pair_file(tmp_path / "lfw.bin")
