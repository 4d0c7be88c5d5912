"""The state of a parameter trainer as a tree by parameter name, and as a file.

Numbers shift when a parameter is added or frozen; names do not. So a state that was saved for some parameters can be
loaded for others: what fits by name continues, new parameters start fresh, and what is left over is named in the log.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError, BadInputError
from ostinato.kvstore.parameters import ParameterHandle
from ostinato.optim.mxnet_files import load_states, optimizer_from_states, read_trainer_states
from ostinato.optim.rules import Optimizer, Updater, unpack_state
from ostinato.runs.atomic import ChecksumMismatchError, FileRecord, Files, read_pieces
from ostinato.runs.tensor_file import read_header, read_tensors, tensor_pieces
from ostinato.runs.tree import pack_tree, unpack_tree

_log = logging.getLogger(__name__)

FORMAT = 1
_TREE, _CHECKSUM = "ostinato_trainer", "ostinato_sha256"
_PICKLE, _HEADER = b"\x80", b"{"
"""What a pickle begins with; and what follows the eight bytes of a safetensors file that could look like one."""


def named_states(raw: Mapping[str, Any], optimizer: Optimizer, handles: Sequence[ParameterHandle]) -> dict[str, Any]:
    """Put states and counts under parameter names.

    :param raw: what :meth:`ostinato.optim.rules.Updater.state_dict` gives, by number.
    :returns: ``{"format": 1, "optimizer": tree, "states": {name: tree}, "counts": {name: n}}``.
    """
    names = {handle.index: handle.name for handle in handles}
    settings = dict(optimizer.state_dict())
    # Names are what this tree is about, and multipliers belong to the parameters of the run that goes on.
    settings["arguments"] = {key: value for key, value in settings["arguments"].items() if key != "param_idx2name"}
    settings.pop("counts", None)
    for table in ("lr_mult", "wd_mult"):
        settings[table] = {str(names.get(key, key)): value for key, value in settings[table].items()}
    return {
        "format": FORMAT,
        "optimizer": settings,
        "states": {names[index]: state for index, state in raw["states"].items() if index in names},
        "counts": {names[index]: count for index, count in raw["counts"].items() if index in names},
    }


_PARTS = {"optimizer": Mapping, "states": Mapping, "counts": Mapping, "residuals": Sequence}


def check_form(state: Any) -> None:
    """Refuse what is not the state of a parameter trainer, or one of a format that is not known here.

    :raises ArgumentTypeError: it is no mapping.
    :raises ArgumentValueError: its format is unknown, or a part is missing or of a wrong kind.
    """
    if not isinstance(state, Mapping):
        raise ArgumentTypeError(
            f"The state of a trainer is a mapping, not {type(state).__name__}.", advice="Give what state_dict() gave."
        )
    if state.get("format") != FORMAT:
        raise ArgumentValueError(
            f"This trainer state has format {state.get('format')!r}, and {FORMAT} is the one that is known.",
            advice="It may come from a newer version of Ostinato, or be the state of something else.",
        )
    for part, kind in _PARTS.items():
        if not isinstance(state.get(part), kind) or isinstance(state[part], str):
            found = type(state[part]).__name__ if part in state else "missing"
            raise ArgumentValueError(
                f"The part {part!r} of this trainer state is {found}.",
                advice="Give what state_dict() gave, whole.",
                part=part,
            )
    scaler = state.get("loss_scaler")
    if scaler is not None and not (isinstance(scaler, Mapping) and {"loss_scale", "clean_steps"} <= scaler.keys()):
        raise ArgumentValueError(
            f"The part 'loss_scaler' of this trainer state is {scaler!r}.", advice="Give what state_dict() gave, whole."
        )


def take_settings(state: Mapping[str, Any], optimizer: Optimizer, handles: Sequence[ParameterHandle]) -> dict[str, Any]:
    """Give the optimizer its saved settings, schedule and number of updates, and look whether the states fit.

    :param state: of the right form, see :func:`check_form`.
    :returns: the state, without what no parameter here takes.
    :raises ArgumentValueError: it is of another optimizer, or a tensor does not fit its parameter. The optimizer is
        then as it was.
    """
    by_name = {handle.name: handle for handle in handles}
    before, schedule = copy.deepcopy(optimizer.state_dict()), optimizer.lr_scheduler
    try:
        optimizer.load_state_dict({**state["optimizer"], "counts": {}})
        for name, packed in state["states"].items():
            if name in by_name and not by_name[name].is_deferred:
                _check_fit(packed, optimizer, by_name[name])
    except BaseException:
        optimizer.load_state_dict(before)
        optimizer.lr_scheduler = schedule
        raise
    fresh = [handle.name for handle in handles if handle.is_trained and handle.name not in state["counts"]]
    unused = [name for name in state["counts"] if name not in by_name]
    if fresh and state["counts"]:
        _log.warning("no optimizer state was saved for %s; they start fresh", _some(fresh))
    if unused:
        _log.warning("the saved optimizer state of %s is not used: no parameter has this name", _some(unused))
    return {
        **state,
        "loss_scaler": state.get("loss_scaler"),
        "states": {name: packed for name, packed in state["states"].items() if name in by_name},
        "counts": {name: count for name, count in state["counts"].items() if name in by_name},
    }


def _check_fit(packed: Mapping[str, Any], optimizer: Optimizer, handle: ParameterHandle) -> None:
    place = torch.empty(handle.shape, dtype=handle.dtype, device="meta")
    try:
        optimizer.adopt_state(handle.index, place, unpack_state(packed))
    except ArgumentValueError as error:
        raise ArgumentValueError(
            f"The saved state of {handle.name!r} does not fit: {error.what}",
            advice=error.advice,
            parameter=handle.name,
        ) from error


def numbered_states(
    state: Mapping[str, Any], optimizer: Optimizer, handles: Sequence[ParameterHandle]
) -> dict[str, Any]:
    """Put states and counts under the numbers of this trainer's parameters: the way back of :func:`named_states`."""
    numbers = {handle.name: handle.index for handle in handles}
    return {
        "format": 1,
        "optimizer": optimizer.name,
        "states": {numbers[name]: packed for name, packed in state["states"].items()},
        "counts": {numbers[name]: int(count) for name, count in state["counts"].items()},
    }


