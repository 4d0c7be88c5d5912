"""From what stands in a file, on the command line or in a saved state to the value of an option.

Files and the command line give text; saved states give JSON values. Both go through :func:`to_value`, so that one set
of rules and messages holds everywhere.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable

from ostinato.config.declaration import OptionRecord, show

_TRUE = frozenset(("true", "yes", "on", "1"))
_FALSE = frozenset(("false", "no", "off", "0"))
_NULL = frozenset(("", "null", "none", "~"))
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 64
_LONGEST_SHOWN = 60


class ValueRefused(Exception):
    """A value does not fit its option. The text is the part of the message after the value."""


def to_value(record: OptionRecord, raw: object, *, stored: bool = False) -> object:
    """The value of an option, of the option's own type.

    :param record: the option.
    :param raw: text, None, a list of text, or, from a saved state, a JSON value.
    :param stored: the value comes from a saved state: a whole decimal number is taken for an integer, and a number out
        of range is kept, since that is what the run was made with.
    :raises ValueRefused: with what is wrong and what is expected.
    """
    if isinstance(raw, str):
        raw = raw.strip()
    if record.nullable and (raw is None or (isinstance(raw, str) and raw.lower() in _NULL)):
        return None
    if raw is None and "none" in record.choices:
        return "none"
    if record.kind == "list":
        return _list(record, raw)
    if raw is None or raw == "":
        raise ValueRefused(f"has no value; expected is {record.allowed} (default {show(record.default)})")
    if record.kind == "bool":
        value: object = _bool(record, raw)
    elif record.kind == "int":
        value = _int(record, raw, stored=stored)
    elif record.kind == "float":
        value = _float(record, raw)
    else:
        return _text(record, raw)
    if not stored and isinstance(value, (int, float)) and not in_range(record, value):
        raise ValueRefused(f"is out of range; expected is {record.allowed}{_usually(record)}")
    return value


def in_range(record: OptionRecord, value: float) -> bool:
    """Whether a number lies within the limits of its option."""
    return (
        (record.ge is None or value >= record.ge)
        and (record.gt is None or value > record.gt)
        and (record.le is None or value <= record.le)
        and (record.lt is None or value < record.lt)
    )


def is_unusual(record: OptionRecord, value: object) -> bool:
    """Whether a number lies outside of the usual range of its option."""
    if record.usual is None or not isinstance(value, (int, float)):
        return False
    return not record.usual[0] <= value <= record.usual[1]


def same(record: OptionRecord, one: object, other: object) -> bool:
    """Whether two values mean the same: lists as sets, whole and decimal numbers by value, text without case."""
    if record.kind == "list" and isinstance(one, list) and isinstance(other, list):
        return set(one) == set(other)
    if isinstance(one, str) and isinstance(other, str):
        return one.lower() == other.lower()
    return one == other


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, or None."""
    by_key = {_key(candidate): candidate for candidate in names}
    found = difflib.get_close_matches(_key(name), by_key, n=1, cutoff=0.6)
    return by_key[found[0]] if found else None


def quote(raw: object) -> str:
    """A value for a message: on one line, printable, cut when it is long."""
    text = show(raw) if not isinstance(raw, str) else raw
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _usually(record: OptionRecord) -> str:
    return f", usually {show(record.usual[0])} to {show(record.usual[1])}" if record.usual else ""


def _key(text: str) -> str:
    return text.strip().lower().replace("-", "_")


def _bool(record: OptionRecord, raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    word = raw.lower() if isinstance(raw, str) else str(raw)
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueRefused(f"is neither true nor false (default {show(record.default)})")


def _int(record: OptionRecord, raw: object, *, stored: bool) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    number = raw if isinstance(raw, float) else None
    if isinstance(raw, str) and len(raw) <= _LONGEST_NUMBER:
        if _WHOLE.fullmatch(raw):
            return int(raw)
        number = float(raw) if _DECIMAL.fullmatch(raw) else None
    if number is None or not math.isfinite(number) or not number.is_integer():
        raise ValueRefused(f"is not {record.allowed}{_usually(record)} (default {show(record.default)})")
    if stored:
        return int(number)
    raise ValueRefused(f"is not written as a whole number; write {int(number)}")


def _float(record: OptionRecord, raw: object) -> float:
    number: float | None = None
    hint = ""
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        number = float(raw) if not isinstance(raw, int) or abs(raw) < 2**1000 else math.inf
    elif isinstance(raw, str) and len(raw) <= _LONGEST_NUMBER:
        if _DECIMAL.fullmatch(raw):
            number = float(raw)
        elif _DECIMAL.fullmatch(raw.replace(",", ".")):
            hint = f"; write {raw.replace(',', '.')}, with a point"
    if number is None or not math.isfinite(number):
        raise ValueRefused(f"is not {record.allowed}{_usually(record)} (default {show(record.default)}){hint}")
    return number


def _text(record: OptionRecord, raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueRefused(f"is not text; expected is {record.allowed} (default {show(record.default)})")
    if record.choices:
        return _choice(record, raw)
    if record.pattern is not None and re.fullmatch(record.pattern, raw) is None:
        raise ValueRefused(f"is not {record.allowed} (default {show(record.default)})")
    return raw


def _choice(record: OptionRecord, word: str) -> str:
    for choice in record.choices:
        if _key(choice) == _key(word):
            return choice
    choices = ", ".join(record.choices)
    if any(_key(word) == _key(name) for name in record.not_built):
        only = f"there is only {choices}" if len(record.choices) == 1 else f"choose one of {choices}"
        raise ValueRefused(f"is known to Faceswap and not part of Ostinato yet; {only}")
    meant = nearest(word, record.choices)
    hint = f"; did you mean {meant}?" if meant else ""
    default = "" if record.kind == "list" else f" (default {show(record.default)})"
    raise ValueRefused(f"is not one of {choices}{default}{hint}")


def _list(record: OptionRecord, raw: object) -> list[str]:
    if raw is None:
        items: list[str] = []
    elif isinstance(raw, str):
        # The rule of Faceswap's files: commas, or blanks where there is no comma.
        text = raw.removeprefix("[").removesuffix("]") if raw.startswith("[") and raw.endswith("]") else raw
        items = [part.strip() for part in (text.split(",") if "," in text else text.split())]
    elif isinstance(raw, (list, tuple)):
        items = [str(item).strip() for item in raw]
    else:
        raise ValueRefused(f"is not a list; expected is {record.allowed}")
    values: list[str] = []
    for item in items:
        try:
            value = _choice(record, item) if record.choices else item
        except ValueRefused as refused:
            raise ValueRefused(f"holds {quote(item)}, which {refused}") from None
        if item and value not in values:
            values.append(value)
    return values
