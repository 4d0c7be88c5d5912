"""The error that says what is wrong where in a record file."""

from __future__ import annotations

import os

from ostinato.data.file_names import shown_name
from ostinato.errors import RecordError


def record_error(
    path: str | os.PathLike[str],
    reason: str,
    *,
    key: int | None = None,
    offset: int | None = None,
    advice: str = "",
) -> RecordError:
    """An error that names file, key and byte offset, as far as they are known.

    :param reason: what is wrong; goes after a colon.
    """
    where = shown_name(path)
    which = [f"key {key}"] if key is not None else []
    which += [f"byte {offset:,}"] if offset is not None else []
    if which:
        where += f" ({', '.join(which)})"
    return RecordError(
        f"{where}: {reason}.", advice=advice, path=os.fspath(path), key=key, offset=offset, reason=reason
    )