def renamed_residuals(residuals: Sequence[Mapping[str, Any]], rename: Callable[[Any], Any]) -> list[dict[str, Any]]:
    """Give the residuals of gradient compression under other keys; a key without a new name is left out."""
    return [
        {
            **state,
            "residuals": {new: kept for key, kept in state["residuals"].items() if (new := rename(key)) is not None},
        }
        for state in residuals
    ]


# --- files -----------------------------------------------------------------------------------------------------------


def write_states(path: Path, state: Mapping[str, Any]) -> None:
    """Write a trainer's state into one file, whole or not at all.

    The file is in the safetensors format: the tensors, and in the header's texts the tree and a checksum.
    """
    packed, tensors = pack_tree(dict(state))
    text = json.dumps(packed, allow_nan=False, separators=(",", ":"))
    texts = {_TREE: text, _CHECKSUM: _checksum(text, tensors)}
    Files().replace(path, lambda: tensor_pieces(tensors, texts))


def read_states(path: Path, optimizer: Optimizer, handles: Sequence[ParameterHandle]) -> dict[str, Any]:
    """Read a file of :func:`write_states`, or a ``.states`` file of MXNet.

    :param optimizer: for MXNet files that hold states without their optimizer: the one that they are of.
    :param handles: MXNet files know parameters by position: that of these, which are ordered alike.
    :raises BadInputError: it is missing, damaged, or no such file.
    """
    try:
        digest, size, first = hashlib.sha256(), 0, b""
        for piece in read_pieces(path):
            first = first or piece[:9]
            digest.update(piece)
            size += len(piece)
        if first.startswith(_PICKLE) and not first.endswith(_HEADER):
            return _mxnet_states(path, optimizer, handles)
        _, texts = read_header(path)
        if _TREE not in texts:
            raise ChecksumMismatchError("holds tensors, and no state of a trainer")
        tensors = read_tensors(path, FileRecord(size, digest.hexdigest()))
        if _checksum(texts[_TREE], tensors) != texts.get(_CHECKSUM):
            raise ChecksumMismatchError("has another content than was written (checksum)")
        return unpack_tree(json.loads(texts[_TREE]), tensors)
    except (ChecksumMismatchError, OSError, ValueError) as error:
        raise BadInputError(
            f"{path} cannot be read as the state of a parameter trainer: it {error}.",
            advice="Give a file that save_states() wrote, or a .states file of MXNet.",
            path=str(path),
        ) from error


def _mxnet_states(path: Path, optimizer: Optimizer, handles: Sequence[ParameterHandle]) -> dict[str, Any]:
    contents = read_trainer_states(path)
    described = copy.copy(optimizer) if contents.optimizer is None else optimizer_from_states(contents, str(path))
    updater = Updater(described)
    load_states(updater, contents, str(path))
    beyond = [index for index in contents.states if not isinstance(index, int) or not 0 <= index < len(handles)]
    if beyond:
        raise BadInputError(
            f"{path} has a state for parameter {beyond[0]!r}, and this trainer has {len(handles)} parameters.",
            advice="MXNet counts parameters from 0 in the order of their names; give the trainer the same ones.",
            path=str(path),
        )
    return {**named_states(updater.state_dict(), described, handles), "loss_scaler": None, "residuals": []}


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for piece in tensor_pieces(tensors):  # the header of these pieces says names, types, shapes and places
        digest.update(piece)
    return digest.hexdigest()


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
