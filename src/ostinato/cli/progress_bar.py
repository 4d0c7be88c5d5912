"""A bar that shows how far a long reading or writing has come."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def progress_bar(word: str) -> Generator[Callable[[int, int], None], None, None]:
    """A bar on stderr, where a person looks at it; nothing elsewhere.

    :param word: what is being done.
    :return: to be called with how much is done, and of how much.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn(word), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(word, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
