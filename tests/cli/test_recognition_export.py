"""``ostinato recognition export`` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from formula_backbone import fill_by_formula, formula_pictures
from people_pictures import write_people
from trained_recognition import write_trained_run

from ostinato.cli.main import run
from ostinato.recognition.backbones import Backbone, build_backbone
from ostinato.recognition.insightface import read_backbone_weights, write_backbone_weights


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    made = build_backbone("r18", embedding_size=16, seed=0).eval()
    fill_by_formula(made)
    return made


@pytest.fixture(scope="module")
def trained(backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trained_run(tmp_path_factory.mktemp("runs") / "faces", backbone)


def test_a_pth_is_what_insightface_loads(
    trained: Path, backbone: Backbone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "backbone.pth"
    assert run(["recognition", "export", str(trained), str(out)]) == 0
    printed = capsys.readouterr().out
    assert "r18 at iteration 12, 16 numbers a face" in printed
    assert str(out) in printed
    weights = torch.load(out, weights_only=True)
    assert list(weights) == list(backbone.state_dict())
    assert all(torch.equal(weights[name], value) for name, value in read_backbone_weights(out).items())


def test_a_file_of_weights_is_exported_like_a_run(
    trained: Path, backbone: Backbone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights, out = tmp_path / "backbone.pth", tmp_path / "faces.onnx"
    write_backbone_weights(backbone, weights)
    assert run(["recognition", "export", str(weights), str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("r18 of ")
    assert "backbone.pth, 16 numbers a face" in printed
    texts = {entry.key: entry.value for entry in onnx.load(out).metadata_props}
    assert (texts["backbone"], "iteration" in texts) == ("r18", False)


def test_an_onnx_file_is_compared_on_the_users_pictures(
    trained: Path, backbone: Backbone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people = write_people(tmp_path / "people", 2, 3)
    out = tmp_path / "faces.onnx"
    assert run(["recognition", "export", str(trained), str(out), "--pictures", str(people), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["pictures"], report["backbone"], report["embedding_size"]) == (6, "r18", 16)
    assert report["largest_difference"] < 1e-4
    texts = {entry.key: entry.value for entry in onnx.load(out).metadata_props}
    assert (texts["backbone"], texts["iteration"], texts["mean"]) == ("r18", "12", "127.5")
    pictures = formula_pictures(2).float()
    (found,) = onnxruntime.InferenceSession(str(out)).run(None, {"data": pictures.numpy()})
    with torch.no_grad():
        expected = backbone(pictures).numpy()
    assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["RUN", "out.txt"], 2, "should end in .onnx, .pth or .pt"),
        (["RUN", "out.pth", "--opset", "18"], 2, "are for .onnx files"),
        (["RUN", "out.onnx", "--opset", "10"], 2, "--opset is 10"),
        (["RUN", "folder.onnx"], 2, "is a folder"),
        (["RUN", "out.onnx", "--pictures", "nothing"], 3, "is no picture and no folder with pictures"),
        (["RUN", "out.onnx", "--pictures", "broken.png"], 3, "cannot be used"),
        (["RUN", "out.pth", "--generation", "77"], 3, "77"),
        (["nothing", "out.pth"], 3, "There is no"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnot really")
    before = sorted(tmp_path.rglob("*"))
    assert run(["recognition", "export", *(str(trained) if word == "RUN" else word for word in arguments)]) == status
    assert said in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
