from __future__ import annotations

from pathlib import Path

import pytest
from record_sets import jpeg, write_identity_set, write_people, write_plain_set

from ostinato.cli.main import run as command
from ostinato.recognition.data import open_source


def _run(*words: object) -> int:
    return command(["recognition", *map(str, words)])


@pytest.fixture
def people(tmp_path: Path) -> Path:
    return write_people(tmp_path / "people", {"ann": 3, "bob": 1, "cem": 2})


def test_a_folder_is_packed_inspected_shuffled_and_unpacked(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("pack", people, tmp_path / "train.rec", "--size", 16) == 0
    out = capsys.readouterr().out
    assert "6 pictures of 3 identities in" in out
    assert "stored unchanged: 6; as JPEG of quality 95, 16 x 16: 0" in out
    assert _run("inspect", tmp_path / "train.rec", "--decode") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0].startswith(f"{tmp_path / 'train.rec'}: identity set, ")
    assert lines[1:] == [
        "pictures 6",
        "identities 3",
        "of each 1 (label 1) to 3 (label 0); half of them have 2 or more",
        "size 16 x 16: 6",
        "format JPEG: 6",
        "index names 10 records, and fits",
        "damaged 0 (every picture decoded)",
    ]
    assert _run("shuffle", tmp_path / "train.rec", tmp_path / "mixed.rec", "--seed", 4) == 0
    assert f"wrote {tmp_path / 'mixed.rec'}: 6 pictures of 3 identities" in capsys.readouterr().out
    assert _run("unpack", tmp_path / "mixed.rec", tmp_path / "files") == 0
    assert open_source(tmp_path / "files").labels.tolist() == [0, 0, 0, 1, 2, 2]


def test_pictures_are_resized_to_112_unless_asked_otherwise(people: Path, tmp_path: Path) -> None:
    assert _run("pack", people, tmp_path / "train.rec") == 0
    source = open_source(tmp_path)
    assert source.read(0)[0].shape == (112, 112, 3)
    source.close()
    assert _run("pack", people, tmp_path / "train.rec", "--size", 0, "--overwrite", "--format", "png", "--plain") == 0
    source = open_source(tmp_path)
    assert source.read(0)[0].shape == (16, 16, 3)
    source.close()


def test_damage_is_told_once_and_left_out(people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (people / "bob" / "000.jpg").write_bytes(jpeg(0)[:-40])
    assert _run("pack", people, tmp_path / "train.rec", "--size", 16) == 0
    told = capsys.readouterr()
    assert told.err.count("000.jpg cannot be used: it is cut off") == 1
    assert "none of the pictures of bob can be used; its class stays" in told.out
    assert "damaged and left out: 1" in told.out


def test_inspecting_damage_ends_with_status_3_and_names_it(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (people / "bob" / "000.jpg").write_bytes(b"?")
    assert _run("inspect", people) == 3
    told = capsys.readouterr()
    assert "of each 1 (folder bob) to 3 (folder ann)" in " ".join(told.out.split())
    assert "bob/000.jpg cannot be used" in told.out
    assert "1 of its records or pictures cannot be used" in told.err


def test_a_wrong_index_is_named_and_can_be_rebuilt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_identity_set(tmp_path / "train.rec", [3, 1])
    index = tmp_path / "train.idx"
    right = index.read_bytes()
    index.write_bytes(right[:-4])
    assert _run("inspect", path) == 3
    told = capsys.readouterr()
    assert "pictures    4" in told.out
    assert "the index does not fit train.rec" in told.err
    assert "--write-index" in told.err
    assert _run("inspect", path, "--write-index") == 0
    assert index.read_bytes() == right
    assert (tmp_path / "train.idx.before-1").read_bytes() == right[:-4]
    out = capsys.readouterr().out
    assert f"the old index is {index}.before-1 now" in out
    assert f"wrote {index}: 7 records" in out


def test_an_index_written_for_a_damaged_set_leaves_the_damage_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_plain_set(tmp_path / "train.rec", [0, 1, 2])
    with open(path, "r+b") as file:
        file.write(b"X")
    (tmp_path / "train.idx").unlink()
    assert _run("inspect", path, "--write-index") == 0
    assert "left out, damaged: bytes 0 to " in capsys.readouterr().out
    assert open_source(path).labels.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["pack", "{people}", "{tmp}/no.txt"], 3, "does not end with .rec"),
        (["pack", "{people}", "{tmp}/no.rec", "--size", "5"], 2, "--size is 5"),
        (["pack", "{people}", "{tmp}/no.rec", "--quality", "101"], 2, "--quality is 101"),
        (["pack", "{people}", "{tmp}/no.rec", "--min-images", "4"], 3, "has 4 pictures; the largest, ann, has 3"),
        (["pack", "{tmp}/nowhere", "{tmp}/no.rec"], 3, "cannot be read"),
        (["inspect", "{tmp}/nowhere"], 3, "There is no"),
        (["inspect", "{people}", "--write-index"], 2, "has no index"),
        (["shuffle", "{people}", "{tmp}/no.rec"], 3, "holds no train.rec"),
        (["shuffle", "{tmp}/nowhere.rec", "{tmp}/no.rec"], 3, "cannot be opened"),
        (["unpack", "{people}", "{tmp}/out"], 3, "holds no train.rec"),
    ],
)
def test_mistakes_are_named(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], status: int, text: str
) -> None:
    assert _run(*(word.format(people=people, tmp=tmp_path) for word in words)) == status
    told = capsys.readouterr()
    assert text in told.err
    assert not (tmp_path / "no.rec").exists()


def test_nothing_is_replaced_unasked(people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.rec").write_bytes(b"precious")
    assert _run("pack", people, tmp_path / "train.rec") == 3
    assert "--overwrite" in capsys.readouterr().err
    assert (tmp_path / "train.rec").read_bytes() == b"precious"
