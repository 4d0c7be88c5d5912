from __future__ import annotations

import torch
from torch import nn

from ostinato.optim.groups import decay_groups


def test_only_kernels_decay() -> None:
    layer = nn.Module()
    layer.kernel = nn.Parameter(torch.zeros(2, 3))
    layer.gain = nn.Parameter(torch.zeros(3))
    layer.scale = nn.Parameter(torch.zeros(()))
    layer.position_bias = nn.Parameter(torch.zeros(2, 2))

    decayed, kept = decay_groups(layer.named_parameters(), 0.1)

    assert [p is layer.kernel for p in decayed["params"]] == [True]
    assert len(kept["params"]) == 3
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)


def test_frozen_parameters_are_left_out_and_both_groups_stay() -> None:
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)

    decayed, kept = decay_groups(layer.named_parameters(), 0.0)

    assert len(decayed["params"]) == 1
    assert kept["params"] == []
