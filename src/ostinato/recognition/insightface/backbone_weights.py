"""Weights of a backbone, from the files of several programs and to the one that they all read."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ostinato.data.file_names import shown_name
from ostinato.errors import BadInputError, ModelMismatchError
from ostinato.recognition.backbones import Backbone, backbone_names
from ostinato.recognition.backbones.factory import old_mobilefacenet_shapes, state_shapes
from ostinato.recognition.insightface.mxnet_network import from_mxnet_network
from ostinato.recognition.insightface.tensor_files import check_unfolding, read_file, tensors_by_name
from ostinato.runs.atomic import Files

_log = logging.getLogger(__name__)

_PREFIXES = ("module.", "_orig_mod.")
"""What wrappers for several GPUs, and compiled networks, put before names."""

_SHOWN = 4
"""How many names of a kind a message lists."""

_DEEPEST = "r2060"
"""Its names take seconds to list, so it is only thought of for files of thousands of entries."""


def read_backbone_weights(path: str | Path, *, network: str | None = None) -> dict[str, Tensor]:
    """Read the weights of a backbone.

    Read are: state dictionaries of ``torch.save`` (``model.pt``, ``backbone.pth``), also as part of a training's state
    (``checkpoint_gpu_0.pt``) and behind the ``module.`` of a wrapper; ``.safetensors``; and the ``.params`` of MXNet's
    residual networks, which are turned into PyTorch's names and input range. Nothing of a file is executed.

    :param network: the backbone that the weights must fit; None for any of :func:`backbone_names`.
    :returns: float32 tensors on the CPU, in memory of their own, in the published order: what
        :meth:`torch.nn.Module.load_state_dict` of that backbone takes.
    :raises BadInputError: the file cannot be read, or is something else; the message says what. Field: ``path``.
    :raises ModelMismatchError: it holds another network, or one that is none of ours; the message lists what is missing
        and what is too much. Fields: ``found`` (names of the backbones that fit), ``asked``, ``path``.
    """
    path = Path(path)
    kind, content = read_file(path)
    source = shown_name(path)
    if kind == "mxnet":
        weights = from_mxnet_network(content, path)
    else:
        weights = _without_prefixes(_state_dictionary(content, path), source)
        check_unfolding(weights.values(), path)
    fitting = backbones_that_fit(weights)
    if fitting and network is not None and network not in fitting:
        raise ModelMismatchError(
            f"{source} holds the weights of {fitting[0]}, and {network} was asked for.",
            advice=f"Choose the network {fitting[0]}, or pass weights of {network}.",
            found=fitting,
            asked=network,
            path=str(path),
        )
    if not fitting:
        raise _unknown(weights, network, source, path)
    return {name: _own(name, weights[name], path) for name in _shapes(network or fitting[0], weights)}


def load_backbone_weights(backbone: Backbone, weights: Mapping[str, Tensor], *, source: str = "The weights") -> None:
    """Put weights into a backbone, all of them or none.

    :param source: what messages call them, such as the file's name.
    :raises ModelMismatchError: a name is missing or too much, or a shape differs, such as for another embedding size.
        Fields: ``found``, ``asked``.
    """
    asked = {name: tuple(value.shape) for name, value in backbone.state_dict().items()}
    problems = _differences(weights, asked)
    if problems:
        fitting = backbones_that_fit(weights)
        found = f" They fit {fitting[0]} with embeddings of {embedding_size_of(weights)} numbers." if fitting else ""
        raise ModelMismatchError(
            f"{source}: the weights do not fit {backbone.name} with embeddings of {backbone.embedding_size} numbers: "
            f"{problems}.{found}",
            advice="Choose the network and the embedding size that they were made for, or other weights.",
            found=fitting,
            asked=backbone.name,
        )
    backbone.load_state_dict(dict(weights), strict=True)


def write_backbone_weights(weights: nn.Module | Mapping[str, Tensor], path: str | Path) -> None:
    """Write a ``.pth`` that InsightFace loads: a plain state dictionary, float32, on the CPU.

    :param weights: a backbone or its state dictionary.
    :param path: replaced in one step.
    """
    state = weights.state_dict() if isinstance(weights, nn.Module) else weights
    plain = {name: _plain(value) for name, value in state.items()}
    buffer = io.BytesIO()
    torch.save(plain, buffer)
    Files().replace(Path(path), lambda: [buffer.getbuffer()])


def backbones_that_fit(weights: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The backbones whose names and shapes are exactly those of the weights, for the weights' own embedding size.

    Variants of a vision transformer differ in training alone, so several may fit.
    """
    return tuple(name for name in _thinkable(weights) if not _differences(weights, _shapes(name, weights)))


def embedding_size_of(weights: Mapping[str, Tensor]) -> int:
    """Numbers in an embedding, according to the last batch norm; 512 where there is none of the known names."""
    for name in ("features.bias", "features.layers.3.bias", "feature.3.bias"):
        if name in weights and weights[name].dim() == 1 and len(weights[name]):
            return len(weights[name])
    return 512


def _thinkable(weights: Mapping[str, Tensor]) -> list[str]:
    return [name for name in backbone_names() if name != _DEEPEST or len(weights) > 4000]


