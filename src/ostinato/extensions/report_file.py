"""A file that an extension keeps up to date in the trainer's folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.runs.atomic import Files

_log = logging.getLogger(__name__)


class ReportFile:
    """Writes a file in one step and flushes it; what the disk refuses costs one warning, and training goes on.

    :param path: where it is; its folder is made when something is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._warned = False

    def replace(self, content: bytes) -> bool:
        """Give the file a new content: a reader sees the old one or the new one, whole.

        :return: whether the disk took it.
        """

        def write() -> None:
            Files().make_folder(self.path.parent)
            Files().replace(self.path, content)

        return self._try(write)

    def append(self, lines: str) -> bool:
        """Write one or more lines behind the others.

        :return: whether the disk took them. If not, a part of them may be there; replace the file the next time.
        """
        return self._try(lambda: Files().append_line(self.path, lines))

    def _try(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except OSError as error:
            if not self._warned:
                self._warned = True
                _log.warning(
                    "%s cannot be written: %s. Training goes on; what is missing is written later.",
                    self.path,
                    error.strerror or error,
                )
            return False
        self._warned = False
        return True


def checked_filename(filename: Any, owner: str) -> str:
    """The name of a file below the trainer's folder.

    :param owner: who was given it; for the message.
    :raises ArgumentTypeError: when it is neither text nor a path.
    :raises ArgumentValueError: when it is empty.
    """
    name = os.fspath(filename) if isinstance(filename, os.PathLike) else filename
    if not isinstance(name, str):
        raise ArgumentTypeError(f"{owner}: filename must be a text, not {filename!r}.", name="filename", value=filename)
    if not name or "\0" in name:
        raise ArgumentValueError(
            f"{owner}: {name!r} cannot be the name of a file.",
            advice="Name a file, which is written below the trainer's folder.",
            name="filename",
            value=filename,
        )
    return name
