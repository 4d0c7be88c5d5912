"""A run folder and its writer as one thing: what an extension that saves needs, and no more."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from ostinato.runs.content import GenerationContent, LoadedGeneration
from ostinato.runs.folder import RunFolder
from ostinato.runs.writer import GenerationWriter, SaveResult


class RunStore:
    """Loads from a run folder and saves to it in the background.

    :param run: a folder that is open already is left open by :meth:`close`; otherwise it is opened and closed here.
    :param loaded: the state with which this process begins, when the caller has loaded it before.
    """

    def __init__(self, run: RunFolder, loaded: LoadedGeneration | None = None) -> None:
        self.run = run
        self.writer = GenerationWriter(run)
        self._loaded = loaded
        self._opened_here = False

    def open(self) -> None:
        """Take the folder's lock, unless the caller has, and start the writer."""
        if not self.run.is_open:
            self.run.open()
            self._opened_here = True
        self.writer.open()

    def load(self, which: int | str | Path | None = None) -> LoadedGeneration | None:
        """The newest whole state, or None for a new run; or one named generation, to which the run then goes back.

        Begins a session, unless the caller has.
        """
        loaded, self._loaded = self._loaded, None  # not held here: it is as large as the state
        if which is not None:
            loaded = self.run.load(which)
        elif loaded is None:
            loaded = self.run.load_newest()
        if self.run.session is None:
            self.run.begin_session(start_iteration=loaded.iteration if loaded else 0)
        return loaded

    def prepare(self, state: Iterable[Tensor]) -> None:
        """See :meth:`GenerationWriter.prepare`."""
        self.writer.prepare(state)

    def submit(self, content: GenerationContent) -> None:
        """See :meth:`GenerationWriter.submit`."""
        self.writer.submit(content)

    def submit_alone(self, content: GenerationContent) -> None:
        """The same as :meth:`submit`: there are no other ranks to ask."""
        self.submit(content)

    def settle(self) -> None:
        """Wait until what is under way has ended; :meth:`poll` then tells how."""
        self.writer.wait()

    def hurry(self) -> None:
        """Nothing: there are no other ranks to wait for."""

    def poll(self) -> list[SaveResult]:
        """See :meth:`GenerationWriter.poll`."""
        return self.writer.poll()

    def flush(self) -> list[SaveResult]:
        """See :meth:`GenerationWriter.flush`."""
        return self.writer.flush()

    def add_reasons(self, generation: str, *reasons: str) -> None:
        """See :meth:`RunFolder.add_reasons`."""
        self.run.add_reasons(generation, *reasons)

    def close(self) -> None:
        """Finish what is under way, stop the writer, and give the lock back if it was taken here."""
        self.writer.close()
        if self._opened_here:
            self.run.close()
            self._opened_here = False
