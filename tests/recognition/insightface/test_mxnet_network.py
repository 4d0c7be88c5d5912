"""MXNet's residual networks: the converted backbone gives what a direct computation of MXNet's network gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from formula_backbone import formula_entry, formula_tensor
from torch import Tensor
from torch.nn import functional

from ostinato.errors import BadInputError
from ostinato.optim.mxnet_files import read_array_list, write_array_list
from ostinato.recognition.backbones import build_backbone
from ostinato.recognition.backbones.factory import state_shapes
from ostinato.recognition.insightface import backbones_that_fit, load_backbone_weights, read_backbone_weights
from ostinato.recognition.insightface.mxnet_network import from_mxnet_network

Arrays = dict[str, Tensor]
EMBEDDING = 6


def mxnet_shapes(blocks: tuple[int, int, int, int]) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of MXNet's network, by its names."""
    shapes: dict[str, tuple[int, ...]] = {"arg:conv0_weight": (64, 3, 3, 3), "arg:relu0_gamma": (64,)}

    def norm(name: str, channels: int) -> None:
        for part, kind in (("gamma", "arg"), ("beta", "arg"), ("moving_mean", "aux"), ("moving_var", "aux")):
            shapes[f"{kind}:{name}_{part}"] = (channels,)

    norm("bn0", 64)
    inputs = 64
    for stage, (count, outputs) in enumerate(zip(blocks, (64, 128, 256, 512), strict=True), 1):
        for number in range(1, count + 1):
            unit = f"stage{stage}_unit{number}"
            norm(f"{unit}_bn1", inputs)
            norm(f"{unit}_bn2", outputs)
            norm(f"{unit}_bn3", outputs)
            shapes[f"arg:{unit}_conv1_weight"] = (outputs, inputs, 3, 3)
            shapes[f"arg:{unit}_relu1_gamma"] = (outputs,)
            shapes[f"arg:{unit}_conv2_weight"] = (outputs, outputs, 3, 3)
            if number == 1:
                shapes[f"arg:{unit}_conv1sc_weight"] = (outputs, inputs, 1, 1)
                norm(f"{unit}_sc", outputs)
            inputs = outputs
    norm("bn1", 512)
    norm("fc1", EMBEDDING)
    return shapes | {"arg:pre_fc1_weight": (EMBEDDING, 25088), "arg:pre_fc1_bias": (EMBEDDING,)}


def mxnet_arrays() -> Arrays:
    """The arrays of MXNet's network of 18 layers, filled by formula."""
    kinds = {"moving_mean": "running_mean", "moving_var": "running_var", "beta": "bias", "bias": "bias"}
    arrays = {}
    for number, (name, shape) in enumerate(mxnet_shapes((2, 2, 2, 2)).items(), 1):
        kind = next((kind for end, kind in kinds.items() if name.endswith(end)), "norm_weight")
        kind = "matrix" if len(shape) > 1 else "prelu" if "relu" in name else kind
        arrays[name] = formula_entry(kind, number, shape).float()
    return arrays


def mxnet_embeddings(arrays: Arrays, pixels: Tensor) -> Tensor:
    """MXNet's network as its description says, in float64, from bytes 0 to 255."""
    values = {name.split(":")[1]: array.double() for name, array in arrays.items()}

    def norm(name: str, x: Tensor, *, fixed: bool = False) -> Tensor:
        gamma = torch.ones_like(values[f"{name}_gamma"]) if fixed else values[f"{name}_gamma"]
        mean, variance, beta = (values[f"{name}_{part}"] for part in ("moving_mean", "moving_var", "beta"))
        return functional.batch_norm(x, mean, variance, gamma, beta, eps=2e-5)

    x = (pixels - 127.5) * 0.0078125
    x = functional.conv2d(x, values["conv0_weight"], padding=1)
    x = functional.prelu(norm("bn0", x), values["relu0_gamma"])
    for stage in range(1, 5):
        number = 1
        while f"stage{stage}_unit{number}_conv1_weight" in values:
            unit, stride = f"stage{stage}_unit{number}", 2 if number == 1 else 1
            shortcut = x
            if number == 1:
                shortcut = norm(f"{unit}_sc", functional.conv2d(x, values[f"{unit}_conv1sc_weight"], stride=stride))
            x = functional.conv2d(norm(f"{unit}_bn1", x), values[f"{unit}_conv1_weight"], padding=1)
            x = functional.prelu(norm(f"{unit}_bn2", x), values[f"{unit}_relu1_gamma"])
            x = functional.conv2d(x, values[f"{unit}_conv2_weight"], stride=stride, padding=1)
            x = norm(f"{unit}_bn3", x) + shortcut
            number += 1
    x = functional.linear(norm("bn1", x).flatten(1), values["pre_fc1_weight"], values["pre_fc1_bias"])
    return norm("fc1", x, fixed=True)


