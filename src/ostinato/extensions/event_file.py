"""TensorBoard's event files, written without its thread: what fails, fails here and now."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_numbers = itertools.count()


class EventFile:
    """An open event file; made by :meth:`create`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._end = 0

    @classmethod
    def create(cls, folder: Path, purge_step: int) -> EventFile:
        """Make one in a folder, which is made when missing.

        :param folder: any name that the file system takes.
        :param purge_step: readers forget the points of older files of this folder from this step on.
        :raises OSError: it cannot be made.
        """
        events = _protocol("event_pb2")
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        # Readers take the files of a folder in the order of their names.
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
        file = cls(os.open(folder / name, flags, 0o644))
        try:
            start = events.SessionLog(status=events.SessionLog.START)
            file.write(
                [
                    events.Event(wall_time=now, file_version="brain.Event:2"),
                    events.Event(wall_time=now, step=purge_step, session_log=start),
                ]
            )
        except BaseException:
            file.close()
            raise
        return file

    def add_scalars(self, points: Iterable[tuple[str, int, float, float]]) -> None:
        """Append points: name, step, seconds since 1970, value.

        :raises OSError: the disk refuses; then none of them is in the file.
        """
        event, summary = _protocol("event_pb2").Event, _protocol("summary_pb2").Summary
        self.write(
            event(wall_time=moment, step=step, summary=summary(value=[summary.Value(tag=name, simple_value=value)]))
            for name, step, moment, value in points
        )

    def write(self, events: Iterable[Any]) -> None:
        """Append events, all or none.

        :raises OSError: the disk refuses; then none of them is in the file.
        """
        from tensorboard.summary.writer.record_writer import RecordWriter

        buffer = io.BytesIO()
        records = RecordWriter(buffer)
        for event in events:
            records.write(event.SerializeToString())
        rest = buffer.getbuffer()
        end = self._end + len(rest)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            with contextlib.suppress(OSError):  # half a record would hide all that follow it
                os.ftruncate(self._descriptor, self._end)
            raise
        self._end = end

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _protocol(name: str) -> Any:
    # Made by protobuf at run time, so nothing is known of it before; and it is imported late, for it takes long.
    return importlib.import_module(f"tensorboard.compat.proto.{name}")
