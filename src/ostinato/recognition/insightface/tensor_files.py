"""Files of tensors, read as data."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ostinato.data.file_names import shown_name
from ostinato.errors import BadInputError
from ostinato.optim.mxnet_files import read_array_list
from ostinato.recognition.insightface.file_kinds import Kind, kind_of
from ostinato.runs.atomic import ChecksumMismatchError
from ostinato.runs.tensor_file import bytes_of, read_header


def read_file(path: Path) -> tuple[Kind, Any]:
    """Read what a file of tensors holds, without running anything that it says.

    :returns: its kind, and plain Python objects with tensors in them. The tensors of an archive of ``torch.save`` are
        views into the file: copy what is kept.
    :raises BadInputError: it cannot be read as data. Field: ``path``.
    """
    kind = kind_of(path)
    if kind == "mxnet":
        return kind, read_array_list(path)
    if kind == "safetensors":
        return kind, _read_safetensors(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles that it then refuses anyway
            return kind, torch.load(path, map_location="cpu", weights_only=True, mmap=kind == "torch")
    except Exception as error:  # of many kinds, according to what is wrong in the file
        # Its text is not shown: it recommends to load without safety.
        raise _unreadable(path, kind) from error


def _unreadable(path: Path, kind: Kind) -> BadInputError:
    objects = _objects_in(path) if kind == "torch" else []
    if objects:
        shown = ", ".join(objects[:3]) + (f" and {len(objects) - 3} more" if len(objects) > 3 else "")
        return BadInputError(
            f"{shown_name(path)} holds Python objects ({shown}) that can only be read by running code, which is "
            "refused. It is probably a whole pickled network, or the state of a training.",
            advice="In the program that wrote it, save the weights alone: torch.save(network.state_dict(), ...).",
            path=str(path),
        )
    return BadInputError(
        f"{shown_name(path)} is not a file of tensors that can be read safely, or it is damaged.",
        advice="Get the file again, or save the weights alone: torch.save(network.state_dict(), ...).",
        path=str(path),
    )


def _objects_in(path: Path) -> list[str]:
    """The classes that an archive of ``torch.save`` asks for and that are not plain data; nothing is run."""
    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(str(path)))
    except Exception:  # a damaged file; this only makes a message better
        return []


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        places, _ = read_header(path)
        tensors = {}
        with path.open("rb") as file:
            for place in places.values():
                tensor = torch.empty(place.shape, dtype=place.dtype)
                file.seek(place.start)
                if place.end > place.start and file.readinto(bytes_of(tensor.view(-1).view(torch.uint8))) != (
                    place.end - place.start
                ):
                    raise ChecksumMismatchError("ends too early")
                tensors[place.name] = tensor
    except (ChecksumMismatchError, OSError) as error:
        raise BadInputError(
            f"{shown_name(path)} {error}.", advice="Get the file again, or pass a .pth.", path=str(path)
        ) from error
    return tensors


def check_unfolding(tensors: Iterable[Tensor], path: Path) -> None:
    """Refuse tensors that would take more memory than their file: a few bytes can claim to be a large tensor.

    :raises BadInputError: they would. Field: ``path``.
    """
    claimed = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if claimed > path.stat().st_size:
        raise BadInputError(
            f"{shown_name(path)} claims to hold {claimed:,} bytes of tensors and has {path.stat().st_size:,}.",
            advice="Get the file again.",
            path=str(path),
        )


def tensors_by_name(content: Any) -> dict[str, Tensor] | None:
    """The content as a state dictionary, or None where it is something else."""
    if not isinstance(content, dict) or not content:
        return None
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()):
        return None
    return dict(content)
