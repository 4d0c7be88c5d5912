"""ONNX files: what they compute, what they say, and what is refused."""

from __future__ import annotations

import builtins
import copy
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from formula_backbone import fill_by_formula, formula_pictures, small_backbone
from torch import Tensor

from ostinato.errors import ArgumentValueError, MissingPackageError, NonFiniteError
from ostinato.recognition import onnx_export
from ostinato.recognition.backbones import Backbone
from ostinato.recognition.onnx_export import ExportDifferenceError, OnnxReport, drawn_pictures, export_onnx

FAMILIES = ("mobilefacenet", "vit")


def filled(family: str, **options: Any) -> Backbone:
    backbone = small_backbone(family, **options)
    fill_by_formula(backbone)
    return backbone


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Backbone, OnnxReport]]:
    """A file of two families, exported from networks in training and with half precision, as a run may have them.

    One of them is written as a network of more than 2 GiB is, and with an older version of the operators.
    """
    folder = tmp_path_factory.mktemp("exported")
    made = {}
    for family, options in (("mobilefacenet", {}), ("vit", {"opset": 18, "one_file_bytes": 1000})):
        backbone = filled(family, half_precision=torch.bfloat16).train()
        path = folder / family / "out.onnx"
        made[family] = backbone, export_onnx(backbone, path, metadata={"backbone": family}, **options)
    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_any_number_of_pictures_gives_what_torch_gives_in_float32(
    exported: dict[str, tuple[Backbone, OnnxReport]], family: str
) -> None:
    backbone, report = exported[family]
    network = filled(family).eval()
    session = onnxruntime.InferenceSession(str(report.path), providers=["CPUExecutionProvider"])
    for count in (1, 3):
        pictures = formula_pictures(count).float()
        with torch.no_grad():
            expected = network(pictures).numpy()
        (found,) = session.run(["embedding"], {"data": pictures.numpy()})
        assert found.shape == (count, 8)
        assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)
    assert report.pictures == 4
    assert 0 < report.largest_difference < 1e-4
    assert backbone.training
    assert backbone.half_precision == torch.bfloat16


@pytest.mark.parametrize("family", FAMILIES)
def test_the_file_says_how_pictures_are_prepared_and_nothing_of_this_machine(
    exported: dict[str, tuple[Backbone, OnnxReport]], family: str
) -> None:
    _, report = exported[family]
    model = onnx.load(report.path)
    texts = {entry.key: entry.value for entry in model.metadata_props}
    preparation = json.loads(texts["preparation"])
    assert (preparation["order"], preparation["mean"], preparation["std"]) == ("RGB", 127.5, 127.5)
    assert (texts["mean"], texts["std"], texts["order"], texts["backbone"]) == ("127.5", "127.5", "RGB", family)
    (given,), (made,) = model.graph.input, model.graph.output
    assert (given.name, made.name) == ("data", "embedding")
    sizes = [d.dim_param or d.dim_value for d in given.type.tensor_type.shape.dim]
    assert sizes == ["batch", 3, 112, 112]
    assert [d.dim_param or d.dim_value for d in made.type.tensor_type.shape.dim] == ["batch", 8]
    assert report.opset == model.opset_import[0].version >= 11
    assert report.bytes == sum(path.stat().st_size for path in report.path.parent.iterdir())
    for weights in model.graph.initializer:
        weights.ClearField("raw_data")
    assert b".py" not in model.SerializeToString()


@pytest.mark.parametrize("family", FAMILIES)
def test_insightfaces_reader_takes_the_file_for_one_that_wants_normalised_pictures(
    exported: dict[str, tuple[Backbone, OnnxReport]], family: str
) -> None:
    # It looks for a subtraction and a multiplication among the names of the first eight nodes.
    names = [node.name for node in onnx.load(exported[family][1].path).graph.node[:8]]
    assert not (
        any(name.startswith(("Sub", "_minus")) for name in names)
        and any(name.startswith(("Mul", "_mul", "Div")) for name in names)
    )


def test_large_networks_get_a_second_file_for_their_weights(exported: dict[str, tuple[Backbone, OnnxReport]]) -> None:
    for family, files in (("mobilefacenet", 1), ("vit", 2)):
        report = exported[family][1]
        assert len(list(report.path.parent.iterdir())) == files
        assert (report.weights_path is not None) is (files == 2)
    assert report.weights_path is not None
    assert report.weights_path.stat().st_size > report.path.stat().st_size


def test_an_older_opset_is_written_where_it_is_asked_for(exported: dict[str, tuple[Backbone, OnnxReport]]) -> None:
    assert exported["vit"][1].opset == 18


def test_a_network_that_came_out_different_is_not_handed_out(
    exported: dict[str, tuple[Backbone, OnnxReport]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.onnx"
    path.write_text("before")
    backbone, report = exported["mobilefacenet"]
    changed = copy.deepcopy(backbone)
    with torch.no_grad():
        changed.features.layers[2].weight.mul_(0.99)

    def export_another(_: Backbone, path: Path, *__: Any, **___: Any) -> None:
        shutil.copyfile(report.path, path)

    monkeypatch.setattr(onnx_export, "_export", export_another)
    with pytest.raises(ExportDifferenceError, match=r"of an embedding's length, and 1e-03 is allowed") as caught:
        export_onnx(changed, path)
    assert caught.value.fields["difference"] == pytest.approx(0.01, rel=0.1)
    assert [child.name for child in tmp_path.iterdir()] == ["out.onnx"]
    assert path.read_text() == "before"


def test_a_network_whose_embeddings_are_not_finite_is_refused(tmp_path: Path) -> None:
    backbone = filled("mobilefacenet")
    with torch.no_grad():
        backbone.conv_sep.layers[0].weight[0] = torch.nan
    with pytest.raises(NonFiniteError, match="not finite"):
        export_onnx(backbone, tmp_path / "out.onnx")
    assert list(tmp_path.iterdir()) == []


def test_too_old_an_opset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError, match="opset is 10"):
        export_onnx(filled("mobilefacenet"), tmp_path / "out.onnx", opset=10)


def test_missing_packages_are_named_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordinary = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name in ("onnxscript", "onnxruntime"):
            raise ModuleNotFoundError(name=name)
        return ordinary(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingPackageError, match=r"needs onnxscript and onnxruntime.*ostinato\[export\]"):
        export_onnx(filled("mobilefacenet"), tmp_path / "out.onnx")


def test_the_drawn_pictures_are_faces_that_differ() -> None:
    pictures: Tensor = drawn_pictures()
    assert pictures.shape == (4, 3, 112, 112)
    assert -1 <= pictures.min() < -0.5
    assert 0.5 < pictures.max() <= 1
    assert torch.equal(pictures, drawn_pictures())
    assert not torch.equal(pictures[0], pictures[1])
