"""Output that outlives its reader: a training must not end because a terminal was closed or a pipe broke."""

from __future__ import annotations

from typing import Any, TextIO


class SteadyStream:
    """Passes everything on to a stream; once that fails, or where there is none, it drops what comes.

    :param stream: such as the standard output, which is None in a process that was started without one.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:
        """The stream's."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write, if anybody is there."""
        self._pass_on("write", text)
        return len(text)

    def flush(self) -> None:
        """Flush, if anybody is there."""
        self._pass_on("flush")

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return bool(self._pass_on("isatty"))

    def fileno(self) -> int:
        """The stream's descriptor.

        :raises OSError: it has none.
        """
        if self._stream is None:
            raise OSError("there is no standard output")
        return self._stream.fileno()

    def _pass_on(self, method: str, *arguments: Any) -> Any:
        if self._stream is None:
            return None
        try:
            return getattr(self._stream, method)(*arguments)
        except (OSError, ValueError):  # a broken pipe, a terminal that is gone, a full disk; a closed stream
            self._stream = None
            return None
