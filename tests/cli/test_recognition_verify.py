"""`ostinato recognition verify`, `embed` and `pairs`."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from people_pictures import write_people, write_templates
from recognition_command import Recognition
from trained_recognition import write_trained_run

from ostinato.data.pictures import decode_rgb
from ostinato.recognition.backbones import build_backbone
from ostinato.recognition.insightface import write_backbone_weights
from ostinato.recognition.verification import embed_images, verify
from ostinato.recognition.verification.pair_list import read_pair_list


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_people(tmp_path_factory.mktemp("data") / "people", 4, 3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a small network that was not trained."""
    backbone = build_backbone("mbf", embedding_size=16, seed=1)
    return write_trained_run(tmp_path_factory.mktemp("runs") / "run", backbone, iteration=7)


@pytest.fixture(scope="module")
def pair_list(people: Path) -> Path:
    from ostinato.recognition.verification.pair_list import make_pair_list, write_pair_list

    path = people.parent / "pairs.txt"
    write_pair_list(path, make_pair_list(people, folds=2, pairs=24))
    return path


def test_pairs_are_verified_and_told(recognition: Recognition, run: Path, pair_list: Path, tmp_path: Path) -> None:
    picture = tmp_path / "new" / "roc.png"
    status, text, errors = recognition("verify", run, pair_list, "--roc", picture, "-b", "5", "--device", "cpu")
    assert (status, errors) == (0, "")
    lines = text.splitlines()
    assert lines[0] == "mbf at iteration 7, 16 numbers a face, on cpu"
    assert lines[2] == "pairs: 24 pairs of 12 pictures (12 same, 12 different), 2 folds"
    for start in ("  accuracy  ", "  threshold  ", "  TAR at 10 %  ", "  XNorm  ", "  time  "):
        assert sum(line.startswith(start) for line in lines) == 1, start
    assert any(
        line.startswith("  TAR at 0.1 %")
        and line.endswith("12 different pairs are too few to say anything below 8.3 %")
        for line in lines
    )
    assert lines[-1] == f"The curves are in {picture}"
    assert decode_rgb(picture.read_bytes()).shape == (720, 960, 3)


def test_a_file_of_weights_is_verified_and_embedded_like_a_run(
    recognition: Recognition, run: Path, pair_list: Path, people: Path, tmp_path: Path
) -> None:
    weights = tmp_path / "backbone.pth"
    write_backbone_weights(build_backbone("mbf", embedding_size=16, seed=1), weights)
    _, of_run, _ = recognition("verify", run, pair_list, "--json", "--device", "cpu")
    status, of_file, _ = recognition("verify", weights, pair_list, "--json", "--device", "cpu")
    assert status == 0
    expected, found = json.loads(of_run), json.loads(of_file)
    assert (found["run"], found["iteration"], found["backbone"]) == (str(weights), None, "mbf")
    for content in (expected, found):
        content["sets"][0].pop("seconds")
    assert found["sets"] == expected["sets"]
    status, text, _ = recognition("embed", weights, people, tmp_path / "faces.npz", "--device", "cpu")
    assert status == 0
    assert text.splitlines()[0].endswith("backbone.pth, 16 numbers a face, on cpu")


def test_json_is_one_object_with_the_numbers_of_the_library(
    recognition: Recognition, run: Path, pair_list: Path
) -> None:
    status, text, errors = recognition("verify", run, pair_list, "--json", "--far", "0.25", "--far", "0.1")
    assert (status, errors) == (0, "")
    content = json.loads(text)
    assert (content["run"], content["iteration"], content["backbone"]) == (str(run), 7, "mbf")
    (found,) = content["sets"]
    pairs = read_pair_list(pair_list).pair_set("pairs")
    model = build_backbone("mbf", embedding_size=16, seed=1).eval()
    embedded, order = embed_images(model, pairs.pictures), pairs.pairs.reshape(-1)
    expected = verify(embedded.plain[order], embedded.mirrored[order], pairs.same, folds=2, far_targets=(0.25, 0.1))
    assert found["accuracy"] == pytest.approx(expected.accuracy.mean, abs=1e-6)
    assert found["xnorm"] == pytest.approx(expected.xnorm, rel=1e-4)
    assert [entry["far_target"] for entry in found["tar_at_far"]] == [0.25, 0.1]
    assert (found["name"], found["path"], found["pairs"]) == ("pairs", str(pair_list), 24)


def test_a_folder_of_people_becomes_pairs_and_it_is_said(recognition: Recognition, run: Path, tmp_path: Path) -> None:
    people = write_people(tmp_path / "people", 5, 4)
    status, text, _ = recognition("verify", run, people)
    assert status == 0
    assert text.startswith(
        f"Made of the folder {people}: 60 pairs of 20 pictures: 30 of the same person, 30 of different"
    )
    assert "in 10 folds that share people" in text
    assert "the accuracy flatters a little" in text


def test_a_list_and_the_same_as_a_bin_file_agree(
    recognition: Recognition, run: Path, people: Path, tmp_path: Path
) -> None:
    words = ("pairs", people, tmp_path / "p.txt", "--bin", tmp_path / "p.bin", "--folds", "10", "-n", "24")
    assert recognition(*words)[0] == 0
    status, text, _ = recognition("verify", run, tmp_path / "p.txt", tmp_path / "p.bin", "--json")
    assert status == 0
    one, other = json.loads(text)["sets"]
    for key in ("accuracy", "threshold", "pairs", "same_pairs", "pictures"):
        assert one[key] == other[key], key
    assert one["xnorm"] == pytest.approx(other["xnorm"], rel=1e-6)


