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

MAX_TOKENS = 500_000
"""Values and punctuation marks; a flat list of numbers counts as one."""

# Digits are bounded, so no integer takes more than linear time to read. This is JSON's grammar for numbers (Python's
# ``repr`` writes no others), which lets the lists of numbers that fill most of a text go to the C parser of ``json``.
_NUMBER = r"-?(?:0|[1-9]\d{0,39})(?:\.\d{1,400})?(?:[eE][+-]?\d{1,4})?"
_LIST = rf"\[\s*{_NUMBER}(?:\s*,\s*{_NUMBER})*\s*\]"
_TABLE = rf"\[\s*{_LIST}(?:\s*,\s*{_LIST})*\s*\]"
_TOKEN = re.compile(
    rf"""\s*(?:
        (?P<numbers>{_TABLE}|{_LIST})
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
_BYTES_ESCAPES = ("\\x", "\\n", "\\r", "\\t", "\\'", '\\"')
_SIMPLE_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}


class LiteralError(ValueError):
    """The text is no literal of the accepted kind, or is larger than it may be. The message says where."""


class _Open:
    """A container that is being read: its opening mark, what it holds so far, and what may come next."""

    __slots__ = ("commas", "items", "key", "mark", "needs")

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.items: Any = {} if mark == "{" else []
        self.key: Any = None
        self.commas = 0
        # "value": a value or, where that is allowed, the end; "comma": a comma or the end; "colon": after a key;
        # "item": the value that belongs to a key, which must come
        self.needs = "value"


def read_literal(text: str) -> Any:
    """The value that the text spells, built from dict, list, tuple, int, float, bool, None, str and bytes.

    Dictionary keys must be text or integers. Numbers out of a float's range read as infinities; whoever needs finite
    numbers checks.

    :raises LiteralError: anything else, nested deeper or longer than the module's bounds.
    """
    if len(text) > MAX_TEXT_LENGTH:
        raise LiteralError(f"it has {len(text):,} characters; at most {MAX_TEXT_LENGTH:,} are read")
    stack: list[_Open] = []
    position = 0
    match_token = _TOKEN.match
    for _ in range(MAX_TOKENS):
        match = match_token(text, position)
        if match is None:
            raise _unexpected(text, position)
        kind = match.lastgroup or ""
        token = match[kind]
        position = match.end()
        if kind == "mark":
            if token in "[({":
                if stack and stack[-1].needs not in ("value", "item"):
                    raise _unexpected(text, match.start())
                if stack and stack[-1].mark == "{" and stack[-1].needs == "value":
                    raise LiteralError(f"a container as dictionary key at character {match.start()}")
                if len(stack) == MAX_DEPTH:
                    raise LiteralError(f"it is nested deeper than {MAX_DEPTH} levels at character {match.start()}")
                stack.append(_Open(token))
                continue
            if not stack:
                raise _unexpected(text, match.start())
            top = stack[-1]
            if token == ",":
                if top.needs != "comma":
                    raise _unexpected(text, match.start())
                top.commas += 1
                top.needs = "value"
                continue
            if token == ":":
                if top.needs != "colon":
                    raise _unexpected(text, match.start())
                top.needs = "item"
                continue
            # A closing mark: directly after the opening one, after a value, or after one trailing comma.
            lone_comma = top.commas > len(top.items)
            if token != _CLOSERS[top.mark] or top.needs in ("colon", "item") or lone_comma:
                raise _unexpected(text, match.start())
            stack.pop()
            value = top.items
            if top.mark == "(":
                value = value[0] if len(value) == 1 and not top.commas else tuple(value)
        elif kind == "numbers":
            value = json.loads(token)
        elif kind == "number":
            value = _number(token)
        elif kind == "text":
            value = token[1:-1] if "\\" not in token else _ESCAPE.sub(_unescape, token[1:-1])
        elif kind == "bytes":
            body = _byte_string_body(text, position)
            position += len(body) + 1
            value = _bytes(body, match.start())
        else:
            value = _WORDS[token]
        if not stack:
            if _SPACE.fullmatch(text, position) is None:
                raise _unexpected(text, position)
            return value
        top = stack[-1]
        needs = top.needs
        if top.mark != "{":
            if needs != "value":
                raise _unexpected(text, match.start())
            top.items.append(value)
            top.needs = "comma"
        elif needs == "value":
            if kind not in ("text", "number") or isinstance(value, float):
                raise LiteralError(f"a dictionary key that is no text at character {match.start()}")
            top.key = value
            top.needs = "colon"
        elif needs == "item":
            if top.key in top.items:
                raise LiteralError(f"the key {top.key!r} twice, again before character {match.start()}")
            top.items[top.key] = value
            top.needs = "comma"
        else:
            raise _unexpected(text, match.start())
    raise LiteralError(f"it has more than {MAX_TOKENS:,} values and marks")


def _number(token: str) -> int | float:
    if "." in token or "e" in token or "E" in token:
        return float(token)
    return int(token)


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
    # The codec below reads more escapes than byte strings have (\u, \N{...}), so they are counted first. This takes
    # a few passes at the speed of memchr; a pattern over the thousands of escapes of a mask takes ten times as long.
    single = body.replace("\\\\", "")
    known = sum(single.count(escape) for escape in _BYTES_ESCAPES)
    if not body.isascii() or "\n" in body or known != single.count("\\"):
        raise LiteralError(f"a byte string at character {start} holds something that bytes cannot spell")
    try:
        return body.encode("ascii").decode("unicode_escape").encode("latin-1")
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
    rest = text[position : position + 20].strip()
    if not rest:
        return LiteralError(f"it ends too early, at character {position}")
    return LiteralError(f"something that is no plain value at character {position}: {rest!r}")
