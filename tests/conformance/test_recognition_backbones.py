"""The backbones against golden states and outputs (tolerances from the golden README and section 2.5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from formula_backbone import fill_by_formula, formula_entry, formula_pictures, kind_of
from torch import nn

from ostinato.recognition.backbones import build_backbone
from ostinato.recognition.backbones.factory import build_empty_backbone

NETWORKS = {"r18": "iresnet18", "r50": "iresnet50", "mbf": "mobilefacenet", "vit_t": "vit_t"}
FIRST_VALUES = {
    "r18": (-4.38665485, -2.58310531, -6.44770865, 4.62808434),
    "r50": (3581.59288178, 282.10102817, -1267.31435815, -386.65644112),
    "mbf": (0.14921719, -0.87365855, -0.23929224, 0.91050284),
    "vit_t": (0.99207853, 0.87019000, -1.36069571, 0.09001091),
}


def state(golden: Path, name: str) -> dict[str, Any]:
    return json.loads((golden / "recognition" / "backbones" / f"{NETWORKS[name]}_state_dict.json").read_text())


@pytest.mark.parametrize("name", NETWORKS)
def test_names_shapes_order_and_dtypes_are_the_published_ones(golden: Path, name: str) -> None:
    expected = state(golden, name)
    backbone = build_empty_backbone(name, embedding_size=expected["num_features"])
    assert [(key, list(value.shape), str(value.dtype)) for key, value in backbone.state_dict().items()] == [
        (entry["key"], entry["shape"], f"torch.{entry['dtype']}") for entry in expected["state_dict"]
    ]
    parameters = list(backbone.parameters())
    assert sum(parameter.numel() for parameter in parameters) == expected["parameters"]
    assert sum(parameter.numel() for parameter in parameters if parameter.requires_grad) == expected["trainable"]
    assert sum(buffer.numel() for buffer in backbone.buffers()) == expected["buffers"]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_formula_of_these_tests_is_that_of_the_golden_states(golden: Path, name: str) -> None:
    backbone = build_empty_backbone(name)
    prelus = frozenset(f"{part}.weight" for part, module in backbone.named_modules() if isinstance(module, nn.PReLU))
    for entry in state(golden, name)["state_dict"]:
        assert kind_of(entry["key"], tuple(entry["shape"]), prelus) == entry["kind"]
    assert formula_entry("running_var", 3, (2,)).min() >= 0.5


@pytest.mark.parametrize("name", NETWORKS)
def test_embeddings_are_the_golden_ones(golden: Path, name: str) -> None:
    expected = np.load(golden / "recognition" / "backbones" / f"{NETWORKS[name]}_output.npz")
    backbone = build_backbone(name, seed=0).eval().double()
    fill_by_formula(backbone)
    pictures = formula_pictures()
    with torch.no_grad():
        double = backbone(pictures).numpy()
        single = backbone.float()(pictures.float()).numpy()
    np.testing.assert_allclose(double[0, :4], FIRST_VALUES[name], atol=6e-9)
    largest = np.abs(expected["embedding_float64"]).max()
    assert np.abs(double - expected["embedding_float64"]).max() <= 1e-9 * largest
    norm = np.linalg.norm(expected["embedding_float32"])
    assert np.linalg.norm(single - expected["embedding_float32"]) < 1e-4 * norm
