"""Saving while training: when, why, and how a run goes on from it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError, OstinatoError, SaveError, StateError
from ostinato.extensions.save_due import SaveDue
from ostinato.extensions.state_parts import StateParts, join_state, split_state
from ostinato.loop.extension import PRIORITY_SNAPSHOT, Extension
from ostinato.loop.protocols import TrainerView
from ostinato.runs.best import BestBar, judge
from ostinato.runs.content import KEEP_OPTIMIZER, GenerationContent, LoadedGeneration
from ostinato.runs.folder import RunFolder
from ostinato.runs.retention import RetentionPolicy
from ostinato.runs.store import RunStore
from ostinato.runs.tree import pack_tree
from ostinato.runs.writer import SaveResult

_log = logging.getLogger(__name__)

SaveOptimizer = Literal["always", "exit", "never"]


class GenerationStore(Protocol):
    """Where generations go; :class:`ostinato.runs.store.RunStore` is one."""

    def open(self) -> None: ...

    def load(self, which: int | str | None = None) -> LoadedGeneration | None: ...

    def prepare(self, state: Iterable[Tensor]) -> None: ...

    def submit(self, content: GenerationContent) -> None: ...

    def poll(self) -> list[SaveResult]: ...

    def flush(self) -> list[SaveResult]: ...

    def add_reasons(self, generation: str, *reasons: str) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class _Pending:
    """What has to be undone if a save that is under way fails."""

    total: float
    count: int
    bar_before: BestBar


class Snapshot(Extension):
    """Loads the newest state at the start, saves a generation now and then, and once more at the end.

    ::

        trainer.extend(Snapshot(every=(250, "iteration"), snapshot_every=(25000, "iteration"), monitor="loss/total"))

    The folder ``trainer.out`` becomes a run folder, unless ``store`` says otherwise. Saving happens in the background;
    a save that fails is a warning, training goes on, and the next save tries again. Only the last save of a run raises
    when it fails, after a second try.

    :param max_size: how many snapshots are kept, or, without ``snapshot_every``, how many saves of any kind (two at
        least are kept anyway); -1 for all.
    :param snapshot_on_error: also save the state in which an error ends the run. It is never loaded by itself.
    :param save_last: save once more at the end of a run, if something was trained since the last save.
    :param autoload: go on from the newest whole state. Without it, a folder that holds a run is refused.
    :param resume_from: go back to this generation (iteration or name) first; what is newer is set aside, not deleted.
    :param target: saved and loaded in place of the trainer; needs ``state_dict`` and ``load_state_dict``.
    :param monitor: key of the observation whose mean since the last save decides what is the best state so far.
    :param mode: ``min`` or ``max``: which means are better.
    :param every: when an ordinary save is due. A trigger given to ``extend`` replaces it; then ``snapshot_every`` and
        :meth:`request_save` have no effect, and ``monitor`` looks at the moment of the save alone.
    :param snapshot_every: when a snapshot is due, that is kept for its own sake; a save is made for it.
    :param save_optimizer: ``always``; ``exit``: only at the end, earlier saves carry the last one on; ``never``.
    :param loss_definition: text that is equal exactly when watched losses may be compared; another text resets the bar.
    :param minimum_iterations: a mean over fewer iterations never makes a best state.
    :param store: where to save; ``max_size`` then has no effect, since the store has its own policy of what to keep.
    :param on_result: called in the trainer's thread with the result of every save.
    :raises ArgumentTypeError: ``max_size`` is no whole number.
    :raises ArgumentValueError: a value is out of range.
    """

    priority = PRIORITY_SNAPSHOT
    name = "snapshot"

    def __init__(
        self,
        max_size: int = 5,
        snapshot_on_error: bool = False,
        *,
        save_last: bool = True,
        autoload: bool = True,
        resume_from: int | str | None = None,
        target: Any = None,
        monitor: str | None = None,
        mode: Literal["min", "max"] = "min",
        every: Any = (1, "epoch"),
        snapshot_every: Any = None,
        save_optimizer: SaveOptimizer = "always",
        loss_definition: str = "",
        minimum_iterations: int = 1,
        store: GenerationStore | None = None,
        on_result: Callable[[SaveResult], None] | None = None,
    ) -> None:
        if isinstance(max_size, bool) or not isinstance(max_size, int):
            raise ArgumentTypeError(f"max_size must be a whole number, not {max_size!r}.")
        if max_size != -1 and max_size < 1:
            raise ArgumentValueError(f"max_size is {max_size}; it must be at least 1, or -1 to keep all.")
        if mode not in ("min", "max"):
            raise ArgumentValueError(f"mode is {mode!r}; it must be 'min' or 'max'.")
        if save_optimizer not in ("always", "exit", "never"):
            raise ArgumentValueError(f"save_optimizer is {save_optimizer!r}; choose 'always', 'exit' or 'never'.")
        self.trigger = SaveDue(every, snapshot_every, monitor, on_asked=self._watch)
        self._policy = (
            RetentionPolicy(latest=max_size if max_size == -1 else max(2, max_size))
            if snapshot_every is None
            else RetentionPolicy(snapshots=max_size)
        )
        self.bar = BestBar(None, loss_definition)
        """The best mean so far."""
        self._snapshot_on_error = snapshot_on_error
        self._save_last = save_last
        self._autoload = autoload
        self._resume_from = resume_from
        self._target = target
        self._monitor = monitor
        self._maximize = mode == "max"
        self._save_optimizer = save_optimizer
        self._loss_definition = loss_definition
        self._minimum_iterations = minimum_iterations
        self._given_store = store
        self._store: GenerationStore | None = None
        self._on_result = on_result
        self._is_prepared = False
        self._start_iteration = 0
        self._asked_iteration = -1  # of the newest save that was submitted
        self._is_complete = False  # whether that save holds all that the last save of a run must hold
        self._saved: dict[int, str] = {}  # generation by iteration, of the newest save that succeeded
        self._last_error: SaveError | None = None
        self._pending: dict[int, _Pending] = {}

    # --- for others ---------------------------------------------------------------------------------------------------

    def request_save(self) -> None:
        """Save after this iteration. May be called from anywhere; it only makes a note."""
        self.trigger.is_requested = True

    def settle(self) -> None:
        """Wait until the save that is under way has ended."""
        self._collect(wait=True)

    @property
    def last_saved(self) -> int | None:
        """The iteration of the newest state that this process knows to be on the disk."""
        return next(iter(self._saved), None)

    # --- hooks of the trainer -----------------------------------------------------------------------------------------

    def restore(self, trainer: TrainerView) -> None:
        """Open the store and load what is there.

        :raises RunLockedError: somebody else trains in this folder.
        :raises DamagedRunError: the folder holds state, and none of it can be read whole.
        :raises StateError: the folder holds a run, and ``autoload`` is off; or its state does not fit this program.
        """
        store = self._given_store
        if store is None:
            store = RunStore(RunFolder(trainer.out, policy=self._policy))
        store.open()
        self._store = store
        try:
            loaded = store.load(self._resume_from)
            if loaded is None:
                return
            if not self._autoload and self._resume_from is None:
                raise StateError(
                    f"The folder {trainer.out} already holds a run, at iteration {loaded.iteration:,}.",
                    advice="Choose an empty folder for a new run, or set autoload to go on with this one.",
                )
            self._load(trainer, loaded)
        except BaseException:
            self._close()
            raise

    def _load(self, trainer: TrainerView, loaded: LoadedGeneration) -> None:
        stored_at = loaded.manifest.optimizer_iteration
        if stored_at is not None and stored_at != loaded.iteration:
            _log.warning(
                "The optimizer state is of iteration %d, the weights are of iteration %d: training goes on with both. "
                "Expect a short rise of the loss.",
                stored_at,
                loaded.iteration,
            )
        parts = StateParts(dict(loaded.model), loaded.optimizer, loaded.state)
        try:
            self._target_of(trainer).load_state_dict(join_state(parts, trainer.updater))
        except (OstinatoError, torch.OutOfMemoryError):
            raise
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
            raise StateError(
                f"Generation {loaded.manifest.generation} is whole, and its state does not fit this program: "
                f"{type(error).__name__}: {error}.",
                advice="Go on with the program and the options that saved it, or restore another generation.",
            ) from error
        self._start_iteration = loaded.iteration
        self._saved = {loaded.iteration: loaded.manifest.generation}

    def __call__(self, trainer: TrainerView) -> None:
        """Save now."""
        self._collect(wait=True)  # handing over would wait for the save before anyway
        due = self.trigger
        reasons = ["latest"]
        if due.is_snapshot_due:
            reasons.append("snapshot")
        due.is_requested = due.is_snapshot_due = False
        self._save(trainer, reasons, complete=self._save_optimizer != "exit")

    def on_error(self, trainer: TrainerView, error: BaseException, traceback: TracebackType | None) -> None:
        """Save the state in which an error ended the run, if that was wanted."""
        if self._snapshot_on_error and self._store is not None:
            self._store.submit(self._content(trainer, ("error",), with_optimizer=True, average=None, count=0))

    def finalize(self, trainer: TrainerView) -> None:
        """Save the last state, wait for the disk, close the store.

        :raises SaveError: the last state could not be saved.
        """
        if self._store is None:
            return
        try:
            iteration = trainer.updater.state.iteration
            wanted = self._save_last and trainer.status != "failed" and iteration > self._start_iteration
            self._collect(wait=True)
            if not wanted:
                return
            reason = "signal" if _is_signal(getattr(trainer, "stop_reason", None)) else "session_end"
            if iteration in self._saved and self._asked_iteration == iteration and self._is_complete:
                self._mark(self._saved[iteration], reason)
                return
            for _ in range(2):  # a second try, for there is no next save that could make up for this one
                self._save(trainer, ["latest", reason], complete=True)
                self._collect(wait=True, is_last=True)
                if iteration in self._saved:
                    return
            raise self._not_saved(iteration)
        finally:
            self._close()

    def _mark(self, generation: str, reason: str) -> None:
        assert self._store is not None
        try:
            self._store.add_reasons(generation, reason)
        except SaveError as error:  # the state itself is on the disk, and the newest one is kept whatever made it
            _log.warning("Generation %s is saved, but not marked as %s: %s", generation, reason, error.what)

    def state_dict(self) -> dict[str, Any]:
        """The bar for best states."""
        return {"lowest": self.bar.lowest, "loss_definition": self.bar.definition}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with a saved bar, as long as the loss is still defined in the same way."""
        lowest = None if state["lowest"] is None else float(state["lowest"])
        bar = BestBar(lowest, str(state["loss_definition"]))
        self.bar = bar if bar.definition == self._loss_definition else BestBar(None, self._loss_definition)

    # --- saving -------------------------------------------------------------------------------------------------------

    def _save(self, trainer: TrainerView, reasons: list[str], *, complete: bool) -> None:
        if self._store is None:
            raise StateError("Snapshot was called before it was restored; run it in a trainer.")
        iteration = trainer.updater.state.iteration
        total, count = self.trigger.take()
        if count == 0 and self._monitor is not None and self._monitor in trainer.observation:
            total, count = float(trainer.observation[self._monitor]), 1
        average = total / count if count else None
        before = self.bar
        self.bar, is_best = judge(
            before,
            average,
            count,
            self._loss_definition,
            minimum_count=self._minimum_iterations,
            maximize=self._maximize,
        )
        if is_best:
            reasons.append("best")
        self._pending[iteration] = _Pending(total, count, before)
        self._asked_iteration, self._is_complete = iteration, complete
        with_optimizer = complete and self._save_optimizer != "never"
        self._store.submit(
            self._content(trainer, tuple(reasons), with_optimizer=with_optimizer, average=average, count=count)
        )

    def _content(
        self,
        trainer: TrainerView,
        reasons: tuple[str, ...],
        *,
        with_optimizer: bool,
        average: float | None,
        count: int,
    ) -> GenerationContent:
        parts = split_state(self._target_of(trainer).state_dict(), trainer.updater)
        optimizer: Any = parts.optimizer
        if not with_optimizer:
            optimizer = KEEP_OPTIMIZER if self._save_optimizer == "exit" else None
        return GenerationContent(
            iteration=trainer.updater.state.iteration,
            model=parts.model,
            optimizer=optimizer,
            state=parts.rest,
            reasons=reasons,
            epoch=trainer.updater.state.epoch,
            average_loss=average if average is not None and math.isfinite(average) else None,
            average_count=count,
            bar=self.bar,
        )

    def _target_of(self, trainer: TrainerView) -> Any:
        return trainer if self._target is None else self._target

    def _watch(self, trainer: TrainerView) -> None:
        """In every iteration: hear of saves that ended; after the first one, get the memory for the copies."""
        if not self._is_prepared and self._store is not None:
            self._is_prepared = True  # only now: optimizers make their state in their first step
            parts = split_state(self._target_of(trainer).state_dict(), trainer.updater)
            others = pack_tree([parts.optimizer, parts.rest])[1].values()
            self._store.prepare([*parts.model.values(), *others])
        self._collect()

    def _not_saved(self, iteration: int) -> SaveError:
        """The error of a last save, which no next save makes up for."""
        cause = self._last_error
        newest = self.last_saved if self.last_saved is not None else self._start_iteration or None
        if newest is None:
            advice = "Nothing of this run is saved. Remove the cause, and start again."
        else:
            advice = (
                f"The newest saved state is that of iteration {newest:,}. Remove the cause and start the same command "
                "again: it goes on from there."
            )
        error = SaveError(
            cause.what if cause is not None else f"The last state, of iteration {iteration:,}, was not saved.",
            advice=advice,
            **({"iteration": iteration} if cause is None else cause.fields),
        )
        error.__cause__ = cause
        return error

    def _collect(self, *, wait: bool = False, is_last: bool = False) -> None:
        if self._store is None:
            return
        for result in self._store.flush() if wait else self._store.poll():
            pending = self._pending.pop(result.iteration, None)
            if result.error is not None:
                self._last_error = result.error
                if pending is not None:
                    self.trigger.give_back(pending.total, pending.count)
                    self.bar = pending.bar_before
                if not is_last:  # then it is raised
                    _log.warning("%s", result.error)
            elif result.commit is not None and "error" not in result.reasons:
                self._saved = {result.iteration: result.commit.manifest.generation}
            if self._on_result is not None:
                self._on_result(result)

    def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()


def _is_signal(reason: str | None) -> bool:
    return reason is not None and reason.lower().startswith("sig")  # "signal", or a name such as "SIGTERM"
