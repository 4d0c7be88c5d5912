"""File names as people can read them, whatever bytes they hold."""

from __future__ import annotations

import os
import unicodedata

_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def shown_name(path: str | os.PathLike[str]) -> str:
    """A path on one line, safe for a terminal and for every encoding error handler.

    Control characters, line breaks, direction marks and bytes that are not UTF-8 (which the operating system hands over
    as lone surrogates) become escapes; a blank at either end is made visible. Letters of every script stay as they are.
    A backslash is doubled only where something else had to be escaped, so that ordinary Windows paths stay readable.
    """
    text = os.fspath(path)
    characters = [_escaped(character) for character in text]
    for end in (0, -1):
        if text and text[end].isspace() and characters[end] == text[end]:
            characters[end] = f"\\x{ord(text[end]):02x}" if ord(text[end]) < 0x100 else f"\\u{ord(text[end]):04x}"
    if all(new == old or old == "\\" for new, old in zip(characters, text, strict=True)):
        return text
    return "".join(characters)


def shown_text(text: str) -> str:
    """A message that may quote names and texts of anybody, so that a terminal only shows it.

    What :func:`shown_name` escapes is escaped, except line breaks, tabs and backslashes.
    """
    return "".join(character if character in "\n\t\\" else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as os.fsdecode keeps it
        return f"\\x{code - 0xDC00:02x}"
    # Control characters, format characters (direction marks; the joiners inside emoji and scripts are harmless),
    # surrogates, and line breaks.
    if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and character not in "\u200c\u200d":
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character
