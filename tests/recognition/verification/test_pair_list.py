"""Lists of pairs as text."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from people_pictures import write_people

from ostinato.data.pictures import encode_png
from ostinato.errors import BadInputError
from ostinato.recognition.verification import verify_pairs
from ostinato.recognition.verification.pair_list import (
    FIRST_LINE,
    SHARED_PEOPLE,
    PairList,
    describe_pair_list,
    make_pair_list,
    read_pair_list,
    write_pair_list,
)
from ostinato.recognition.verification.pair_sources import open_pairs


def names(pairs: PairList) -> list[tuple[str, str]]:
    return [(pairs.files[one], pairs.files[other]) for one, other in pairs.pairs]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_people(tmp_path_factory.mktemp("people"), 6, 4)


def test_a_list_made_written_and_read(people: Path, tmp_path: Path) -> None:
    made = make_pair_list(people, folds=3, pairs=60, seed=5)
    path = tmp_path / "lists" / "pairs.txt"
    write_pair_list(path, made)
    read = read_pair_list(path)
    assert names(read) == names(made)
    assert read.same.tolist() == made.same.tolist()
    assert (read.folds, read.seed, read.folds_are_disjoint) == (3, 5, True)
    assert read.folder.resolve() == people.resolve()
    assert all(path.exists() for path in (read.folder / name for pair in names(read) for name in pair))
    assert path.read_text().startswith(FIRST_LINE + "\n# folder: ")


def test_a_list_and_its_folder_move_together(tmp_path: Path) -> None:
    write_people(tmp_path / "here" / "people", 4, 3)
    write_pair_list(tmp_path / "here" / "pairs.txt", make_pair_list(tmp_path / "here" / "people", folds=2))
    (tmp_path / "here").rename(tmp_path / "there")
    read = read_pair_list(tmp_path / "there" / "pairs.txt")
    assert read.folder.resolve() == tmp_path / "there" / "people"


def test_folds_that_share_people_are_said(people: Path) -> None:
    made = make_pair_list(people)
    assert made.folds_are_disjoint is False
    assert made.pair_set("x").notes == (SHARED_PEOPLE,)
    assert make_pair_list(people, folds=3).pair_set("x").notes == ()
    assert describe_pair_list(made).endswith("in 10 folds that share people")
    assert describe_pair_list(make_pair_list(people, folds=3)).endswith("in 3 folds, no person in two of them")


def test_what_is_odd_about_the_folder_is_told(tmp_path: Path) -> None:
    write_people(tmp_path, 4, 3)
    (tmp_path / "empty").mkdir()
    told: list[str] = []
    make_pair_list(tmp_path, folds=2, tell=told.append)
    assert any("empty" in sentence for sentence in told)


def test_other_ends_of_line_and_remarks_are_read(tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    lines = [FIRST_LINE, "# my own remark", "", "same\ta/1.png\ta/2.png", "different\ta/1.png\tb/1.png", "# folds: 1"]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    read = read_pair_list(path)
    assert names(read) == [("a/1.png", "a/2.png"), ("a/1.png", "b/1.png")]
    assert read.same.tolist() == [True, False]
    assert (read.folder, read.folds, read.folds_are_disjoint) == (tmp_path, 1, None)
    assert len(open_pairs(path).pictures) == 3


@pytest.mark.parametrize(
    ("lines", "line", "why"),
    [
        (["same\ta\tb"], 1, "begins with"),
        ([FIRST_LINE], 2, "no pairs"),
        ([FIRST_LINE, "same\ta"], 2, "divided by tabs"),
        ([FIRST_LINE, "yes\ta\tb"], 2, "'same' or 'different'"),
        ([FIRST_LINE, "same\ta\t../../etc/passwd"], 2, "leaves the folder"),
        ([FIRST_LINE, "same\ta\t/etc/passwd"], 2, "leaves the folder"),
        ([FIRST_LINE, "same\ta\t"], 2, "leaves the folder"),
        ([FIRST_LINE, "# folds: 0"], 2, "no whole number from 1"),
        ([FIRST_LINE, "# folds: " + "9" * 30], 2, "no whole number"),
        ([FIRST_LINE, "# seed: x"], 2, "no whole number"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, lines: list[str], line: int, why: str) -> None:
    (tmp_path / "pairs.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(BadInputError, match=why) as caught:
        read_pair_list(tmp_path / "pairs.txt")
    assert caught.value.fields["line"] == line


def test_what_is_no_text_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInputError, match="it is no text"):
        read_pair_list(tmp_path / "x")
    with pytest.raises(BadInputError, match="cannot be read"):
        read_pair_list(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["a\tb.png", "a\nb.png", os.fsdecode(b"\xff.png")])
def test_names_that_a_list_cannot_hold_are_refused(tmp_path: Path, name: str) -> None:
    write_people(tmp_path / "people", 2, 3)
    (tmp_path / "people" / "person_00" / name).write_bytes(encode_png(np.zeros((8, 8, 3), np.uint8)))
    made = make_pair_list(tmp_path / "people", folds=1)
    with pytest.raises(BadInputError, match="which a list of pairs cannot"):
        write_pair_list(tmp_path / "pairs.txt", made)
    assert not (tmp_path / "pairs.txt").exists()


def test_a_path_is_opened_by_what_it_holds(people: Path, tmp_path: Path) -> None:
    told: list[str] = []
    opened = open_pairs(people, tell=told.append)
    assert opened.name == people.name
    assert told == [f"Made of the folder {people}: {describe_pair_list(make_pair_list(people))}."]
    write_pair_list(tmp_path / "pairs.bin", make_pair_list(people))  # whatever it is called
    assert open_pairs(tmp_path / "pairs.bin").pairs.tolist() == opened.pairs.tolist()
    with pytest.raises(BadInputError, match="There is no"):
        open_pairs(tmp_path / "nothing")
    for content, why in (("10\t300\n", "neither a .bin pair file nor a list"), ("", "is empty")):
        (tmp_path / "text.txt").write_text(content)
        with pytest.raises(BadInputError, match=why):
            open_pairs(tmp_path / "text.txt")


def test_a_missing_picture_of_a_list_is_named(people: Path, tmp_path: Path) -> None:
    from people_pictures import PatchMeans

    write_people(tmp_path / "people", 4, 3)
    made = make_pair_list(tmp_path / "people", folds=2)
    (tmp_path / "people" / "person_01" / "1.png").unlink()
    with pytest.raises(BadInputError, match=r"person_01/1\.png cannot be used"):
        verify_pairs(PatchMeans(), made.pair_set("x"))