def written(arrays: Arrays | list[Tensor], path: Path) -> Path:
    with path.open("wb") as file:
        write_array_list(file, arrays)
    return path


def test_a_converted_network_gives_the_embeddings_of_mxnets_for_the_same_picture(tmp_path: Path) -> None:
    arrays = mxnet_arrays() | {"arg:fc7_weight": torch.zeros(10, EMBEDDING)}
    weights = read_backbone_weights(written(arrays, tmp_path / "model-0000.params"), network="r18")
    backbone = build_backbone("r18", embedding_size=EMBEDDING, seed=0)
    load_backbone_weights(backbone, weights)
    backbone.eval().double()
    pixels = formula_tensor(9, 1, 3, 112, 112, low=0, high=255).round()
    with torch.no_grad():
        found = backbone((pixels - 127.5) / 127.5)
        expected = mxnet_embeddings(arrays, pixels)
    # What is left is the rounding of the stem's weights and of the variances to float32.
    assert torch.linalg.vector_norm(found - expected) < 1e-6 * torch.linalg.vector_norm(expected)


@pytest.mark.parametrize(("blocks", "name"), [((3, 4, 14, 3), "r50"), ((3, 13, 30, 3), "r100"), ((3, 4, 6, 3), "r34")])
def test_networks_with_a_counterpart_are_known_by_their_blocks(blocks: tuple[int, int, int, int], name: str) -> None:
    arrays = {key: torch.empty(shape, device="meta") for key, shape in mxnet_shapes(blocks).items()}
    weights = from_mxnet_network(arrays, Path("model-0000.params"))
    assert backbones_that_fit(weights) == (name,)


def test_networks_without_a_counterpart_are_refused_with_their_blocks() -> None:
    arrays = {key: torch.empty(shape, device="meta") for key, shape in mxnet_shapes((3, 13, 48, 3)).items()}
    with pytest.raises(BadInputError, match=r"with 3, 13, 48, 3 blocks, and no backbone here does"):
        from_mxnet_network(arrays, Path("model-0000.params"))


def test_arrays_of_other_networks_are_refused_by_name(tmp_path: Path) -> None:
    for name in ("arg:stage1_unit1_se_pool1_weight", "conv_1_conv2d_weight", "arg:stage1_unit0_conv1_weight"):
        path = written({name: torch.zeros(2)}, tmp_path / "model.params")
        with pytest.raises(BadInputError, match=f"holds the MXNet array '{name.removeprefix('arg:')}'"):
            read_backbone_weights(path)


def test_a_list_of_arrays_without_names_is_taken_for_centres(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="list of 1 MXNet arrays without names, such as class centres"):
        read_backbone_weights(written([torch.zeros(3, 2)], tmp_path / "0_centers.param"))


def test_an_incomplete_network_is_refused_by_the_names_that_are_missing() -> None:
    arrays = {key: torch.zeros(shape) for key, shape in mxnet_shapes((2, 2, 2, 2)).items() if "pre_fc1" not in key}
    weights = from_mxnet_network(arrays, Path("model.params"))
    assert backbones_that_fit(weights) == ()
    assert {"fc.weight", "fc.bias"} == set(state_shapes("r18", EMBEDDING)) - set(weights)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = written({"arg:conv0_weight": torch.zeros(64, 3, 3, 3)}, tmp_path / "model.params")
    assert isinstance(read_array_list(path), dict)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BadInputError, match="at byte"):
        read_backbone_weights(path)
