"""Residual networks of MXNet's InsightFace, turned into our names and our input range.

The two programs share the topology. They differ in three numbers, all of which are put into the weights:

* MXNet's network takes bytes and computes (x - 127.5) / 128 itself; ours takes (x - 127.5) / 127.5. The first
  convolution is multiplied by 127.5 / 128. (The padding is zero on both sides of that step.)
* Its batch norms add 2e-5 to the variance, ours 1e-5: 1e-5 is added to every running variance.
* Its last batch norm ignores the scale that is stored for it: the scale becomes 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ostinato.recognition.backbones.factory import residual_network_of
from ostinato.recognition.insightface.refusal import refusal

_INPUT_SCALE = 127.5 / 128
_MORE_VARIANCE = 2e-5 - 1e-5

_NORM = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_var": "running_var"}
_UNIT = re.compile(r"stage([1-4])_unit([1-9][0-9]{0,2})_(.+)")
_NORMS_OF_UNIT = {"bn1": "bn1", "bn2": "bn2", "bn3": "bn3", "sc": "downsample.1"}
_OTHERS_OF_UNIT = {
    "conv1_weight": "conv1.weight",
    "relu1_gamma": "prelu.weight",
    "conv2_weight": "conv2.weight",
    "conv1sc_weight": "downsample.0.weight",
}
_NORMS = {"bn0": "bn1", "bn1": "bn2", "fc1": "features"}
_OTHERS = {
    "conv0_weight": "conv1.weight",
    "relu0_gamma": "prelu.weight",
    "pre_fc1_weight": "fc.weight",
    "pre_fc1_bias": "fc.bias",
}
_CLASSIFIER = re.compile(r"fc7(_\d+)?_(weight|bias)")


def from_mxnet_network(content: Mapping[str, Any] | list[Any], path: Path) -> dict[str, Tensor]:
    """Turn the arrays of a ``.params`` file into the state of a residual backbone.

    In evaluation the backbone gives what MXNet's network gives for the same picture, up to float32 rounding.

    :param content: as :func:`~ostinato.optim.mxnet_files.read_array_list` gives it.
    :param path: for messages.
    :raises BadInputError: they are not those of a residual network with a counterpart here. Field: ``path``.
    """
    if isinstance(content, list):
        raise refusal(
            path,
            f"is a list of {len(content)} MXNet arrays without names, such as class centres",
            "Pass class centres where those are asked for, and here the network's file, often model-0000.params",
        )
    weights: dict[str, Tensor] = {}
    blocks = [0, 0, 0, 0]
    for full_name, value in content.items():
        name = re.sub(r"^(arg|aux):", "", full_name)
        if _CLASSIFIER.fullmatch(name):
            continue  # the classes of a training that kept them in the network
        ours = _our_name(name)
        if ours is None or not isinstance(value, Tensor):
            raise refusal(
                path,
                f"holds the MXNet array {name!r}, which no residual network of unit version 3 has",
                "Only networks such as r50 and r100 of MXNet's InsightFace can be read",
            )
        unit = _UNIT.fullmatch(name)
        if unit is not None:
            stage = int(unit.group(1)) - 1
            blocks[stage] = max(blocks[stage], int(unit.group(2)))
        weights[ours] = _converted(ours, value)
    if residual_network_of(tuple(blocks)) is None:
        raise refusal(
            path,
            f"holds a residual network of MXNet with {', '.join(map(str, blocks))} blocks, and no backbone here does",
            "Networks with 18, 34, 50 and 100 layers have a counterpart",
        )
    norms = [name.removesuffix("running_var") for name in weights if name.endswith("running_var")]
    return weights | {f"{norm}num_batches_tracked": torch.zeros((), dtype=torch.int64) for norm in norms}


def _our_name(name: str) -> str | None:
    unit = _UNIT.fullmatch(name)
    if unit is not None:
        stage, number, rest = unit.groups()
        inside = _named(rest, _NORMS_OF_UNIT, _OTHERS_OF_UNIT)
        return None if inside is None else f"layer{stage}.{int(number) - 1}.{inside}"
    return _named(name, _NORMS, _OTHERS)


def _named(name: str, norms: Mapping[str, str], others: Mapping[str, str]) -> str | None:
    if name in others:
        return others[name]
    norm, _, part = name.partition("_")
    return f"{norms[norm]}.{_NORM[part]}" if norm in norms and part in _NORM else None


def _converted(ours: str, value: Tensor) -> Tensor:
    wide = value.double()
    if ours == "conv1.weight":
        wide = wide * _INPUT_SCALE
    elif ours == "features.weight":
        wide = torch.ones_like(wide)
    elif ours.endswith("running_var"):
        wide = wide + _MORE_VARIANCE
    return wide.float()
