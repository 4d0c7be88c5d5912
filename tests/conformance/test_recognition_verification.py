"""Verification of face recognition against golden numbers: pair files, folds, TAR at FAR, templates."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ostinato.data.pictures import decode_rgb
from ostinato.errors import BadInputError
from ostinato.recognition.verification import (
    pair_scores,
    read_pair_file,
    roc_curve,
    template_embeddings,
    verify,
)

FOLDER = Path("recognition", "verification")
RATES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


def read(golden: Path, name: str) -> Any:
    return json.loads((golden / FOLDER / name).read_text())


@pytest.mark.parametrize("name", ["pairs_py2", "pairs_py3", "pairs_ndarray"])
def test_pair_files_of_all_three_makings(golden: Path, name: str) -> None:
    contents = read(golden, "bin_contents.json")
    pairs = read_pair_file(golden / FOLDER / f"{name}.bin")
    assert len(pairs.pictures) == (8 if name == "pairs_ndarray" else 80)
    assert pairs.same.tolist() == contents["issame"][: len(pairs.same)]
    assert pairs.pairs.tolist() == [[2 * p, 2 * p + 1] for p in range(len(pairs.same))]
    for picture, expected in zip(pairs.pictures, contents["images"], strict=False):
        data = picture.read()
        assert len(data) == expected["bytes"]
        assert hashlib.sha256(data).hexdigest() == expected["sha256"]
        pixels = decode_rgb(data)
        assert list(pixels.shape) == expected["shape"]
        assert pixels.sum(axis=(0, 1), dtype=np.int64) == pytest.approx(expected["channel_sums_rgb"], rel=0.01)


def test_a_hostile_pair_file_is_refused_and_prints_nothing(golden: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInputError, match=r"builtins\.print"):
        read_pair_file(golden / FOLDER / "hostile.bin")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["pairs40", "pairs43", "pairs600"])
def test_accuracy_and_acceptance_by_folds(golden: Path, name: str) -> None:
    expected = next(entry for entry in read(golden, "verification_results.json") if entry["name"] == name)
    arrays = np.load(golden / FOLDER / f"{name}.npz")
    result = verify(
        arrays["embeddings"], arrays["embeddings_flipped"], arrays["issame"], far_targets=(expected["far_target"],)
    )
    (acceptance,) = result.acceptances
    assert result.pairs == expected["pairs"]
    got = {
        "xnorm": result.xnorm,
        "accuracy_mean": result.accuracy.mean,
        "accuracy_std": result.accuracy.std,
        "val_mean": acceptance.tar,
        "val_std": acceptance.tar_std,
        "far_mean": acceptance.far,
    }
    for key, value in got.items():
        assert value == pytest.approx(expected[key], rel=1e-9, abs=1e-9), key
    assert len(result.accuracy.outcomes) == len(expected["folds"]) == len(acceptance.folds)
    for outcome, accepted, fold in zip(result.accuracy.outcomes, acceptance.folds, expected["folds"], strict=True):
        assert (outcome.fold.first, outcome.fold.count) == (fold["test_first"], fold["test_count"])
        assert outcome.threshold_index == fold["best_threshold_index"]
        assert outcome.threshold == pytest.approx(fold["best_threshold"], abs=1e-9)
        assert outcome.train_accuracy == pytest.approx(fold["train_accuracy"], abs=1e-9)
        assert outcome.accuracy == pytest.approx(fold["test_accuracy"], abs=1e-9)
        assert accepted.threshold == pytest.approx(fold["far_threshold"], abs=1e-9)
        assert accepted.val == pytest.approx(fold["val"], abs=1e-9)
        assert accepted.far == pytest.approx(fold["far"], abs=1e-9)
    assert result.accuracy.tpr == pytest.approx(arrays["tpr"], abs=1e-9)
    assert result.accuracy.fpr == pytest.approx(arrays["fpr"], abs=1e-9)


def test_distances(golden: Path) -> None:
    from ostinato.recognition.verification.result import measure

    for name in ("pairs40", "pairs43", "pairs600"):
        arrays = np.load(golden / FOLDER / f"{name}.npz")
        measured = measure(arrays["embeddings"], arrays["embeddings_flipped"], len(arrays["issame"]))
        assert measured.distances == pytest.approx(arrays["distance"], rel=1e-9, abs=1e-12)


def test_template_protocol(golden: Path) -> None:
    expected = read(golden, "template_protocol.json")
    features = np.asarray(expected["image_features_plain_then_flipped"], np.float64)
    dim = expected["dim"]
    ids, embeddings = template_embeddings(
        features[:, :dim], features[:, dim:], expected["templates"], expected["medias"], expected["detector_score"]
    )
    assert ids.tolist() == expected["template_ids"]
    assert embeddings == pytest.approx(np.asarray(expected["template_features"]), abs=1e-9)
    scores = pair_scores(ids, embeddings, np.asarray(expected["pairs"]))
    assert scores == pytest.approx(np.asarray(expected["scores"]), abs=1e-9)
    curve = roc_curve(np.asarray(expected["scores"]), np.asarray(expected["labels"], bool))
    assert curve.at(RATES) == [pytest.approx(row, abs=1e-9) for row in expected["tpr_at_fpr"]]
