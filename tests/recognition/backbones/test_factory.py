"""Names, sizes and first values of the backbones."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.errors import ArgumentValueError
from ostinato.recognition.backbones import backbone_names, build_backbone
from ostinato.recognition.backbones.factory import build_empty_backbone, residual_network_of, state_shapes

# Parameters, trainable parameters and entries of the state, for 512 numbers in an embedding.
SIZES = {
    "r18": (24_025_600, 24_025_088, 187),
    "r34": (34_139_328, 34_138_816, 331),
    "r50": (43_590_848, 43_590_336, 475),
    "r100": (65_156_160, 65_155_648, 925),
    "r200": (118_833_920, 118_833_408, 1807),
    "r2060": (1_122_301_120, 1_122_300_608, 18583),
    "mbf": (2_059_520, 2_059_520, 333),
    "mbf_large": (6_314_880, 6_314_880, 606),
    "vit_t": (19_137_792, 19_137_792, 150),
    "vit_t_dp005_mask0": (19_137_792, 19_137_792, 150),
    "vit_s": (76_023_296, 76_023_296, 150),
    "vit_s_dp005_mask_0": (76_023_296, 76_023_296, 150),
    "vit_b": (113_833_472, 113_833_472, 282),
    "vit_b_dp005_mask_005": (113_833_472, 113_833_472, 282),
    "vit_l_dp005_mask_005": (255_684_352, 255_684_352, 282),
    "vit_h": (756_393_984, 756_393_984, 546),
}


def test_all_published_names_are_known() -> None:
    assert backbone_names() == tuple(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_every_backbone_has_the_published_size(name: str) -> None:
    backbone = build_empty_backbone(name, checkpointing=False)
    if name == "r2060":  # too deep for a checkpoint a block, and for none
        assert backbone.segments == (0, 20, 100, 0)
    parameters = list(backbone.parameters())
    trainable = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    assert (sum(p.numel() for p in parameters), trainable, len(backbone.state_dict())) == SIZES[name]


def test_drop_path_and_masking_are_those_of_the_name() -> None:
    settings = {
        name: (vit.blocks[-1].drop_path.rate, vit.masking, vit.checkpointing)
        for name in SIZES
        if name.startswith("vit")
        for vit in [build_empty_backbone(name)]
    }
    assert settings == {
        "vit_t": (0.1, True, False),
        "vit_t_dp005_mask0": (0.05, False, False),
        "vit_s": (0.1, True, False),
        "vit_s_dp005_mask_0": (0.05, False, False),
        "vit_b": (0.1, True, True),
        "vit_b_dp005_mask_005": (0.05, True, True),
        "vit_l_dp005_mask_005": (0.05, True, True),
        "vit_h": (0.1, False, True),
    }


def test_the_embedding_size_changes_the_last_layers_alone() -> None:
    for name in ("r18", "mbf", "vit_t"):
        small, usual = state_shapes(name, 8), state_shapes(name)
        changed = {key for key in usual if small[key] != usual[key]}
        assert all(key.startswith(("fc.", "features.", "feature.")) for key in changed)
        assert len(changed) == {"r18": 6, "mbf": 5, "vit_t": 5}[name]


@pytest.mark.parametrize("name", ["r18", "mbf", "vit_t"])
def test_a_seed_gives_the_same_weights_and_leaves_the_global_generator_alone(name: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build_backbone(name, embedding_size=4, seed=7)
    assert torch.equal(torch.get_rng_state(), before)
    second = build_backbone(name, embedding_size=4, seed=7)
    other = build_backbone(name, embedding_size=4, seed=8)
    assert all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )
    assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_without_a_seed_the_global_generator_decides() -> None:
    def weights() -> torch.Tensor:
        return build_backbone("mbf", embedding_size=4).layers[0].layers[0].weight

    torch.manual_seed(3)
    first, second = weights(), weights()
    torch.manual_seed(3)
    assert torch.equal(weights(), first)
    assert not torch.equal(first, second)


def test_no_entry_is_left_without_a_first_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(self: nn.Module, **_: Any) -> nn.Module:
        return self._apply(
            lambda t: torch.full(t.shape, math.nan if t.is_floating_point() else -1, dtype=t.dtype, device="cpu")
        )

    monkeypatch.setattr(nn.Module, "to_empty", spoiled)
    for name in ("r18", "mbf", "mbf_large", "vit_t"):
        for key, value in build_backbone(name, embedding_size=4, seed=0).state_dict().items():
            assert bool(torch.isfinite(value).all()), key
            assert int(value.min()) >= 0 or value.is_floating_point(), key


def close(value: float, expected: float, part: float = 0.02) -> bool:
    return abs(value - expected) <= part * expected


def test_first_values_of_residual_networks() -> None:
    state = build_backbone("r18", embedding_size=16, seed=0).state_dict()
    assert close(state["layer4.1.conv1.weight"].std().item(), 0.1)
    assert close(state["layer2.0.downsample.0.weight"].std().item(), 0.1)
    # Uniform, up to 1 / sqrt(25088), as PyTorch starts every linear layer.
    assert state["fc.weight"].abs().max().item() <= 1 / math.sqrt(25088)
    assert close(state["fc.weight"].std().item(), 1 / math.sqrt(3 * 25088))
    assert set(state["prelu.weight"].tolist()) == {0.25}
    assert set(state["layer1.0.bn2.weight"].tolist()) == set(state["features.weight"].tolist()) == {1.0}
    assert set(state["features.bias"].tolist()) == set(state["bn2.running_mean"].tolist()) == {0.0}
    assert set(state["bn2.running_var"].tolist()) == {1.0}
    assert int(state["bn2.num_batches_tracked"]) == 0


def test_first_values_of_mobile_networks() -> None:
    state = build_backbone("mbf", embedding_size=512, seed=0).state_dict()
    assert close(state["conv_sep.layers.0.weight"].std().item(), math.sqrt(2 / 512))
    assert close(state["features.layers.2.weight"].std().item(), math.sqrt(2 / 512))
    # One channel of output for each of input, 49 numbers: the fan out is 512 * 49 / 512 groups in PyTorch's count.
    assert close(state["features.layers.0.layers.0.weight"].std().item(), math.sqrt(2 / (512 * 49)), 0.03)
    assert set(state["layers.0.layers.2.weight"].tolist()) == {0.25}


def test_first_values_of_transformers() -> None:
    state = build_backbone("vit_t", embedding_size=16, seed=0).state_dict()
    for key in ("blocks.3.attn.qkv.weight", "blocks.0.mlp.fc2.weight", "pos_embed", "feature.0.weight"):
        assert close(state[key].std().item(), 0.02), key
    assert state["mask_token"].std().item() == pytest.approx(0.02, rel=0.2)
    assert state["blocks.0.attn.proj.bias"].abs().max().item() == 0
    assert state["patch_embed.proj.weight"].abs().max().item() <= 1 / math.sqrt(3 * 81)
    assert set(state["norm.weight"].tolist()) == {1.0}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "r51"}, "r50"),
        ({"name": "iresnet100"}, "'r100' here"),
        ({"name": "vit_l"}, "vit_l_dp005_mask_005"),
        ({"name": "R18"}, "Did you mean 'r18'"),
        ({"name": None}, "None"),
        ({"embedding_size": 0}, "embedding_size is 0"),
        ({"embedding_size": True}, "embedding_size is True"),
        ({"embedding_size": 512.0}, "512.0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"dropout": -0.1}, "dropout is -0.1"),
        ({"dropout": math.nan}, "dropout is nan"),
        ({"half_precision": torch.float64}, "half_precision is torch.float64"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentValueError) as caught:
        build_backbone(**{"name": "mbf", **arguments})
    assert said in str(caught.value)


def test_residual_networks_are_found_by_their_blocks() -> None:
    assert residual_network_of((3, 13, 30, 3)) == "r100"
    assert residual_network_of((3, 24, 36, 3)) is None  # MXNet's 200 layers
