"""The part of Python's pickle format that MXNet's trainer states need, read and written as data.

A pickle is a program for a small stack machine. Read the usual way it can call anything; this reader knows the
instructions that build numbers, text, bytes, tuples, lists and dicts, and hands every class that the file names
to a function of the caller, which answers with a stand-in or refuses. Nothing is imported, and nothing of the file is
called. The file's size bounds it: no instruction makes anything larger than the bytes it came from.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ostinato.optim.mxnet_files.byte_reader import ByteReader

_MARK = object()
MAX_LONG_BYTES = 64


@dataclass
class ClassName:
    """A class that a file refers to, and that is never looked up."""

    module: str
    name: str

    @property
    def path(self) -> str:
        """Module and name, with a dot."""
        return f"{self.module}.{self.name}"


@dataclass
class PlainObject:
    """What a file says of an object: its class, what it was made with, and its attributes."""

    class_name: ClassName
    arguments: tuple[Any, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)


Construct = Callable[[ClassName, tuple[Any, ...]], Any]
"""Called where the file makes an object; answers with the value to go on with, or raises ValueError."""

Finish = Callable[[Any, Any], object]
"""Called where the file gives an object its state, with the value that :data:`Construct` answered; changes it in place,
or raises ValueError."""


class PlacedBytes(bytes):
    """Bytes that know where in the file they stood."""

    offset: int = 0


class PlainUnpickler:
    """Reads one pickle of protocol 2 to 5. A subclass may know other ones than :data:`INSTRUCTIONS`.

    :param construct: see :data:`Construct`.
    :param finish: see :data:`Finish`.
    """

    _content = "trainer state"
    """What errors call what is read."""

    def __init__(self, reader: ByteReader, construct: Construct, finish: Finish) -> None:
        self._reader = reader
        self._construct = construct
        self._finish = finish
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._opcode_at = 0
        self.opcodes = 0
        """How many instructions the file had, a bound for whoever walks over the result."""

    def load(self) -> Any:
        """Read the pickle and give its value.

        :raises BadInputError: it is damaged, or holds what is not plain.
        """
        reader = self._reader
        self._begin(reader)
        while True:
            self._opcode_at = reader.position
            self.opcodes += 1
            opcode = reader.number("B", "an instruction")
            if opcode == ord("."):
                if len(self._stack) != 1 or self._stack[0] is _MARK:
                    self._refuse("the pickle ends in the middle of a value")
                return self._stack[0]
            action = self._action_of(opcode)
            if action is None:
                self._refuse(f"the pickle has the instruction 0x{opcode:02X}, which no {self._content} needs")
            action(self)

    def _begin(self, reader: ByteReader) -> None:
        if reader.number("B", "the start of a pickle") != 0x80:
            reader.refuse("a pickle of protocol 2 or later should begin (Python 2 wrote older ones)", at=0)
        protocol = reader.number("B", "the protocol of a pickle")
        if not 2 <= protocol <= 5:
            reader.refuse(f"there is no pickle protocol {protocol}", at=1)

    def _action_of(self, opcode: int) -> Callable[[Any], Any] | None:
        return INSTRUCTIONS.get(opcode)

    def _refuse(self, why: str) -> NoReturn:
        self._reader.refuse(why, at=self._opcode_at)

    # --- the stack ----------------------------------------------------------------------------------------------

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            self._refuse("the pickle takes a value that is not there")
        return self._stack.pop()

    def _top(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            self._refuse("the pickle changes a value that is not there")
        return self._stack[-1]

    def _pop_to_mark(self) -> list[Any]:
        position = len(self._stack) - 1
        while position >= 0 and self._stack[position] is not _MARK:
            position -= 1
        if position < 0:
            self._refuse("the pickle closes a list that was not opened")
        values = self._stack[position + 1 :]
        del self._stack[position:]
        return values

    # --- values -------------------------------------------------------------------------------------------------

    def _sized(self, layout: str, what: str) -> memoryview:
        return self._reader.take(self._reader.number(layout, f"the length of {what}"), what)

    def _bytes(self, layout: str) -> None:
        data = self._sized(layout, "bytes")
        placed = PlacedBytes(data)
        placed.offset = self._reader.position - len(data)
        self._push(placed)

    def _text(self, layout: str) -> None:
        try:
            self._push(str(self._sized(layout, "a text"), "utf-8"))
        except UnicodeDecodeError:
            self._refuse("a text is not UTF-8")

    def _long(self, layout: str) -> None:
        data = self._sized(layout, "a number")
        if len(data) > MAX_LONG_BYTES:
            self._refuse(f"a number has {len(data)} bytes")
        self._push(int.from_bytes(data, "little", signed=True))

    def _float(self) -> None:
        self._push(struct.unpack(">d", self._reader.take(8, "a number"))[0])

    def _tuple(self, size: int) -> None:
        values = [self._pop() for _ in range(size)]
        self._push(tuple(reversed(values)))

    def _append(self, values: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, list):
            self._refuse("the pickle appends to what is no list")
        target.extend(values)

    def _set_items(self, values: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, dict) or len(values) % 2:
            self._refuse("the pickle sets an item of what is no dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, (str, int, float, bytes)) and key is not None:
                self._refuse(f"a dict has a key of type {type(key).__name__}")
            target[key] = value

    # --- the memo -----------------------------------------------------------------------------------------------

    def _put(self, number: int) -> None:
        self._memo[number] = self._top()

    def _get(self, number: int) -> None:
        if number not in self._memo:
            self._refuse(f"the pickle refers to value {number}, which it does not have")
        self._push(self._memo[number])

    # --- classes ------------------------------------------------------------------------------------------------

    def _global(self) -> None:
        names = []
        for _ in range(2):
            line = bytearray()
            while (byte := self._reader.number("B", "the name of a class")) != 0x0A:
                line.append(byte)
            names.append(line)
        try:
            module, name = (line.decode("utf-8") for line in names)
        except UnicodeDecodeError:
            self._refuse("the name of a class is not UTF-8")
        self._push(ClassName(module, name))

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            self._refuse("the name of a class is no text")
        self._push(ClassName(module, name))

    def _reduce(self) -> None:
        arguments, made = self._pop(), self._pop()
        if not isinstance(made, ClassName) or not isinstance(arguments, tuple):
            self._refuse("the pickle calls what is no class")
        try:
            self._push(self._construct(made, arguments))
        except ValueError as error:
            self._refuse(str(error))

    def _build(self) -> None:
        state = self._pop()
        try:
            self._finish(self._top(), state)
        except ValueError as error:
            self._refuse(str(error))


def _instructions() -> Mapping[int, Callable[[Any], Any]]:
    return {
        0x95: lambda u: u._reader.take(8, "the length of a frame"),  # FRAME: says nothing that the rest does not
        ord("("): lambda u: u._push(_MARK),
        ord("0"): lambda u: u._pop(),
        ord("1"): lambda u: u._pop_to_mark(),
        ord("N"): lambda u: u._push(None),
        0x88: lambda u: u._push(True),
        0x89: lambda u: u._push(False),
        ord("J"): lambda u: u._push(u._reader.number("i", "a number")),
        ord("K"): lambda u: u._push(u._reader.number("B", "a number")),
        ord("M"): lambda u: u._push(u._reader.number("H", "a number")),
        0x8A: lambda u: u._long("B"),
        0x8B: lambda u: u._long("I"),
        ord("G"): lambda u: u._float(),
        0x8C: lambda u: u._text("B"),
        ord("X"): lambda u: u._text("I"),
        0x8D: lambda u: u._text("Q"),
        ord("C"): lambda u: u._bytes("B"),
        ord("B"): lambda u: u._bytes("I"),
        0x8E: lambda u: u._bytes("Q"),
        0x96: lambda u: u._bytes("Q"),
        ord(")"): lambda u: u._push(()),
        0x85: lambda u: u._tuple(1),
        0x86: lambda u: u._tuple(2),
        0x87: lambda u: u._tuple(3),
        ord("t"): lambda u: u._push(tuple(u._pop_to_mark())),
        ord("]"): lambda u: u._push([]),
        ord("l"): lambda u: u._push(u._pop_to_mark()),
        ord("a"): lambda u: u._append([u._pop()]),
        ord("e"): lambda u: u._append(u._pop_to_mark()),
        ord("}"): lambda u: u._push({}),
        ord("s"): lambda u: u._set_items([u._pop(), u._pop()][::-1]),
        ord("u"): lambda u: u._set_items(u._pop_to_mark()),
        0x94: lambda u: u._put(len(u._memo)),
        ord("q"): lambda u: u._put(u._reader.number("B", "a place in the memo")),
        ord("r"): lambda u: u._put(u._reader.number("I", "a place in the memo")),
        ord("h"): lambda u: u._get(u._reader.number("B", "a place in the memo")),
        ord("j"): lambda u: u._get(u._reader.number("I", "a place in the memo")),
        ord("c"): lambda u: u._global(),
        0x93: lambda u: u._stack_global(),
        ord("R"): lambda u: u._reduce(),
        0x81: lambda u: u._reduce(),  # NEWOBJ: a class and its arguments, as REDUCE
        ord("b"): lambda u: u._build(),
    }


INSTRUCTIONS = _instructions()
"""The instructions of a pickle that trainer states need, each as a function of the unpickler."""


def pickle_bytes(value: Any) -> bytes:
    """Write plain data and :class:`PlainObject` values as a pickle of protocol 3, which every Python 3 reads.

    An object is made from its class and arguments, and then given its attributes.

    :param value: None, bool, int, float, str, bytes, tuple, list, dict and objects, nested.
    """
    out = bytearray(b"\x80\x03")
    _write(value, out)
    out += b"."
    return bytes(out)


def _write(value: Any, out: bytearray) -> None:
    if value is None:
        out += b"N"
    elif isinstance(value, bool):
        out += b"\x88" if value else b"\x89"
    elif isinstance(value, int):
        data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        out += b"\x8a" + bytes([len(data)]) + data
    elif isinstance(value, float):
        out += b"G" + struct.pack(">d", value)
    elif isinstance(value, str):
        data = value.encode()
        out += b"X" + struct.pack("<I", len(data)) + data
    elif isinstance(value, bytes):
        out += b"B" + struct.pack("<I", len(value)) + value
    elif isinstance(value, (tuple, list)):
        out += b"("
        for item in value:
            _write(item, out)
        out += b"t" if isinstance(value, tuple) else b"l"
    elif isinstance(value, dict):
        out += b"}("
        for key, item in value.items():
            _write(key, out)
            _write(item, out)
        out += b"u"
    elif isinstance(value, PlainObject):
        out += f"c{value.class_name.module}\n{value.class_name.name}\n".encode()
        _write(value.arguments, out)
        out += b"R"
        if value.attributes:
            _write(value.attributes, out)
            out += b"b"
    else:
        raise TypeError(f"{type(value).__name__} is not plain")
