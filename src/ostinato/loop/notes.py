"""Notes on exceptions, for Python 3.10 too."""

from __future__ import annotations


def add_note(error: BaseException, note: str) -> None:
    """Attach a line to an exception. From Python 3.11 on tracebacks show it."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        notes = getattr(error, "__notes__", [])
        error.__notes__ = [*notes, note]  # type: ignore[attr-defined]
