"""A group of several processes, over torch.distributed."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed

from ostinato.dist.placement import Placement
from ostinato.errors import OstinatoError, RankFailedError, StateError

T = TypeVar("T")

_FAILURE = "ostinato/failure"  # in the store: which rank failed first, with which exit status, and what it said
_READERS = "ostinato/failure/readers"  # how many ranks have read it
_SECONDS_FOR_READERS = 5.0
_LOST = ("connection closed by peer", "connection reset by peer", "broken pipe", "timed out waiting")


class TorchGroup:
    """The ranks of a torch.distributed job; made by :func:`~ostinato.dist.open_group`.

    Its collectives run on processor memory in a process group of their own: they never meet those of the gradients,
    and never wait for an accelerator.

    :param placement: the place of this process.
    :param control: the process group, on gloo, for this group's collectives.
    :param store: where the ranks have met.
    :param timeout: seconds after which a collective gives up.
    :param owns_world: whether closing this group ends torch.distributed.
    :param keeps_store: whether the store lives in this process, so that it ends for all ranks when this one does.
    """

    def __init__(
        self,
        placement: Placement,
        control: Any,
        store: Any,
        timeout: float,
        *,
        owns_world: bool = True,
        keeps_store: bool = False,
    ) -> None:
        self.rank = placement.rank
        self.size = placement.size
        self.local_rank = placement.local_rank
        self.timeout = timeout
        self._control = control
        self._store = store
        self._owns_world = owns_world
        self._keeps_store = keeps_store
        self._has_read_failure = False

    # --- collectives -----------------------------------------------------------------------------------------------

    def gather(self, value: T) -> list[T]:
        """See :meth:`Group.gather`."""
        values: list[Any] = [None] * self.size
        with self._collective():
            torch.distributed.all_gather_object(values, value, group=self._control)
        return values

    def broadcast(self, value: T, source: int = 0) -> T:
        """See :meth:`Group.broadcast`."""
        holder: list[Any] = [value if self.rank == source else None]
        with self._collective():
            torch.distributed.broadcast_object_list(holder, src=source, group=self._control)
        return value if self.rank == source else holder[0]

    def sum_of(self, values: Sequence[float]) -> list[float]:
        """See :meth:`Group.sum_of`."""
        mine = torch.tensor([float(value) for value in values], dtype=torch.float64)
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        with self._collective():
            torch.distributed.all_gather(parts, mine, group=self._control)
        return [_exact_sum(column) for column in torch.stack(parts).T.tolist()]

    def barrier(self) -> None:
        """See :meth:`Group.barrier`."""
        self.sum_of([0.0])

    @contextlib.contextmanager
    def _collective(self) -> Generator[None]:
        if self._control is None:
            raise StateError(
                f"The group of rank {self.rank} is closed, and a collective was called on it.",
                advice="Keep the group open until the run has ended.",
                rank=self.rank,
            )
        try:
            yield
        except RuntimeError as error:
            # Not chained: what the transport says of its sockets is the echo of a failure elsewhere.
            raise self._failure_elsewhere(error) from None

    # --- failures --------------------------------------------------------------------------------------------------

    def explain(self, error: BaseException) -> BaseException:
        """See :meth:`Group.explain`."""
        if not isinstance(error, RuntimeError):
            return error
        said = str(error).lower()
        if any(words in said for words in _LOST) and ("gloo" in said or isinstance(error, torch.distributed.DistError)):
            return self._failure_elsewhere(error)
        # Less clear words are an echo only where another rank is known to have failed.
        is_echo = any(word in said for word in ("gloo", "nccl"))
        return self._failure_elsewhere(error) if is_echo and self._first_failure() is not None else error

    def _failure_elsewhere(self, error: BaseException) -> RankFailedError:
        failure = self._first_failure()
        if failure is not None:
            rank, status, said = failure
            echo = RankFailedError(
                f"Rank {rank} failed, so rank {self.rank} cannot go on. Rank {rank} said: {_sentence(said)}",
                advice=f"Look at the output and the log of rank {rank}.",
                rank=rank,
                error=said,
            )
            echo.exit_code = status  # whoever looks at the statuses of the ranks may see this one first
            return echo
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "timed out" in str(error).lower():
            what = f"Rank {self.rank} waited {self.timeout:g} seconds for the others, and not all of them came."
            advice = "A rank hangs or has more to do than the others: look at their logs, or give a longer time-out."
        else:
            what = f"Another rank has ended without a word, so rank {self.rank} cannot go on."
            advice = "It was killed, or left the program early: look at the logs of the other ranks."
        return RankFailedError(what, advice=advice, rank=None, error=said)

    def _first_failure(self) -> tuple[int, int, str] | None:
        """Rank, exit status and words of the first failure, if one of another rank is known."""
        try:
            if not self._store.check([_FAILURE]):
                return None
            rank, status, said = self._store.get(_FAILURE).decode().split(" ", 2)
            if not self._has_read_failure:
                self._has_read_failure = True
                self._store.add(_READERS, 1)
        except RuntimeError:  # the store has ended with the rank that kept it
            return None
        return None if int(rank) == self.rank else (int(rank), int(status), said)

    def abort(self, error: BaseException | None = None) -> None:
        """See :meth:`Group.abort`."""
        if self._control is None:
            return
        knows_better = isinstance(error, RankFailedError) and error.fields.get("rank") is not None
        noted = False
        if not knows_better:
            said = "it was aborted" if error is None else f"{type(error).__name__}: {error}"
            with contextlib.suppress(RuntimeError):
                if not self._store.check([_FAILURE]):  # the first one counts: later ones follow from it
                    status = error.exit_code if isinstance(error, OstinatoError) else 1
                    self._store.set(_FAILURE, f"{self.rank} {status} {said}")
                    self._store.get(_FAILURE)  # a set returns before the store has it; the others look soon
                    noted = True
        if torch.cuda.is_available():
            # Only NCCL needs it: closing would wait for collectives whose partners never come.
            with contextlib.suppress(RuntimeError, AttributeError):
                self._control.abort()
                torch.distributed.group.WORLD.abort()  # pyrefly: ignore
        self.close()
        if noted and self._keeps_store:
            self._wait_for_readers()

    def _wait_for_readers(self) -> None:
        """Keep the note readable for a moment: the store ends with this process."""
        end = time.monotonic() + min(_SECONDS_FOR_READERS, self.timeout)
        with contextlib.suppress(RuntimeError):
            while self._store.add(_READERS, 0) < self.size - 1 and time.monotonic() < end:
                time.sleep(0.05)

    # --- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """See :meth:`Group.close`."""
        control, self._control = self._control, None
        if control is None or not torch.distributed.is_initialized():
            return
        with contextlib.suppress(RuntimeError):  # a broken connection is closed as well
            torch.distributed.destroy_process_group(None if self._owns_world else control)

    def __enter__(self) -> TorchGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort(error)

    def __repr__(self) -> str:
        return f"TorchGroup(rank={self.rank}, size={self.size})"


def _sentence(said: str) -> str:
    return said if said.endswith((".", "!", "?")) else f"{said}."


def _exact_sum(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # infinities of both signs, or a sum that is too large
        return sum(values)
