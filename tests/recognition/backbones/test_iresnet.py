"""Residual networks: what is fixed, dropout, and the segments of the deepest one."""

from __future__ import annotations

import pytest
import torch
from formula_backbone import formula_pictures
from torch import nn

from ostinato.recognition.backbones import build_backbone, iresnet
from ostinato.recognition.backbones.factory import build_empty_backbone
from ostinato.recognition.backbones.iresnet import IResNet


def small(segments: tuple[int, int, int, int]) -> IResNet:
    """A network with few blocks of which one stage has several."""
    network = IResNet("small", (1, 5, 1, 1), embedding_size=4, dropout=0.0, half_precision=None, segments=segments)
    network.initialize(torch.Generator().manual_seed(0))
    return network


def test_the_scale_of_the_last_norm_is_not_trained_and_its_bias_is() -> None:
    network = build_empty_backbone("r18")
    assert [name for name, parameter in network.named_parameters() if not parameter.requires_grad] == [
        "features.weight"
    ]


def test_dropout_acts_before_the_linear_layer_in_training_alone() -> None:
    network = build_backbone("r18", embedding_size=4, dropout=0.4, seed=0)
    seen: list[torch.Tensor] = []
    network.fc.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        network.train()(formula_pictures(2).float())
        network.eval()(formula_pictures(1).float())
    dropped = (seen[0] == 0).float().mean().item()
    assert dropped == pytest.approx(0.4, abs=0.01)
    assert (seen[1] == 0).float().mean().item() < 0.001


def test_checkpoints_are_one_a_block_where_they_are_asked_for() -> None:
    assert build_empty_backbone("r50").segments == (0, 0, 0, 0)
    assert build_empty_backbone("r50", checkpointing=True).segments == (3, 4, 14, 3)


@pytest.mark.parametrize(("count", "lengths"), [(1, [5]), (2, [2, 3]), (3, [1, 2, 2]), (5, [1] * 5), (9, [1] * 5)])
def test_a_stage_is_cut_into_segments_of_nearly_equal_length(
    count: int, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = small((0, count, 0, 0))
    seen: list[list[nn.Module]] = []

    def note(segment: list[nn.Module], values: torch.Tensor) -> torch.Tensor:
        seen.append(segment)
        return nn.Sequential(*segment)(values)

    monkeypatch.setattr(iresnet, "checkpointed", note)
    network.train()(formula_pictures(2).float())
    assert [len(segment) for segment in seen] == lengths
    assert [block for segment in seen for block in segment] == list(network.layer2)


def test_segments_change_no_number() -> None:
    found = []
    for segments in ((0, 0, 0, 0), (0, 2, 0, 0)):
        network = small(segments).train()
        network(formula_pictures(2).float()).pow(2).sum().backward()
        gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        found.append([*gradients, *network.buffers()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_block_adds_its_input_without_an_activation_after() -> None:
    block = iresnet.ResidualBlock(4, 4, 1, changes=False).eval()
    nn.init.zeros_(block.bn3.weight)
    values = formula_pictures(1).float()[:, :1].expand(1, 4, 112, 112)
    with torch.no_grad():
        assert torch.equal(block(values), values)
