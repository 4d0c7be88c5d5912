"""The weights of ``lpips`` losses, from files that the user has."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import BadInputError
from ostinato.swap.losses.lpips_networks import NETWORKS, Network

LARGEST_FILE = 2**30
"""Bytes. The largest file that is published, all of VGG16, has half of that."""

_log = logging.getLogger(__name__)

_CHECKSUM_IN_NAME = re.compile(r"-([0-9a-f]{8,64})\.pth?$")


@dataclass(frozen=True)
class LpipsWeights:
    """What an ``lpips`` loss needs.

    :ivar network: the name of the loss.
    :ivar trunk: tensors of the trunk by torchvision's names (``features.0.weight``), float32.
    :ivar head: for each map that is compared, the weights of its channels, (1, C, 1, 1), float32.
    """

    network: str
    trunk: dict[str, Tensor]
    head: tuple[Tensor, ...]


@dataclass(frozen=True)
class _File:
    """A file that was read: what it is, ``trunk`` or ``head``, and of which network."""

    path: Path
    checksum: str
    kind: str
    network: Network
    tensors: dict[str, Tensor]

    def __str__(self) -> str:
        return f"{self.path} (SHA-256 {self.checksum}: the {self.kind} of {self.network.name})"


def read_lpips_weights(losses: Iterable[str], files: Sequence[str | Path]) -> dict[str, LpipsWeights]:
    """Trunk and head of each ``lpips`` loss. What a file is, is told by the shapes of its tensors.

    :param losses: names of losses; others than ``lpips_...`` are passed over. Without any, no file is opened.
    :param files: files of ``torch.save`` with a dictionary of tensors. Only tensors are loaded, nothing in a file is
        run. Trunks: torchvision's whole network, or its ``features`` alone. Heads: those of the package ``lpips``, or
        tensors called ``0.1.weight``, ``1.1.weight`` and so on.
    :returns: loss name to weights.
    :raises BadInputError: a file cannot be read, is damaged or is something else, or one is missing. The message shows
        the checksums of all files that were read, and says how to get what is missing.
    """
    wanted = [name for name in losses if name in NETWORKS]
    if not wanted:
        return {}
    found: dict[tuple[str, str], _File] = {}
    for path in files:
        file = _read(Path(path))
        other = found.setdefault((file.network.name, file.kind), file)
        if other is not file and other.checksum != file.checksum:
            raise BadInputError(
                f"Two files of loss.lpips_files are the {file.kind} of {file.network.name}: {other}, {file}.",
                advice="Name the one that is to be used.",
            )
    weights = {}
    for name in wanted:
        network = NETWORKS[name]
        missing = [kind for kind in ("trunk", "head") if (name, kind) not in found]
        if missing:
            listed = "".join(f"\n  {file}" for file in found.values()) or " none"
            raise BadInputError(
                f"loss.lpips_files does not hold the {' and the '.join(missing)} of {name}. It holds:{listed}",
                advice="\n".join(_how_to_get(network, kind) for kind in missing),
                network=name,
                missing=tuple(missing),
            )
        trunk, head = found[name, "trunk"], found[name, "head"]
        _log.info("%s: trunk %s, head %s", name, trunk, head)
        weights[name] = LpipsWeights(name, trunk.tensors, tuple(head.tensors.values()))
    return weights


def _how_to_get(network: Network, kind: str) -> str:
    if kind == "trunk":
        constructor = f"torchvision.models.{network.torchvision}"
        return (
            f"To get the trunk, install torchvision and run in Python: import torch, torchvision; "
            f'torch.save({constructor}(weights="IMAGENET1K_V1").state_dict(), "{network.torchvision}.pth"). '
            f"Then add the path of {network.torchvision}.pth to loss.lpips_files."
        )
    return (
        f"To get the head, install the Python package lpips, and add the path of the file {network.package_file} "
        "inside its folder to loss.lpips_files."
    )


def _read(path: Path) -> _File:
    try:
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            raise BadInputError(
                f"{path}, named in loss.lpips_files, is no file.", advice="Correct the path, or take it out.", path=path
            )
        if size > LARGEST_FILE:
            raise BadInputError(
                f"{path} has {size / 2**30:.1f} GiB, more than any trunk or head.",
                advice="Correct loss.lpips_files.",
                path=path,
            )
        with path.open("rb") as stream:
            digest = hashlib.sha256()
            while block := stream.read(2**20):
                digest.update(block)
    except OSError as error:
        raise BadInputError(
            f"{path}, named in loss.lpips_files, cannot be read: {error.strerror}.",
            advice="See to its permissions, or correct the path.",
            path=path,
        ) from error
    checksum = digest.hexdigest()
    named = _CHECKSUM_IN_NAME.search(path.name)
    if named and not checksum.startswith(named.group(1)):
        raise BadInputError(
            f"{path} is damaged: its name says that its SHA-256 begins with {named.group(1)}, and it is {checksum}.",
            advice="Get the file again.",
            path=path,
            checksum=checksum,
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of many kinds, according to what is wrong in the file
        # Its text is not shown: it recommends to load without safety.
        raise BadInputError(
            f"{path} (SHA-256 {checksum}) is not a file of tensors that can be loaded safely, or is damaged.",
            advice="Get the file again, or correct loss.lpips_files.",
            path=path,
            checksum=checksum,
        ) from error
    return _recognized(path, checksum, content)


def _recognized(path: Path, checksum: str, content: Any) -> _File:
    tensors = {str(k): v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, dict) else {}
    for network in NETWORKS.values():
        for kind, named in (("trunk", _trunk(network, tensors)), ("head", _head(network, tensors))):
            if named is None:
                continue
            if not all(torch.isfinite(tensor).all() for tensor in named.values()):
                raise BadInputError(
                    f"{path} (SHA-256 {checksum}) holds numbers that are not finite.",
                    advice="Get the file again.",
                    path=path,
                    checksum=checksum,
                )
            return _File(path, checksum, kind, network, named)
    shown = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in list(tensors.items())[:3]) or "no tensors"
    raise BadInputError(
        f"{path} (SHA-256 {checksum}) is neither the trunk nor the head of an lpips loss; it begins with {shown}.",
        advice=f"Name the files of {', '.join(NETWORKS)} in loss.lpips_files.",
        path=path,
        checksum=checksum,
    )


def _trunk(network: Network, tensors: dict[str, Tensor]) -> dict[str, Tensor] | None:
    """The trunk's tensors; the rest of a whole network is left behind."""
    shapes = network.trunk_shapes
    if any(name not in tensors or tuple(tensors[name].shape) != shape for name, shape in shapes.items()):
        return None
    return {name: tensors[name].detach().float() for name in shapes}


def _head(network: Network, tensors: dict[str, Tensor]) -> dict[str, Tensor] | None:
    for pattern in ("{}.1.weight", "lin{}.model.1.weight"):
        names = [pattern.format(index) for index in range(len(network.channels))]
        shapes = [(1, channels, 1, 1) for channels in network.channels]
        if tensors.keys() == {*names} and all(tuple(tensors[n].shape) == s for n, s in zip(names, shapes, strict=True)):
            return {name: tensors[name].detach().float() for name in names}
    return None
