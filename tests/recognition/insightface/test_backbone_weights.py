"""Weights of backbones from files: the right ones load unchanged, and of the wrong ones one hears what they are."""

from __future__ import annotations

import logging
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from formula_backbone import fill_by_formula, formula_pictures
from torch import Tensor, nn

from ostinato.errors import BadInputError, ModelMismatchError
from ostinato.recognition.backbones import Backbone, build_backbone
from ostinato.recognition.backbones.factory import state_shapes
from ostinato.recognition.backbones.mobilefacenet import MobileFaceNet
from ostinato.recognition.insightface import (
    backbones_that_fit,
    load_backbone_weights,
    read_backbone_weights,
    write_backbone_weights,
)
from ostinato.runs.tensor_file import tensor_pieces


@pytest.fixture(scope="module")
def mbf() -> Backbone:
    backbone = build_backbone("mbf", embedding_size=8, seed=0).eval()
    fill_by_formula(backbone)
    return backbone


def saved(content: Any, path: Path, **options: Any) -> Path:
    torch.save(content, path, **options)
    return path


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def test_a_public_weight_file_loads_unchanged(mbf: Backbone, tmp_path: Path) -> None:
    path = saved(mbf.state_dict(), tmp_path / "backbone.pth")
    weights = read_backbone_weights(path, network="mbf")
    assert_same(weights, mbf.state_dict())
    fresh = build_backbone("mbf", embedding_size=8, seed=1).eval()
    load_backbone_weights(fresh, weights)
    with torch.no_grad():
        assert torch.equal(fresh(formula_pictures(1).float()), mbf(formula_pictures(1).float()))


def test_read_weights_have_memory_of_their_own(mbf: Backbone, tmp_path: Path) -> None:
    path = saved(mbf.state_dict(), tmp_path / "backbone.pth")
    weights = read_backbone_weights(path)
    path.write_bytes(b"")
    assert_same(weights, mbf.state_dict())


