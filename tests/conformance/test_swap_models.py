"""The models original and lightweight against golden outputs (tolerance 1e-4, from the golden README)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ostinato.config import InitializationOptions, ModelOptions, NetworkOptions
from ostinato.swap.models import SwapModel, build_model, keras_weights, load_keras_weights
from ostinato.swap.models.initializers import convolution_aware_kernel, icnr
from ostinato.swap.models.layers import Convolution, PixelShuffler, SigmoidOutput

TOLERANCE = 1e-4
CASES = ["original", "original-lowmem", "original-mask", "original-reflect", "lightweight", "lightweight-mask"]


def formula(count: int, stream: int) -> NDArray[np.float64]:
    """v(i, stream) of the golden README, for i = 0 .. count - 1."""
    x = (np.arange(1, count + 1, dtype=np.uint64) * 2654435761 + stream * 2246822519).astype(np.uint32)
    x ^= x >> np.uint32(16)
    x *= np.uint32(2246822507)
    x ^= x >> np.uint32(13)
    x *= np.uint32(3266489909)
    x ^= x >> np.uint32(16)
    return x.astype(np.float64) / 2**31 - 1


def formula_weight(
    shape: tuple[int, ...], path: str, stream: int, out_gain: float = 1.0, period: int | None = None
) -> NDArray[np.float32]:
    count = math.prod(shape)
    values = formula(count, stream) if period is None else np.resize(formula(period, stream), count)
    *_, layer, kind = path.split("/")
    values *= 0.1 if kind == "bias" else math.sqrt(6 / math.prod(shape[:-1]))
    if kind == "kernel" and layer.startswith(("face_out", "mask_out")):
        values *= out_gain
    return values.astype(np.float32).reshape(shape)


def formula_input(size: int, side: str) -> NDArray[np.float32]:
    phase, stream = {"a": (0, 900001), "b": (1, 900002)}[side]
    h, w, c = np.meshgrid(np.arange(size), np.arange(size), np.arange(3), indexing="ij")
    waves = 0.5 + 0.3 * np.sin(0.21 * h * (1 + 0.5 * c) + 0.13 * w + phase)
    noise = 0.2 * formula(size * size * 3, stream).reshape(size, size, 3)
    return (waves + noise).astype(np.float32)


def read(golden: Path, name: str) -> dict[str, Any]:
    return json.loads((golden / "swap-models" / f"{name}.json").read_text())


def unfilled(case: dict[str, Any]) -> SwapModel:
    """The model of a golden case, with weights of its own. It speaks BGR, as golden weights do."""
    return build_model(
        case["plugin"],
        model=ModelOptions(name=case["plugin"], lowmem=case["options"].get("lowmem", False)),
        initialization=InitializationOptions(),
        network=NetworkOptions(reflect_padding=case["global_options"].get("reflect_padding", False)),
        learn_mask=case["loss_options"].get("learn_mask", False),
        seed=0,
        color_order=case["color_order"],
    ).eval()


def build(case: dict[str, Any], *, period: int | None = None) -> SwapModel:
    model = unfilled(case)
    weights = {
        w["path"]: formula_weight(tuple(w["shape"]), w["path"], w["k"], case["out_gain"], period)
        for w in case["weights"]
    }
    load_keras_weights(model, weights)
    return model


def rgb_inputs() -> torch.Tensor:
    """The golden inputs of both sides, turned to RGB: (2, 1, 3, 64, 64)."""
    stacked = np.stack([formula_input(64, side)[None, :, :, ::-1] for side in "ab"])
    return torch.from_numpy(stacked.copy()).permute(0, 1, 4, 2, 3)


def golden_layout(output: torch.Tensor) -> NDArray[np.float32]:
    """A face or mask as (H, W, C), faces in BGR."""
    picture = output[0].permute(1, 2, 0).detach().numpy()
    return picture[:, :, ::-1] if picture.shape[2] == 3 else picture


@pytest.mark.parametrize("name", CASES)
def test_outputs_features_and_swaps(golden: Path, name: str) -> None:
    case = read(golden, name)
    expected = np.load(golden / "swap-models" / f"{name}.npz")
    model = build(case)
    inputs = rgb_inputs()

    with torch.no_grad():
        outputs = [output for side in model(inputs) for output in side]
        features = [model.encode(inputs[side]).permute(0, 2, 3, 1).flatten().numpy() for side in (0, 1)]

    assert len(outputs) == len(case["outputs"])
    for index, output in enumerate(outputs):
        np.testing.assert_allclose(
            golden_layout(output), expected[f"out{index}_grid"].reshape(64, 64, -1), rtol=0, atol=TOLERANCE
        )
    for call, values in enumerate(features):
        (intermediate,) = [i for i in case["intermediates"] if i["name"] == f"encoder.{call}.0"]
        sampled = values[:: intermediate["sample_step"]][:256]
        np.testing.assert_allclose(sampled, expected[f"mid_encoder.{call}.0"], rtol=0, atol=TOLERANCE)
    swaps = np.load(golden / "swap-models" / "swaps.npz")
    if f"{name}_a_to_b_0" in swaps:
        for direction in ("a_to_b", "b_to_a"):  # both of the face of side a
            (swapped, *_) = model.inference_model(direction[-1])(inputs[0])
            wanted = swaps[f"{name}_{direction}_0"].reshape(32, 32, 3)
            np.testing.assert_allclose(golden_layout(swapped)[::2, ::2], wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", CASES)
def test_names_shapes_and_counts(golden: Path, name: str) -> None:
    case = read(golden, name)
    model = unfilled(case)
    ours = {weight.path: weight.shape for weight in keras_weights(model)}
    assert ours == {weight["path"]: tuple(weight["shape"]) for weight in case["weights"]}
    assert sum(parameter.numel() for parameter in model.parameters()) == case["parameters"]
    for part in case["submodels"]:
        assert sum(p.numel() for p in model.get_submodule(part["name"]).parameters()) == part["parameters"]
    weighted = {layer["name"] for graph in case["graph"][1:] for layer in graph["layers"]} & {
        path.split("/")[1] for path in model.keras_layer_names()
    }
    assert weighted == {path.split("/")[1] for path in model.keras_layer_names()}


def test_the_outputs_of_a_saved_model(golden: Path) -> None:
    expected = np.load(golden / "swap-models" / "lightweight.keras.npz")
    model = build({**read(golden, "lightweight"), "out_gain": 1.0}, period=4093)
    inputs = rgb_inputs()
    with torch.no_grad():
        outputs = [output for side in model(inputs) for output in side]
    for index, output in enumerate(outputs):
        np.testing.assert_allclose(golden_layout(output), expected[f"out{index}"].reshape(64, 64, 3), atol=TOLERANCE)
    (swapped,) = model.inference_model("b")(inputs[0])
    wanted = expected["swap_a_to_b_of_input_a_0"].reshape(64, 64, 3)
    np.testing.assert_allclose(golden_layout(swapped), wanted, rtol=0, atol=TOLERANCE)


BLOCKS = {
    "conv_default_even": lambda: [Convolution(6, 8, 5, 2), torch.nn.LeakyReLU(0.1)],
    "conv_default_odd": lambda: [Convolution(6, 8, 5, 2), torch.nn.LeakyReLU(0.1)],
    "conv_reflect_even": lambda: [Convolution(6, 8, 5, 2, reflect=True), torch.nn.LeakyReLU(0.1)],
    "conv_reflect_odd": lambda: [Convolution(6, 8, 5, 2, reflect=True), torch.nn.LeakyReLU(0.1)],
    "upscale": lambda: [Convolution(6, 32, 3), torch.nn.LeakyReLU(0.1), PixelShuffler(2)],
    "upscale_k5_none": lambda: [Convolution(6, 32, 5), PixelShuffler(2)],
    "upscale_reflect": lambda: [Convolution(6, 32, 3, reflect=True), torch.nn.LeakyReLU(0.1), PixelShuffler(2)],
    "conv_output": lambda: [Convolution(8, 3, 5), SigmoidOutput()],
    "pixel_shuffler_2": lambda: [PixelShuffler(2)],
    "pixel_shuffler_3": lambda: [PixelShuffler(3)],
}


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_building_blocks(golden: Path, name: str) -> None:
    (case,) = [case for case in read(golden, "blocks")["cases"] if case["case"] == name]
    expected = np.load(golden / "swap-models" / "blocks.npz")[name]
    layers = torch.nn.Sequential(*BLOCKS[name]())
    convolution = layers[0]
    weights = {
        w["path"].split("/")[1]: torch.from_numpy(formula_weight(tuple(w["shape"]), w["path"], w["k"]))
        for w in case["weights"]
    }
    shape = tuple(case["input_shapes"][0])
    x = torch.from_numpy(formula(math.prod(shape), 900001).astype(np.float32).reshape(shape)).permute(0, 3, 1, 2)
    is_turned = isinstance(convolution, Convolution) and convolution.is_turned
    with torch.no_grad():
        if isinstance(convolution, Convolution):
            kernel = weights["kernel"].permute(3, 2, 0, 1)
            convolution.weight.copy_(kernel.flip(2, 3) if is_turned else kernel)
            convolution.bias.copy_(weights["bias"])
        y = layers(x.flip(2, 3)).flip(2, 3) if is_turned else layers(x)
    np.testing.assert_allclose(y.permute(0, 2, 3, 1).numpy(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", ["3x3x16x8", "5x5x3x16", "1x1x8x4", "4x4x6x5", "3x3x40x3", "eps0_3x3x16x8"])
def test_convolution_aware_kernels(golden: Path, shape: str) -> None:
    expected = np.load(golden / "swap-models" / "initializers.npz")[f"convaware_seed7_{shape}"]
    height, width, inputs, filters = expected.shape
    noise = 0.0 if shape.startswith("eps0") else 0.05
    kernel = convolution_aware_kernel((filters, inputs, height, width), np.random.RandomState(7), noise)
    np.testing.assert_allclose(kernel.transpose(2, 3, 1, 0), expected, rtol=1e-4, atol=1e-5)


def test_icnr_order(golden: Path) -> None:
    expected = np.load(golden / "swap-models" / "initializers.npz")["icnr_of_counting_2x2x3x16"]

    def count(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        filters, inputs, height, width = shape
        counted = torch.arange(math.prod(shape), dtype=torch.float32).view(height, width, inputs, filters)
        return counted.permute(3, 2, 0, 1)

    kernel = icnr(count, 2)((16, 3, 2, 2), torch.Generator())
    np.testing.assert_array_equal(kernel.permute(2, 3, 1, 0).numpy(), expected)
