"""The state of a parameter trainer as a file of its own, and MXNet's files read as one."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ostinato.errors import BadInputError, StateError
from ostinato.kvstore.parameters import ParameterHandle
from ostinato.kvstore.store import Store
from ostinato.kvstore.trainer_states import named_states
from ostinato.optim.mxnet_files import load_states, optimizer_from_states, read_trainer_states
from ostinato.optim.rules import Optimizer, Updater
from ostinato.runs.atomic import ChecksumMismatchError, FileRecord, Files, read_pieces
from ostinato.runs.tensor_file import read_header, read_tensors, tensor_pieces
from ostinato.runs.tree import pack_tree, unpack_tree

_TREE, _CHECKSUM = "ostinato_trainer", "ostinato_sha256"
_PICKLE, _HEADER = b"\x80", b"{"
"""What a pickle begins with; and what follows the eight bytes of a safetensors file that could look like one."""


def write_states(path: Path, state: Mapping[str, Any]) -> None:
    """Write a trainer's state into one file, whole or not at all.

    The file is in the safetensors format: the tensors, and in the header's texts the tree and a checksum.
    """
    packed, tensors = pack_tree(dict(state))
    text = json.dumps(packed, allow_nan=False, separators=(",", ":"))
    texts = {_TREE: text, _CHECKSUM: _checksum(text, tensors)}
    Files().replace(path, lambda: tensor_pieces(tensors, texts))


def write_states_once(path: Path, state: Mapping[str, Any], store: Store | None) -> None:
    """Have rank 0 write the state that ranks share, the others wait for it: the file is there for all of them when this
    returns, or for none. A collective where the store is distributed and synchronous.

    :raises OSError: the file cannot be written.
    :raises StateError: rank 0 could not write it.
    """
    failure: Exception | None = None
    if store is None or store.rank == 0:
        try:
            write_states(path, state)
        except Exception as error:
            failure = error
    failed = failure is not None if store is None else store.agree([failure is not None])[0]
    if failure is not None:
        raise failure
    if failed:
        raise StateError(f"Rank 0 could not write the states to {path}.", advice="See its own error.")


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