@pytest.mark.parametrize(
    "form",
    [
        "legacy",
        "module.",
        "compiled module.",
        "checkpoint",
        "state_dict",
        "safetensors",
        "half",
        "other order",
        "Parameter",
    ],
)
def test_other_ways_of_keeping_the_same_weights_are_read(
    mbf: Backbone, tmp_path: Path, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    state = dict(mbf.state_dict())
    path = tmp_path / "weights.pt"
    expected = state
    if form == "legacy":
        saved(state, path, _use_new_zipfile_serialization=False)
    elif form == "module.":
        saved({f"module.{name}": value for name, value in state.items()}, path)
    elif form == "compiled module.":
        saved({f"_orig_mod.module.{name}": value for name, value in state.items()}, path)
    elif form == "checkpoint":
        saved({"epoch": 3, "state_dict_backbone": state, "state_dict_softmax_fc": {"weight": torch.ones(3, 8)}}, path)
    elif form == "state_dict":
        saved({"state_dict": state, "epoch": 3}, path)
    elif form == "safetensors":
        path.write_bytes(b"".join(bytes(piece) for piece in tensor_pieces(state)))
    elif form == "half":
        saved({name: value.half() if value.is_floating_point() else value for name, value in state.items()}, path)
        expected = {name: value.half().float() if value.is_floating_point() else value for name, value in state.items()}
    elif form == "other order":
        saved(dict(reversed(state.items())), path)
    else:
        saved(
            {name: nn.Parameter(value) if value.is_floating_point() else value for name, value in state.items()}, path
        )
    with caplog.at_level(logging.WARNING):
        found = read_backbone_weights(path)
    assert_same(found, expected)
    assert not any(value.requires_grad for value in found.values())
    assert ("'module.'" in caplog.text) is ("module." in form)
    assert ("'_orig_mod.'" in caplog.text) is ("compiled" in form)


def test_what_is_written_is_a_plain_state_that_torch_and_we_read(mbf: Backbone, tmp_path: Path) -> None:
    path = tmp_path / "out.pth"
    write_backbone_weights(mbf, path)
    plain = torch.load(path, weights_only=True)
    assert_same(plain, dict(mbf.state_dict()))
    assert {value.dtype for value in plain.values()} == {torch.float32, torch.int64}
    assert_same(read_backbone_weights(path, network="mbf"), mbf.state_dict())
    write_backbone_weights({"fc.bias": torch.ones(2, dtype=torch.float64)}, path)
    assert torch.load(path, weights_only=True)["fc.bias"].dtype == torch.float32
    assert [child.name for child in tmp_path.iterdir()] == ["out.pth"]


def test_variants_of_a_transformer_share_their_weights() -> None:
    weights = {name: torch.empty(shape, device="meta") for name, shape in state_shapes("vit_t", 16).items()}
    assert backbones_that_fit(weights) == ("vit_t", "vit_t_dp005_mask0")


def test_the_deepest_network_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its thousands of names are only listed for a file that has thousands.
    asked: list[str] = []

    def shapes(name: str, _: int) -> dict[str, tuple[int, ...]]:
        asked.append(name)
        return {}

    monkeypatch.setattr("ostinato.recognition.insightface.backbone_weights.state_shapes", shapes)
    backbones_that_fit({"a": torch.zeros(1)})
    assert "r2060" not in asked
    backbones_that_fit({str(number): torch.zeros(1) for number in range(5000)})
    assert "r2060" in asked


# --- weights of something else ---------------------------------------------------------------------------------------


def test_weights_of_another_network_are_named(mbf: Backbone, tmp_path: Path) -> None:
    path = saved(mbf.state_dict(), tmp_path / "backbone.pth")
    with pytest.raises(ModelMismatchError, match=r"holds the weights of mbf, and r50 was asked for") as caught:
        read_backbone_weights(path, network="r50")
    assert caught.value.fields["found"] == ("mbf",)


def test_names_and_shapes_that_differ_are_listed_beside_the_nearest_network(mbf: Backbone, tmp_path: Path) -> None:
    state = dict(mbf.state_dict())
    del state["conv_sep.layers.1.bias"]
    state["classifier.weight"] = torch.zeros(2)
    state["conv_sep.layers.2.weight"] = torch.zeros(3)
    path = saved(state, tmp_path / "backbone.pth")
    for network in (None, "mbf"):
        with pytest.raises(ModelMismatchError) as caught:
            read_backbone_weights(path, network=network)
        message = str(caught.value)
        assert ("does not fit mbf: " if network else "fits no backbone. The nearest is mbf: ") in message
        assert "1 missing (conv_sep.layers.1.bias)" in message
        assert "1 too much (classifier.weight)" in message
        assert "1 of another shape (conv_sep.layers.2.weight is [3] and should be [512])" in message


def test_long_lists_of_names_are_cut(mbf: Backbone, tmp_path: Path) -> None:
    state = {name: value for name, value in mbf.state_dict().items() if not name.startswith("layers.5")}
    with pytest.raises(ModelMismatchError, match=r"missing \(layers\.5.*, and \d+ more\)") as caught:
        read_backbone_weights(saved(state, tmp_path / "backbone.pth"))
    assert len(str(caught.value)) < 700


def test_mobilefacenets_from_before_july_2021_are_called_what_they_are(tmp_path: Path) -> None:
    old = MobileFaceNet(
        "old", (1, 4, 6, 2), scale=1, embedding_size=8, half_precision=None, checkpointing=False
    ).state_dict()
    path = saved(old, tmp_path / "backbone.pth")
    for network in (None, "mbf"):
        with pytest.raises(ModelMismatchError, match=r"MobileFaceNet of scale 1, as mbf meant before 22 July 2021"):
            read_backbone_weights(path, network=network)


def test_a_network_of_another_kind_is_refused_with_its_first_names(tmp_path: Path) -> None:
    path = saved({"encoder.0.weight": torch.zeros(3, 2), "encoder.0.bias": torch.zeros(3)}, tmp_path / "x.pth")
    with pytest.raises(ModelMismatchError, match=r"none of its 2 names .*begins with encoder\.0\.weight \[3, 2\]"):
        read_backbone_weights(path)


def test_loading_into_a_backbone_of_another_size_says_both_and_changes_nothing(mbf: Backbone) -> None:
    other = build_backbone("mbf", embedding_size=16, seed=0)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(ModelMismatchError) as caught:
        load_backbone_weights(other, mbf.state_dict(), source="backbone.pth")
    assert "do not fit mbf with embeddings of 16 numbers" in str(caught.value)
    assert "They fit mbf with embeddings of 8 numbers" in str(caught.value)
    assert_same(dict(other.state_dict()), before)


# --- files of something else -----------------------------------------------------------------------------------------


class Whole(nn.Module):
    """A network of somebody's own program."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def archive(path: Path, *names: str, compressed: bool = False) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as file:
        for name in names:
            file.writestr(name, bytes(1000))
    return path


def test_a_head_an_optimizer_and_a_checkpoint_of_lightning_are_named(mbf: Backbone, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], 0.1, momentum=0.9)
    for content, said in (
        ({"weight": torch.zeros(5, 8)}, "holds class centres, not a backbone"),
        (torch.zeros(5, 8), r"holds a single tensor of shape \[5, 8\], such as class centres"),
        (optimizer.state_dict(), "is the state of an optimizer"),
        ({"pytorch-lightning_version": "2", "state_dict": {"net.a": torch.zeros(1)}}, "is a checkpoint of Lightning"),
        ({"epoch": 3, "loss": 0.1}, "holds something else than tensors by name"),
        ([1, 2], "holds something else than tensors by name"),
        ({}, "holds something else than tensors by name"),
    ):
        with pytest.raises(BadInputError, match=said) as caught:
            read_backbone_weights(saved(content, tmp_path / "file.pth"))
        assert "the weights of a backbone were expected" in str(caught.value)


def test_pickled_networks_and_traps_are_refused_without_running_anything(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    for content, said in ((Whole(), "Whole"), ({"state": Trap(trap)}, "Path")):
        path = saved(content, tmp_path / "file.pth")
        with pytest.raises(
            BadInputError, match=f"holds Python objects .*{said}.* only be read by running code"
        ) as caught:
            read_backbone_weights(path)
        assert "weights_only" not in str(caught.value)
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(Trap(trap)))
    with pytest.raises(BadInputError, match="is not a file of tensors that can be read safely"):
        read_backbone_weights(tmp_path / "plain.pth")
    assert not trap.exists()


def test_files_of_other_kinds_are_called_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "backbone.pth"
    hdf5, onnx = b"\x89HDF\r\n\x1a\n" + bytes(100), b"\x08\x0a\x12\x07pytorch" + bytes(100)
    for content, said in (
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>", "is a web page"),
        (b"\n  <html lang=en>", "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a pointer of Git LFS"),
        (hdf5, "is an HDF5 file"),
        (onnx, "is an ONNX file"),
        (b"\x0a\x23\xd7\xce" + bytes(100), "is a RecordIO file"),
        (b"\x1f\x8b" + bytes(100), "is an archive"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "is a picture"),
        (b"not a pickle at all", "is not a file of tensors that can be read safely"),
        (bytes(100), "is not a file of tensors that can be read safely"),
    ):
        path.write_bytes(content)
        with pytest.raises(BadInputError, match=said) as caught:
            read_backbone_weights(path)
        assert caught.value.exit_code == 3
    archive(path, "config.json", "metadata.json", "model.weights.h5")
    with pytest.raises(BadInputError, match="is a model of Keras"):
        read_backbone_weights(path)
    archive(path, "a/backbone.pth")
    with pytest.raises(BadInputError, match="is a zip archive"):
        read_backbone_weights(path)
    with pytest.raises(BadInputError, match="is a folder"):
        read_backbone_weights(tmp_path)
    with pytest.raises(BadInputError, match="cannot be opened: No such file"):
        read_backbone_weights(tmp_path / "none.pth")


def test_torchscript_is_not_run(tmp_path: Path) -> None:
    archive(tmp_path / "x.pt", "x/data.pkl", "x/code/__torch__.py", "x/constants.pkl")
    with pytest.raises(BadInputError, match="is a TorchScript program"):
        read_backbone_weights(tmp_path / "x.pt")


def test_files_that_would_unfold_are_refused(mbf: Backbone, tmp_path: Path) -> None:
    archive(tmp_path / "bomb.pth", "x/data.pkl", "x/data/0", compressed=True)
    with pytest.raises(BadInputError, match="would unfold to more bytes than it has"):
        read_backbone_weights(tmp_path / "bomb.pth")
    # One number that claims to be a table of a billion.
    state = dict(mbf.state_dict()) | {"features.layers.2.weight": torch.zeros(1).expand(2**20, 2**10)}
    with pytest.raises(BadInputError, match=r"claims to hold 4,\d+,\d+,\d+ bytes"):
        read_backbone_weights(saved(state, tmp_path / "expanded.pth"))


def test_a_file_cut_off_anywhere_is_refused_as_bad_input(mbf: Backbone, tmp_path: Path) -> None:
    content = saved({"fc.bias": torch.zeros(1000)}, tmp_path / "whole.pth").read_bytes()
    path = tmp_path / "cut.pth"
    for length in range(1, len(content), len(content) // 40):
        path.write_bytes(content[:length])
        with pytest.raises(BadInputError):
            read_backbone_weights(path)
    tensors = b"".join(bytes(piece) for piece in tensor_pieces({"fc.bias": torch.zeros(1000)}))
    for length in range(1, len(tensors), len(tensors) // 40):
        path.write_bytes(tensors[:length])
        with pytest.raises(BadInputError):
            read_backbone_weights(path)


def test_numbers_that_are_not_finite_are_refused_with_their_name(mbf: Backbone, tmp_path: Path) -> None:
    state = dict(mbf.state_dict()) | {"conv_sep.layers.1.bias": torch.full((512,), torch.nan)}
    with pytest.raises(BadInputError, match=r"not finite, in conv_sep\.layers\.1\.bias"):
        read_backbone_weights(saved(state, tmp_path / "nan.pth"))


def test_names_of_files_are_shown_safely(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31mred.pth"
    path.write_bytes(b"")
    with pytest.raises(BadInputError) as caught:
        read_backbone_weights(path)
    assert "\x1b" not in str(caught.value)
