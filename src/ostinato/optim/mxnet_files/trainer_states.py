"""MXNet's trainer states (``.states``): what its optimizers keep for every parameter, and their settings.

A file is a pickle of (states, optimizer), or of the states alone: a dict from a parameter's index to nothing, an array,
or nested tuples of arrays. It is read as data, see :mod:`ostinato.optim.mxnet_files.plain_pickle`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from ostinato.optim.mxnet_files.array_list import read_file
from ostinato.optim.mxnet_files.array_record import Array, array_bytes, read_array
from ostinato.optim.mxnet_files.byte_reader import ByteReader
from ostinato.optim.mxnet_files.plain_pickle import (
    ClassName,
    PlacedBytes,
    PlainObject,
    PlainUnpickler,
    pickle_bytes,
)
from ostinato.optim.row_sparse_gradient import RowSparse

ARRAY_CLASSES = frozenset(
    {
        "mxnet.ndarray.ndarray.NDArray",
        "mxnet.ndarray.sparse.RowSparseNDArray",
        "mxnet.ndarray.sparse.CSRNDArray",
        "mxnet.numpy.multiarray.ndarray",
    }
)
MAX_DEPTH = 16

_NUMPY_NUMBERS = {"f8": "d", "f4": "f", "f2": "e", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "u1": "B", "b1": "?"}


@dataclass(frozen=True)
class TrainerStates:
    """The contents of a file of trainer states.

    ``states`` holds by index None, an array, or nested tuples of these; ``optimizer`` the class and the attributes of
    the optimizer, arrays among them as tensors, or None where the file has the states alone.
    """

    states: dict[int | str, Any]
    optimizer: PlainObject | None


def read_trainer_states(path: str | Path) -> TrainerStates:
    """Read a file of trainer states. Nothing in it is executed.

    :raises BadInputError: the file is missing or damaged, or refers to a class that trainer states do not need. Fields:
        ``path`` and, inside the file, ``offset``.
    """
    return trainer_states_from_bytes(read_file(path), str(path))


def trainer_states_from_bytes(data: bytes, source: str) -> TrainerStates:
    """The same for bytes, which ``source`` stands for in errors."""
    reader = ByteReader(data, source)
    unpickler = PlainUnpickler(reader, _construct, _finish)
    content = unpickler.load()
    if reader.remaining:
        reader.refuse(f"{reader.remaining} bytes follow the end of the pickle")
    optimizer = None
    if isinstance(content, tuple):
        if len(content) != 2 or not _is_optimizer(content[1]):
            reader.refuse("a pair of states and optimizer should be here, and something else is", at=0)
        content, optimizer = content
    if not isinstance(content, dict):
        reader.refuse(f"states by index should be here, and there is a {type(content).__name__}", at=0)
    walk = _Walk(reader, unpickler.opcodes)
    states: dict[int | str, Any] = {}
    for index, state in content.items():
        if not isinstance(index, (int, str)):
            reader.refuse(f"the index {index!r} of a parameter is neither a number nor text", at=0)
        states[index] = walk.state(state, 0)
    if optimizer is not None:
        attributes = {name: walk.value(value, 0) for name, value in optimizer.attributes.items()}
        optimizer = PlainObject(optimizer.class_name, (), attributes)
    return TrainerStates(states, optimizer)


def write_trainer_states(file: BinaryIO, contents: TrainerStates) -> None:
    """Write trainer states so that MXNet reads them.

    :param file: open for writing in binary. The caller decides how durable the writing is.
    """
    states = {index: _plain_state(state) for index, state in contents.states.items()}
    file.write(pickle_bytes(states if contents.optimizer is None else (states, contents.optimizer)))


# --- what a file may name --------------------------------------------------------------------------------------------


def _is_mxnet(name: ClassName) -> bool:
    return name.module.startswith(("mxnet.ndarray", "mxnet.numpy", "mxnet.optimizer", "mxnet.lr_scheduler"))


def _is_optimizer(value: object) -> bool:
    return isinstance(value, PlainObject) and value.class_name.module.startswith("mxnet.optimizer")


def _construct(name: ClassName, arguments: tuple[Any, ...]) -> Any:
    if _is_mxnet(name):
        return PlainObject(name, arguments)
    if name.path in ("builtins.bytearray", "__builtin__.bytearray", "_codecs.encode"):
        return _bytes(arguments)
    if name.path in ("collections.OrderedDict", "collections.defaultdict"):
        return {}
    if name.path == "numpy.dtype" and arguments and isinstance(arguments[0], str):
        return PlainObject(name, arguments[:1])
    if name.path in ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar") and len(arguments) == 2:
        return _numpy_number(*arguments)
    raise ValueError(f"the file wants {name.path[:200]}, which no trainer state needs")


def _bytes(arguments: tuple[Any, ...]) -> PlacedBytes:
    """Bytes as Python pickles them: whole, or before protocol 3 as text of one character a byte."""
    if not arguments:
        return PlacedBytes()
    if isinstance(arguments[0], PlacedBytes) and len(arguments) == 1:
        return arguments[0]
    if isinstance(arguments[0], str) and arguments[1:] in (("latin-1",), ("latin1",)):
        try:
            return PlacedBytes(arguments[0].encode("latin-1"))
        except UnicodeEncodeError:
            pass
    raise ValueError("bytes are made of what are no bytes")


def _numpy_number(dtype: Any, data: Any) -> float | int | bool:
    kind = dtype.arguments[0] if isinstance(dtype, PlainObject) and dtype.class_name.module == "numpy" else None
    layout = _NUMPY_NUMBERS.get(kind) if isinstance(kind, str) else None
    if layout is None or not isinstance(data, bytes) or len(data) != struct.calcsize(layout):
        raise ValueError("a number of numpy is of an unknown kind")
    return struct.unpack("<" + layout, data)[0]


def _finish(target: Any, state: Any) -> None:
    if isinstance(target, PlainObject) and target.class_name.path == "numpy.dtype":
        if isinstance(state, tuple) and ">" in state[1:2]:
            raise ValueError("a number of numpy is big-endian")
        return
    if not isinstance(target, PlainObject) or not isinstance(state, dict):
        raise ValueError("the pickle gives attributes to what has none")
    for name in state:
        if not isinstance(name, str):
            raise ValueError("an attribute has a name that is no text")
    target.attributes.update(state)


class _Walk:
    """Turns what a pickle built into states, arrays included.

    A small file can refer to one tuple many times, and to that again; walking visits no more values than the file has
    instructions.
    """

    def __init__(self, reader: ByteReader, budget: int) -> None:
        self._reader = reader
        self._budget = budget

    def _enter(self, depth: int) -> None:
        self._budget -= 1
        if self._budget < 0 or depth > MAX_DEPTH:
            self._reader.refuse("the states are nested in themselves", at=0)

    def state(self, node: Any, depth: int) -> Any:
        self._enter(depth)
        if node is None:
            return None
        if isinstance(node, (tuple, list)):
            return tuple(self.state(item, depth + 1) for item in node)
        if isinstance(node, PlainObject) and node.class_name.path in ARRAY_CLASSES:
            return self._array(node)
        if not isinstance(node, (bool, int, float)):
            self._reader.refuse(f"the state of a parameter is a {_kind(node)}", at=0)
        return node

    def value(self, node: Any, depth: int) -> Any:
        """Turn a setting of the optimizer; dicts and objects are allowed there."""
        self._enter(depth)
        if isinstance(node, PlainObject):
            if node.class_name.path in ARRAY_CLASSES:
                return self._array(node)
            attributes = {name: self.value(value, depth + 1) for name, value in node.attributes.items()}
            return PlainObject(node.class_name, (), attributes)
        if isinstance(node, dict):
            return {key: self.value(value, depth + 1) for key, value in node.items()}
        if isinstance(node, (tuple, list)):
            items = [self.value(item, depth + 1) for item in node]
            return items if isinstance(node, list) else tuple(items)
        if isinstance(node, ClassName):
            self._reader.refuse(f"a setting of the optimizer is the class {node.path[:200]}", at=0)
        return node

    def _array(self, node: PlainObject) -> Array | None:
        handle = node.attributes.get("handle")
        if handle is None:
            return None
        if not isinstance(handle, PlacedBytes):
            self._reader.refuse("an array has no bytes", at=0)
        inner = ByteReader(handle, self._reader.source, handle.offset)
        array = read_array(inner)
        if inner.remaining:
            inner.refuse(f"{inner.remaining} bytes follow the end of an array")
        return array


def _kind(node: Any) -> str:
    return node.class_name.path[:200] if isinstance(node, PlainObject) else type(node).__name__


def _plain_state(state: Any) -> Any:
    if isinstance(state, (Tensor, RowSparse)):
        handle = PlainObject(ClassName("builtins", "bytearray"), (array_bytes(state),))
        module, name = "mxnet.ndarray.ndarray", "NDArray"
        if isinstance(state, RowSparse):
            module, name = "mxnet.ndarray.sparse", "RowSparseNDArray"
        return PlainObject(ClassName(module, name), (None,), {"handle": handle})
    if isinstance(state, tuple):
        return tuple(_plain_state(item) for item in state)
    return state
