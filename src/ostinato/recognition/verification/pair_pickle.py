"""What a ``.bin`` pair file says, read as data: nothing in it is imported or called.

A pair file is a Python pickle of (encoded pictures, same or not), and three ways of writing it are in circulation:
Python 2 with byte strings, Python 3 with bytes, and either with NumPy arrays of bytes and NumPy truth values. The
reader knows the instructions that these need and refuses every other one. The few classes of NumPy that a file may name
are replaced by stand-ins, so not even NumPy is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ostinato.optim.mxnet_files.byte_reader import ByteReader
from ostinato.optim.mxnet_files.plain_pickle import INSTRUCTIONS, ClassName, PlainUnpickler

_RECONSTRUCT = frozenset({"numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"})
_SCALAR = frozenset({"numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"})
_ARRAY = "numpy.ndarray"
_DTYPE = "numpy.dtype"
_ENCODE = "_codecs.encode"
_ALLOWED = _RECONSTRUCT | _SCALAR | {_ARRAY, _DTYPE, _ENCODE}

_ONE_BYTE = frozenset({"u1", "i1", "b1"})
"""Dtypes of one byte: what pictures and truth values are kept in."""
_INTEGERS = frozenset({"i2", "i4", "i8", "u2", "u4", "u8"})

_MAX_DIGITS = 20
_MAX_DIMENSIONS = 2


@dataclass
class _Dtype:
    """A NumPy dtype by its name, such as ``u1``."""

    name: str


class _PlainArray:
    """A NumPy array: only the bytes in it matter."""

    content: bytes | None = None
    dtype = ""


def read_pair_pickle(data: bytes | memoryview, source: str) -> tuple[list[bytes], list[bool]]:
    """Read a pair file's pickle.

    :param data: the whole file.
    :param source: what errors call it.
    :returns: the encoded pictures, and for each two of them whether they show the same person. The numbers of the two
        lists are as the file has them.
    :raises BadInputError: it is damaged, no pair file, or holds what no pair file needs. Fields: ``path``, ``offset``.
    """
    reader = ByteReader(data, source)
    content = _PairUnpickler(reader).load()
    if reader.remaining:
        reader.refuse(f"{reader.remaining} bytes follow the end of the pickle")
    if not isinstance(content, tuple) or len(content) != 2 or not isinstance(content[0], list):
        reader.refuse("a pair of pictures and answers should be here, and something else is", at=0)
    pictures, same = content
    return [_picture(value, index, reader) for index, value in enumerate(pictures)], _truths(same, reader)


def _picture(value: object, index: int, reader: ByteReader) -> bytes:
    if isinstance(value, _PlainArray) and value.content is not None and value.dtype in _ONE_BYTE:
        return value.content
    if not isinstance(value, bytes):
        reader.refuse(f"picture {index} is no sequence of bytes", at=0)
    return value


def _truths(value: object, reader: ByteReader) -> list[bool]:
    if isinstance(value, _PlainArray) and value.content is not None and value.dtype in _ONE_BYTE:
        value = list(value.content)
    if not isinstance(value, list | tuple):
        reader.refuse("the answers, same or not, are no list", at=0)
    for index, answer in enumerate(value):
        if not isinstance(answer, int) or answer not in (0, 1):  # a bool is an int
            reader.refuse(f"the answer of pair {index} is neither true nor false", at=0)
    return [bool(answer) for answer in value]


class _PairUnpickler(PlainUnpickler):
    """Knows the instructions of pair files, those of protocol 1 among them, and no other."""

    _content = "pair file"

    def __init__(self, reader: ByteReader) -> None:
        super().__init__(reader, self._construct_stand_in, _finish)
        # A text can be encoded again and again by few instructions; a true file encodes each of its bytes once.
        self._may_encode = 2 * reader.remaining + 1024

    def _begin(self, reader: ByteReader) -> None:
        """Protocol 1 has no beginning; PROTO is an instruction like any other."""

    def _action_of(self, opcode: int) -> Callable[[Any], Any] | None:
        return _OWN.get(opcode)

    def _protocol(self) -> None:
        protocol = self._reader.number("B", "the protocol of a pickle")
        if protocol > 5:
            self._refuse(f"there is no pickle protocol {protocol}")

    def _line(self) -> bytes:
        line = bytearray()
        while (byte := self._reader.number("B", "a number")) != 0x0A:
            line.append(byte)
            if len(line) > _MAX_DIGITS:
                self._refuse("a number has too many digits")
        return bytes(line)

    def _decimal(self) -> int:
        digits = self._line()
        if not digits.isdigit():
            self._refuse("a number is no number")
        return int(digits)

    def _old_number(self) -> None:
        # Python 2's way to write truth values: I01 and I00.
        line = self._line()
        if line in (b"01", b"00"):
            self._push(line == b"01")
        elif line.removeprefix(b"-").isdigit():
            self._push(int(line))
        else:
            self._refuse("a number is no number")

    def _signed_bytes(self) -> None:
        size = self._reader.number("i", "the length of bytes")
        if size < 0:
            self._refuse(f"bytes would have the length {size}")
        self._push(bytes(self._reader.take(size, "bytes")))

    def _bytes(self, layout: str) -> None:
        self._push(bytes(self._sized(layout, "bytes")))

    def _global(self) -> None:
        super()._global()
        self._check_class()

    def _stack_global(self) -> None:
        super()._stack_global()
        self._check_class()

    def _check_class(self) -> None:
        found = self._top()
        if found.path not in _ALLOWED:
            self._refuse(f"the file wants {found.path[:200]!r}, which no pair file needs")

    def _construct_stand_in(self, name: ClassName, arguments: tuple[Any, ...]) -> Any:
        """The value to go on with where the file calls something; ``name`` is one of the allowed ones."""
        if name.path == _ENCODE:
            return self._encoded(arguments)
        if name.path in _RECONSTRUCT:
            return _PlainArray()
        if name.path == _DTYPE and arguments and isinstance(arguments[0], str):
            return _Dtype(arguments[0])
        if name.path in _SCALAR and len(arguments) == 2:
            return _number(*arguments)
        raise ValueError(f"the file calls {name.path} in a way that no pair file needs")

    def _encoded(self, arguments: tuple[Any, ...]) -> bytes:
        """The bytes that protocol 2 writes as a text of as many letters."""
        if len(arguments) != 2 or not isinstance(arguments[0], str) or arguments[1] not in ("latin1", "latin-1"):
            raise ValueError("the file encodes a text otherwise than as latin1")
        self._may_encode -= len(arguments[0])
        if self._may_encode < 0:
            raise ValueError("the file encodes more text than it has")
        try:
            return arguments[0].encode("latin-1")
        except UnicodeEncodeError:
            raise ValueError("a text that stands for bytes has other letters than latin1's") from None


def _number(dtype: object, data: object) -> int:
    """A NumPy number, which a truth value may be."""
    if isinstance(dtype, _Dtype) and isinstance(data, bytes):
        if dtype.name in _ONE_BYTE and len(data) == 1:
            return data[0]
        if dtype.name in _INTEGERS and len(data) == int(dtype.name[1:]):
            return int.from_bytes(data, "little")
    raise ValueError("a number is of a kind that no pair file needs")


def _finish(made: Any, state: Any) -> None:
    """Take over what the file says about an array; what it says about a dtype beyond its name does not matter."""
    if isinstance(made, _Dtype):
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("|", "<"):
            raise ValueError("an array has a byte order that no pair file needs")
        return
    if not isinstance(made, _PlainArray) or made.content is not None:
        raise ValueError("the file changes what is no array")
    if not isinstance(state, tuple) or len(state) != 5:
        raise ValueError("an array is described in an unknown way")
    _, shape, dtype, _, data = state
    if not isinstance(dtype, _Dtype) or not isinstance(data, bytes) or not isinstance(shape, tuple):
        raise ValueError("an array is described in an unknown way")
    if len(shape) > _MAX_DIMENSIONS or not all(isinstance(side, int) and side >= 0 for side in shape):
        raise ValueError("an array of bytes has at most two dimensions")
    if dtype.name not in _ONE_BYTE or math.prod(shape) != len(data) or len(data) not in shape:
        raise ValueError(f"an array of {dtype.name[:20]} and shape {shape} is no sequence of bytes")
    made.content, made.dtype = data, dtype.name


def _instructions() -> Mapping[int, Callable[[_PairUnpickler], Any]]:
    inherited = {
        opcode: action
        for opcode, action in INSTRUCTIONS.items()
        # Frames, marks, truth values, numbers, text, bytes, tuples, lists, the memo, and classes.
        if opcode in b"\x95(N\x88\x89JKM\x8a\x8cX\x8dCB\x8e\x96)\x85\x86\x87t]lae\x94qrhjc\x93Rb"
    }
    return {
        **inherited,
        0x80: lambda u: u._protocol(),
        ord("U"): lambda u: u._bytes("B"),
        ord("T"): lambda u: u._signed_bytes(),
        ord("I"): lambda u: u._old_number(),
        ord("p"): lambda u: u._put(u._decimal()),
        ord("g"): lambda u: u._get(u._decimal()),
    }


_OWN = _instructions()
