"""Saving without stopping: copy, hand over, go on."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from ostinato.errors import SaveError, StateError
from ostinato.runs.commit import PackedContent
from ostinato.runs.content import GenerationContent
from ostinato.runs.folder import Commit
from ostinato.runs.host_copy import HostCopy

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SaveResult:
    """How one save ended.

    :param iteration: of the state.
    :param reasons: why it was made.
    :param commit: what was done; None when it failed.
    :param error: why it failed; None when it did not.
    :param seconds: from the hand-over to the end, in the background.
    """

    iteration: int
    reasons: tuple[str, ...]
    commit: Commit | None
    error: SaveError | None
    seconds: float


class CommitTarget(Protocol):
    """Where a writer commits to; :class:`ostinato.runs.folder.RunFolder` is one."""

    path: Path

    def pack(self, content: GenerationContent) -> PackedContent:
        """Make a content ready, in the moment in which it is true. Copies no tensor."""
        ...

    def commit(self, packed: PackedContent) -> Commit | None:
        """Write it, in the writer's thread.

        :raises SaveError: it cannot be relied on.
        """
        ...


class GenerationWriter:
    """One thread that commits generations while training goes on.

    ``submit`` copies all tensors into host memory that is used again at each save, and returns. Memory: one copy of
    the state. While a save is under way, the next ``submit`` waits for it: saves that come faster than the disk slow
    training down and never pile up.

    When there is no memory for the copy, the state is written straight from the tensors while training waits.
    """

    def __init__(self, run: CommitTarget) -> None:
        self.run = run
        self.last_hold_up = 0.0
        """Seconds that the last ``submit`` held up its caller."""
        self._copy = HostCopy()
        self._condition = threading.Condition()
        self._job: PackedContent | Callable[[], None] | None = None
        self._is_working = False
        self._is_closing = False
        self._results: deque[SaveResult] = deque()
        self._thread: threading.Thread | None = None

    @property
    def is_open(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None

    def open(self) -> GenerationWriter:
        """Start the thread."""
        if self._thread is None:
            self._is_closing = False
            # A daemon: a process that is told to leave at once must not wait for the disk. A commit that is cut there
            # leaves a temporary folder and nothing else.
            self._thread = threading.Thread(target=self._work, name="generation-writer", daemon=True)
            self._thread.start()
        return self

    def prepare(self, state: Iterable[Tensor]) -> None:
        """Get the memory for copies of these tensors in the background; else the first ``submit`` waits for it."""
        tensors = list(state)
        # Some more for what grows, such as the state of extensions, and for the alignment of each tensor.
        size = int(sum(t.numel() * t.element_size() + 64 for t in tensors) * 1.01)
        pinned = any(tensor.device.type == "cuda" for tensor in tensors)

        def get_memory() -> None:
            try:
                self._copy.prepare(size, pinned=pinned)
            except MemoryError:
                _log.debug("no memory for a copy of the state yet")

        self._hand_over(get_memory)

    def submit(self, content: GenerationContent) -> None:
        """Take a copy of a state and save it in the background.

        :raises ArgumentTypeError: it holds something that cannot be saved.
        :raises StateError: the writer is not open.
        """
        started = time.perf_counter()
        self._wait_until_idle()
        self.submit_packed(self.run.pack(content))
        self.last_hold_up = time.perf_counter() - started

    def submit_packed(self, packed: PackedContent) -> None:
        """The same for a content that is packed already. Nothing may have changed since.

        :raises StateError: the writer is not open.
        """
        if self._thread is None:
            raise StateError("The writer must be opened before something is submitted to it.")
        self._wait_until_idle()
        try:
            copied = packed.with_tensors(self._copy.copy(packed.tensors))
        except MemoryError:
            _log.warning(
                "There is not enough memory for a copy of the state at iteration %d, so training waits until it is on "
                "the disk. Lowering the batch size would help.",
                packed.content.iteration,
            )
            self._copy = HostCopy()
            result = self._commit(packed)
            with self._condition:
                self._results.append(result)
        else:
            self._hand_over(copied)

    def poll(self) -> list[SaveResult]:
        """The saves that ended since the last call, oldest first. Never waits."""
        if not self._results:  # asked in every iteration, so the common answer takes no lock
            return []
        with self._condition:
            results = list(self._results)
            self._results.clear()
        return results

    def wait(self) -> None:
        """Wait until everything submitted is on the disk or has failed."""
        self._wait_until_idle()

    def flush(self) -> list[SaveResult]:
        """Wait until everything submitted is on the disk or has failed, and tell how it ended."""
        self._wait_until_idle()
        return self.poll()

    def close(self) -> list[SaveResult]:
        """Finish what is under way, stop the thread and give the memory back."""
        results = self.flush()
        with self._condition:
            self._is_closing = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._copy = HostCopy()
        return results

    def _hand_over(self, job: PackedContent | Callable[[], None]) -> None:
        self._wait_until_idle()
        with self._condition:
            self._job = job
            self._condition.notify_all()

    def _wait_until_idle(self) -> None:
        with self._condition:
            while self._job is not None or self._is_working:
                self._condition.wait()

    def _work(self) -> None:
        while True:
            with self._condition:
                while self._job is None and not self._is_closing:
                    self._condition.wait()
                job, self._job = self._job, None
                if job is None:
                    return
                self._is_working = True
            result = self._commit(job) if isinstance(job, PackedContent) else job()
            del job
            with self._condition:
                if result is not None:
                    self._results.append(result)
                self._is_working = False
                self._condition.notify_all()

    def _commit(self, packed: PackedContent) -> SaveResult:
        started = time.perf_counter()
        commit, error = None, None
        try:
            commit = self.run.commit(packed)
        except SaveError as caught:
            error = caught
        except Exception as caught:  # a fault in here must cost a save and not the training
            _log.exception("a save failed unexpectedly")
            error = SaveError(
                f"The state at iteration {packed.content.iteration:,} could not be saved: {caught!r}.",
                advice="The generations before are untouched. This is a fault of the program; please report it.",
                folder=self.run.path,
                iteration=packed.content.iteration,
            )
            error.__cause__ = caught
        content = packed.content
        return SaveResult(content.iteration, content.reasons, commit, error, time.perf_counter() - started)