def _shapes(network: str, weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return state_shapes(network, embedding_size_of(weights))


def _state_dictionary(content: Any, path: Path) -> dict[str, Tensor]:
    """Find the backbone's state in what a file holds, or say what the file is."""
    if isinstance(content, dict):
        if "pytorch-lightning_version" in content:
            raise _is(
                path,
                "is a checkpoint of Lightning, with a whole training in it",
                "In a program that can load it, save the backbone alone: torch.save(backbone.state_dict(), ...)",
            )
        for part in ("state_dict_backbone", "state_dict"):
            if part in content:
                found = tensors_by_name(content[part])
                if found is not None:
                    return found
        if {"state", "param_groups"} <= content.keys():
            raise _is(path, "is the state of an optimizer", "Pass the weights that lie beside it, often model.pt")
        if content.keys() == {"weight"}:
            raise _is(path, "holds class centres, not a backbone", "Pass it where class centres are asked for")
    if isinstance(content, Tensor):
        raise _is(
            path,
            f"holds a single tensor of shape {list(content.shape)}, such as class centres",
            "Pass class centres where those are asked for, and here the file of the backbone",
        )
    found = tensors_by_name(content)
    if found is None:
        raise _is(
            path, "holds something else than tensors by name", "Pass a file of torch.save(network.state_dict(), ...)"
        )
    return found


def _is(path: Path, what: str, advice: str) -> BadInputError:
    return BadInputError(
        f"{shown_name(path)} {what}, and the weights of a backbone were expected.", advice=f"{advice}.", path=str(path)
    )


def _without_prefixes(weights: dict[str, Tensor], source: str) -> dict[str, Tensor]:
    for prefix in _PREFIXES * 2:
        if all(name.startswith(prefix) for name in weights):
            _log.warning(
                "%s: every name begins with %r, which a wrapper has put there; it was taken off.", source, prefix
            )
            weights = {name.removeprefix(prefix): value for name, value in weights.items()}
    return weights


def _differences(weights: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Say in which names and shapes the weights differ; nothing where they do not."""
    missing = [name for name in shapes if name not in weights]
    unexpected = [name for name in weights if name not in shapes]
    others = [
        f"{name} is {list(weights[name].shape)} and should be {list(shape)}"
        for name, shape in shapes.items()
        if name in weights and tuple(weights[name].shape) != shape
    ]
    parts = [
        _listed(missing, "missing"),
        _listed(unexpected, "too much"),
        _listed(others, "of another shape"),
    ]
    return "; ".join(part for part in parts if part)


def _listed(names: Sequence[str], what: str) -> str:
    if not names:
        return ""
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} {what} ({', '.join(names[:_SHOWN])}{more})"


def _unknown(weights: Mapping[str, Tensor], asked: str | None, source: str, path: Path) -> ModelMismatchError:
    for network, blocks in (("mbf", (1, 4, 6, 2)), ("mbf_large", (2, 8, 12, 4))):
        if not _differences(weights, old_mobilefacenet_shapes(blocks, embedding_size_of(weights))):
            return ModelMismatchError(
                f"{source} holds a MobileFaceNet of scale 1, as {network} meant before 22 July 2021: its layers "
                f"have fewer channels than those of today's {network}.",
                advice="It cannot be continued here. Take newer weights, or train mbf anew.",
                found=(),
                asked=asked,
                path=str(path),
            )

    def count(network: str) -> int:
        shapes = _shapes(network, weights)
        same = sum(name in weights and tuple(weights[name].shape) == shape for name, shape in shapes.items())
        return len(weights) + len(shapes) - 2 * same

    network = asked or min(_thinkable(weights), key=count)
    shapes = _shapes(network, weights)
    if not weights.keys() & shapes.keys():
        first = ", ".join(f"{name} {list(value.shape)}" for name, value in list(weights.items())[:3])
        return ModelMismatchError(
            f"{source} holds no weights of a backbone: none of its {len(weights)} names is one of {network}'s. It "
            f"begins with {first}.",
            advice="Pass the backbone's own file, often called model.pt or backbone.pth.",
            found=(),
            asked=asked,
            path=str(path),
        )
    verdict = "does not fit" if asked else "fits no backbone. The nearest is"
    return ModelMismatchError(
        f"{source} {verdict} {network}: {_differences(weights, shapes)}.",
        advice=f"Pass weights of one of: {', '.join(backbone_names())}.",
        found=(),
        asked=asked,
        path=str(path),
    )


def _own(name: str, value: Tensor, path: Path) -> Tensor:
    plain = _plain(value)
    if plain.is_floating_point() and not bool(torch.isfinite(plain).all()):
        raise BadInputError(
            f"{shown_name(path)} holds numbers that are not finite, in {name}.",
            advice="The training that wrote it had failed; take an earlier file.",
            path=str(path),
        )
    return plain


def _plain(value: Tensor) -> Tensor:
    """The tensor on the CPU in C order and in memory of its own; float32, or int64 for counters."""
    dtype = torch.float32 if value.is_floating_point() else torch.int64
    return value.detach().to("cpu", dtype).clone(memory_format=torch.contiguous_format)
