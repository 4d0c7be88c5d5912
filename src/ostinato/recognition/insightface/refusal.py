"""The error about a file that cannot be used here."""

from __future__ import annotations

from pathlib import Path

from ostinato.data.file_names import shown_name
from ostinato.errors import BadInputError


def refusal(path: Path, what: str, advice: str) -> BadInputError:
    """Make the error.

    :param what: what is wrong, as the rest of a sentence that begins with the file's name; no full stop.
    :param advice: what to do, as a sentence without its full stop.
    """
    return BadInputError(f"{shown_name(path)} {what}.", advice=f"{advice}.", path=str(path))