def test_templates_laid_out_as_ijb_c_are_verified(recognition: Recognition, run: Path, tmp_path: Path) -> None:
    folder = write_templates(tmp_path / "IJBX", people=3)
    status, text, _ = recognition("verify", run, folder, "--device", "cpu")
    assert status == 0
    assert "ijbx: 15 pairs of 6 templates with 12 pictures (3 same, 12 different)" in text
    assert text.count("TAR at ") == 6
    assert text.count("; 12 different pairs are too few for this rate") == 5  # not for 10 %
    status, text, _ = recognition("verify", run, folder, "--json", "--far", "0.1")
    (found,) = json.loads(text)["template_sets"]
    assert (found["name"], found["pairs"], found["tar_at_far"][0]["far_target"]) == ("ijbx", 15, 0.1)
    assert recognition("verify", run, folder, "--roc", tmp_path / "roc.png")[0] == 2


def test_pairs_writes_a_list_and_a_bin_file(recognition: Recognition, people: Path, tmp_path: Path) -> None:
    words = ("pairs", people, tmp_path / "p.txt", "--bin", tmp_path / "p.bin", "--folds", "2", "--pairs", "16")
    status, text, _ = recognition(*words)
    assert status == 0
    assert text.splitlines() == [
        "16 pairs of 12 pictures: 8 of the same person, 8 of different people, in 2 folds, no person in two of them: "
        + str(tmp_path / "p.txt"),
        f"the same with its pictures, 112 pixels a side: {tmp_path / 'p.bin'}",
    ]
    images, same = pickle.loads((tmp_path / "p.bin").read_bytes())
    made = read_pair_list(tmp_path / "p.txt")
    assert len(images) == 2 * len(same) == 2 * len(made.same)
    assert same == made.same.tolist()
    status, text, _ = recognition(*words, "--json", "--seed", "4")
    assert status == 0
    assert json.loads(text)["seed"] == 4


def test_embeddings_of_a_folder(recognition: Recognition, run: Path, people: Path, tmp_path: Path) -> None:
    status, text, errors = recognition("embed", run, people, tmp_path / "out.npz", "--device", "cpu")
    assert (status, errors) == (0, "")
    assert text.endswith(f"12 embeddings of 4 people, 16 numbers each, of length 1, are in {tmp_path / 'out.npz'}\n")
    with np.load(tmp_path / "out.npz") as stored:
        assert stored["embeddings"].shape == (12, 16)
        assert bool(stored["normalised"])
        assert stored["names"][0] == "person_00/0.png"


def test_pictures_left_out_are_named_and_the_status_says_so(
    recognition: Recognition, run: Path, tmp_path: Path
) -> None:
    people = write_people(tmp_path / "people", 2, 2)
    (people / "person_01" / "0.png").write_bytes(b"no picture")
    status, text, _ = recognition("embed", run, people, tmp_path / "out.npz", "--raw", "--json")
    assert status == 1
    content: dict[str, Any] = json.loads(text)
    assert (content["embeddings"], content["normalised"]) == (3, False)
    assert "person_01/0.png cannot be used" in content["left_out"][0]


def test_a_network_with_a_weight_that_is_no_number_is_told_by_pictures(
    recognition: Recognition, pair_list: Path, tmp_path: Path
) -> None:
    backbone = build_backbone("mbf", embedding_size=16, seed=1)
    with torch.no_grad():
        backbone.state_dict()["conv_sep.layers.0.weight"].view(-1)[0] = torch.inf
    # A state in which an error ended the run may hold such numbers; others are refused when they are saved.
    write_trained_run(tmp_path / "run", backbone, iteration=7, reasons=("error",))
    status, text, errors = recognition("verify", tmp_path / "run", pair_list, "--generation", "7")
    assert status == 1
    assert "48 of 48 embeddings are not finite: " in errors
    assert "person_0" in errors
    assert "Traceback" not in text + errors


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("verify", "{run}", "{nothing}"), 3, "There is no"),
        (("verify", "{nothing}", "{pairs}"), 3, "There is no"),
        (("verify", "{run}", "{pairs}", "--far", "2"), 2, "--far 2 is no rate"),
        (("verify", "{run}", "{pairs}", "-b", "0"), 2, "--batch-size is 0"),
        (("verify", "{run}", "{pairs}", "--roc", "x.pdf"), 2, "should end in .png"),
        (("verify", "{run}", "{pairs}", "--device", "abacus"), 2, "--device abacus cannot be used"),
        (("verify", "{run}", "{pairs}", "--generation", "99"), 3, "no generation 99"),
        (("embed", "{run}", "{people}", "out.txt"), 2, "should end in .npz"),
        (("embed", "{run}", "{nothing}", "out.npz"), 3, "cannot be read"),
        (("pairs", "{people}", "x.bin"), 2, "should be a list"),
        (("pairs", "{people}", "x.txt", "--folds", "0"), 2, "--folds is 0"),
        (("pairs", "{people}", "x.txt", "--folds", "9", "-n", "17"), 2, "--pairs is 17"),
        (("pairs", "{people}", "x.txt", "--folds", "500"), 3, "too few for 500 folds"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    recognition: Recognition,
    run: Path,
    people: Path,
    pair_list: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    status: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"run": run, "people": people, "pairs": pair_list, "nothing": tmp_path / "nothing"}
    found, _, errors = recognition(*(word.format(**names) for word in words))
    assert (found, message in errors) == (status, True), errors
    assert list(tmp_path.iterdir()) == []
