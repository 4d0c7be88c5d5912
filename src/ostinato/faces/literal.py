"""A reader for the Python literals that extracted faces carry; it reads data and evaluates nothing.

Accepted is what ``repr`` makes of nested dictionaries, lists and tuples of numbers, ``True``, ``False``, ``None``, text
and byte strings. Names, calls, operators, sets, complex numbers, infinities and string prefixes other than ``b`` are
not part of it. The reader keeps its own stack, so depth is a number it checks and not the interpreter's patience, and
it works in time and memory proportional to the text.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_TEXT_LENGTH = 16 * 1024 * 1024
"""Characters. Typical texts have 5 to 40 thousand; a dozen stored masks of 1024 px stay under 8 million."""

MAX_DEPTH = 24
"""Nested containers. The format itself needs five."""

MAX_TOKENS = 100_000
"""Values and punctuation marks; a flat list of numbers counts as one."""

# Digits are bounded, so that no integer takes more than linear time to read. This is JSON's grammar for numbers, which
# is all that ``repr`` writes.
_NUMBER = r"-?(?:0|[1-9]\d{0,39})(?:\.\d{1,400})?(?:[eE][+-]?\d{1,4})?"
_FLAT = r"\[[-0-9.,\ eE+]+\]"
_TOKEN = re.compile(
    rf"""\s*(?:
        (?P<numbers>{_FLAT}|\[{_FLAT}(?:,\ *{_FLAT})*\])
      | (?P<number>{_NUMBER})(?![\w.])
      | (?P<bytes>b['"])
      | (?P<text>'[^'\\\n]*(?:\\.[^'\\\n]*)*'|"[^"\\\n]*(?:\\.[^"\\\n]*)*")
      | (?P<word>True|False|None)(?!\w)
      | (?P<mark>[\[\](){{}},:])
    )""",
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*")
_WORDS = {"True": True, "False": False, "None": None}
_CLOSERS = {"[": "]", "(": ")", "{": "}"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_NO_BYTES_ESCAPE = re.compile(rb"\\[^x'\"nrt]")
_SIMPLE_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}


class LiteralError(ValueError):
    """The text is no literal of the accepted kind, or is larger than it may be. The message says where."""


def read_literal(text: str) -> Any:
    """The value that the text spells, built from dict, list, tuple, int, float, bool, None, str and bytes.

    Dictionary keys must be text or integers. Numbers out of a float's range read as infinities; whoever needs finite
    numbers checks.

    :raises LiteralError: anything else, nested deeper or longer than the module's bounds.
    """
    if len(text) > MAX_TEXT_LENGTH:
        raise LiteralError(f"it has {len(text):,} characters; at most {MAX_TEXT_LENGTH:,} are read")
    return _Reader(text).read()


class _Container:
    """A container that is being read: its opening mark, what it holds so far, and what may come next."""

    __slots__ = ("commas", "items", "key", "mark", "needs")

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.items: Any = {} if mark == "{" else []
        self.key: Any = None
        self.commas = 0
        # "value": a value (in a dictionary: a key) or the end; "comma": a comma or the end; "colon": after a key;
        # "item": the value that belongs to a key, which must come.
        self.needs = "value"


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.stack: list[_Container] = []

    def read(self) -> Any:
        text, stack = self.text, self.stack
        position = 0
        for _ in range(MAX_TOKENS):
            match = _TOKEN.match(text, position)
            if match is None:
                raise _unexpected(text, position)
            kind = match.lastgroup or ""
            token = match[kind]
            start, position = match.start(kind), match.end()
            value: Any = None
            if kind == "numbers":
                value = _number_list(token)
                if value is None:
                    # Not quite what JSON understands, say a trailing comma: read on from behind the bracket.
                    kind, token, position = "mark", "[", start + 1
            if kind == "mark":
                if token in _CLOSERS:
                    self._open(token, start)
                    continue
                if token in ",:":
                    self._separate(token, start)
                    continue
                value = self._close(token, start)
            elif kind == "number":
                value = _number(token)
            elif kind == "text":
                value = token[1:-1] if "\\" not in token else _ESCAPE.sub(_unescape, token[1:-1])
            elif kind == "bytes":
                body = _byte_string_body(text, position)
                position += len(body) + 1
                value = _bytes(body, start)
            elif kind == "word":
                value = _WORDS[token]
            if stack:
                self._place(value, start, may_be_key=kind in ("text", "number") and not isinstance(value, float))
            elif _SPACE.fullmatch(text, position):
                return value
            else:
                raise _unexpected(text, position)
        raise LiteralError(f"it has more than {MAX_TOKENS:,} values and marks")

    def _open(self, mark: str, start: int) -> None:
        stack = self.stack
        if stack and (
            stack[-1].needs not in ("value", "item") or (stack[-1].mark == "{" and stack[-1].needs == "value")
        ):
            raise _unexpected(self.text, start)
        if len(stack) == MAX_DEPTH:
            raise LiteralError(f"it is nested deeper than {MAX_DEPTH} levels at character {start}")
        stack.append(_Container(mark))

    def _separate(self, mark: str, start: int) -> None:
        top = self.stack[-1] if self.stack else None
        if mark == "," and top and top.needs == "comma":
            top.commas += 1
            top.needs = "value"
        elif mark == ":" and top and top.needs == "colon":
            top.needs = "item"
        else:
            raise _unexpected(self.text, start)

    def _close(self, mark: str, start: int) -> Any:
        # Allowed directly after the opening mark, after a value, and after one trailing comma: never between a key and
        # its value.
        top = self.stack.pop() if self.stack else None
        if top is None or mark != _CLOSERS[top.mark] or top.needs in ("colon", "item"):
            raise _unexpected(self.text, start)
        if top.mark != "(":
            return top.items
        return top.items[0] if len(top.items) == 1 and not top.commas else tuple(top.items)

    def _place(self, value: Any, start: int, *, may_be_key: bool) -> None:
        top = self.stack[-1]
        if top.mark != "{" and top.needs == "value":
            top.items.append(value)
            top.needs = "comma"
        elif top.mark == "{" and top.needs == "value" and may_be_key:
            top.key = value
            top.needs = "colon"
        elif top.needs == "item":
            if top.key in top.items:
                raise LiteralError(f"the key {top.key!r} comes twice, again before character {start}")
            top.items[top.key] = value
            top.needs = "comma"
        else:
            raise _unexpected(self.text, start)


def _number(token: str) -> int | float:
    if "." in token or "e" in token or "E" in token:
        return float(token)
    return int(token)


def _integer(token: str) -> int:
    if len(token) > 41:
        raise ValueError("too many digits")
    return int(token)


_JSON = json.JSONDecoder(parse_int=_integer)


def _number_list(token: str) -> list[Any] | None:
    # Lists of numbers, and lists of those, fill most of a text. The C parser of ``json`` reads them ten times as fast
    # as this module would, and the token's pattern lets nothing through to it but digits, signs and two levels of
    # brackets.
    try:
        return _JSON.decode(token)
    except ValueError:
        return None


def _byte_string_body(text: str, start: int) -> str:
    quote = text[start - 1]
    end = text.find(quote, start)
    while end >= 0:
        # Escaped if an odd number of backslashes stands before it.
        first = end
        while first > start and text[first - 1] == "\\":
            first -= 1
        if (end - first) % 2 == 0:
            return text[start:end]
        end = text.find(quote, end + 1)
    raise LiteralError(f"a byte string at character {start} has no end")


def _bytes(body: str, start: int) -> bytes:
    # The codec below reads more escapes than byte strings have (\u, \N{...}). Looking for one that does not belong
    # takes a fraction of the time of matching the thousands that do.
    if not body.isascii() or "\n" in body:
        raise LiteralError(f"a byte string at character {start} holds something that bytes cannot spell")
    packed = body.encode("ascii")
    if _NO_BYTES_ESCAPE.search(packed.replace(b"\\\\", b"")):
        raise LiteralError(f"a byte string at character {start} holds an unknown escape")
    try:
        return packed.decode("unicode_escape").encode("latin-1")
    except UnicodeError:
        raise LiteralError(f"a byte string at character {start} holds a broken escape") from None


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    if escape in _SIMPLE_ESCAPES:
        return _SIMPLE_ESCAPES[escape]
    if len(escape) == 1:
        raise LiteralError(f"an unknown escape \\{escape} in a text")
    code = int(escape[1:], 16)
    if code > 0x10FFFF:
        raise LiteralError(f"an escape \\{escape} beyond the last character")
    return chr(code)


def _unexpected(text: str, position: int) -> LiteralError:
    rest = text[position : position + 1000].lstrip()
    if not rest:
        return LiteralError(f"it ends too early, at character {position}")
    position += min(len(text) - position, 1000) - len(rest)
    return LiteralError(f"something that is no plain value at character {position}: {rest[:20]!r}")
