"""Reading a text file that a person wrote with any editor."""

from __future__ import annotations

import codecs
from pathlib import Path

from ostinato.errors import ConfigError

LARGEST_BYTES = 256 * 1024
"""More than this is no file of options."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def read_text(path: Path) -> str:
    """The text of a file of options: UTF-8, or what its byte-order mark says.

    :raises ConfigError: if the file cannot be read, is too large, or is no text. Field: ``path``.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}.", advice="Give the file with your options.", path=path) from None
    except OSError as error:
        reason = "it is a folder" if path.is_dir() else error.strerror or str(error)
        raise ConfigError(f"The options in {path} cannot be read: {reason}.", path=path) from error
    if len(data) > LARGEST_BYTES:
        what = f"{path} is larger than {LARGEST_BYTES // 1024} KiB, so it is no file of options."
        raise ConfigError(what, advice="Give the file with your options.", path=path)
    encoding, mark = next(((name, mark) for mark, name in _MARKS if data.startswith(mark)), ("utf-8", b""))
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        what = f"{path}, line {line}: this is not {encoding.upper()} text (byte {data[len(mark) + error.start]:#04x})."
        raise ConfigError(what, advice="Open it in a text editor and save it as UTF-8.", path=path) from error
    if "\0" in text:
        raise ConfigError(f"{path} holds zero bytes, so it is no text file.", path=path)
    return text
