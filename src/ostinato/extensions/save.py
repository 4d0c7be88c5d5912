"""Saving while training: when, why, and how a run goes on from it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from ostinato.dist import Alone, Group
from ostinato.errors import ArgumentTypeError, ArgumentValueError, OstinatoError, SaveError, StateError
from ostinato.extensions.rank_states import rank_state_for
from ostinato.extensions.save_due import SaveDue
from ostinato.extensions.state_parts import StateParts, join_state, split_state
from ostinato.loop.extension import PRIORITY_SNAPSHOT, Extension
from ostinato.loop.protocols import TrainerView
from ostinato.loop.triggers.parts import group_of
from ostinato.runs.best import BestBar, judge
from ostinato.runs.content import KEEP_OPTIMIZER, GenerationContent, LoadedGeneration
from ostinato.runs.folder import RunFolder
from ostinato.runs.ranked_store import PATIENCE, RankedStore
from ostinato.runs.retention import RetentionPolicy
from ostinato.runs.store import RunStore
from ostinato.runs.tree import pack_shared_tree
from ostinato.runs.writer import SaveResult

_log = logging.getLogger(__name__)

SaveOptimizer = Literal["always", "exit", "never"]


class GenerationStore(Protocol):
    """Where generations go: :class:`ostinato.runs.store.RunStore`, or, for several ranks,
    :class:`ostinato.runs.ranked_store.RankedStore`."""

    def open(self) -> None: ...

    def load(self, which: int | str | Path | None = None) -> LoadedGeneration | None: ...

    def prepare(self, state: Iterable[Tensor]) -> None: ...

    def submit(self, content: GenerationContent) -> None: ...

    def submit_alone(self, content: GenerationContent) -> None: ...

    def poll(self) -> list[SaveResult]: ...

    def settle(self) -> None: ...

    def flush(self) -> list[SaveResult]: ...

    def add_reasons(self, generation: str, *reasons: str) -> None: ...

    def hurry(self) -> None: ...

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

    Several ranks save and load together, on a disk that all of them share. Rank 0 chooses what is loaded, and all load
    the same. It writes what is common; every rank writes the states of its random generators, of its loader, and the
    parts it owns of what is cut over the ranks (see :class:`ostinato.runs.RowCut` and :class:`ostinato.runs.PerRank`).
    A save counts when all of them have written, and how it ended is told to all at the next save or at the end. The run
    goes on with any other number of ranks; :mod:`ostinato.extensions.rank_states` says with what.

    :param max_size: how many snapshots are kept, or, without ``snapshot_every``, how many saves of any kind; -1 for
        all. The best state and that of an error are counted apart. With 1, a state that is damaged later has none
        before it to fall back on.
    :param snapshot_on_error: also save the state in which an error ends the run. It is never loaded by itself;
        ``resume_from`` can name it. Rank 0 writes it alone, so what is cut over several ranks (optimizer states where
        the store updates, large tables, class centres) cannot be in it; nothing is saved where there is such state, and
        a warning says so.
    :param save_last: save once more at the end of a run, if something was trained since the last save.
    :param autoload: go on from the newest whole state. Without it, a folder that holds a run is refused.
    :param resume_from: go back to this generation (iteration, name or folder) first; what is newer is set aside, not
        deleted, and named in a warning. A new run may begin with a generation of another run, given by its folder.
    :param target: saved and loaded in place of the trainer; needs ``state_dict`` and ``load_state_dict``. It does not
        bring the counters of the trainer back; iterations are counted on from those of the state that was loaded.
    :param monitor: key of the observation whose mean since the last save decides what is the best state so far; of
        several ranks, the mean over all of them.
    :param mode: ``min`` or ``max``: which means are better.
    :param best_size: how many of the states that were the best so far are kept; the worst of them goes first.
    :param strict: make it an error when an extension or trigger has no saved state, or a saved one is not registered.
    :param every: when an ordinary save is due. A trigger given to ``extend`` replaces it; then ``snapshot_every`` and
        :meth:`request_save` have no effect, and ``monitor`` looks at the moment of the save alone.
    :param snapshot_every: when a snapshot is due, that is kept for its own sake; a save is made for it.
    :param save_optimizer: ``always``; ``exit``: only at the end, earlier saves carry the last one on; ``never``. Rows
        of tables that a store updates are weights, and always saved.
    :param loss_definition: text that is equal exactly when watched losses may be compared; another text resets the bar.
    :param minimum_iterations: a mean over fewer iterations never makes a best state.
    :param store: where to save; ``max_size`` then has no effect, since the store has its own policy of what to keep.
    :param on_result: called in the trainer's thread with the result of every save.
    :param patience: seconds after which rank 0 gives up a save of which another rank's part does not come.
    :raises ArgumentTypeError: ``max_size`` or ``best_size`` is no whole number, or ``patience`` no number.
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
        resume_from: int | str | Path | None = None,
        target: Any = None,
        monitor: str | None = None,
        mode: Literal["min", "max"] = "min",
        best_size: int = 1,
        strict: bool = False,
        every: Any = (1, "epoch"),
        snapshot_every: Any = None,
        save_optimizer: SaveOptimizer = "always",
        loss_definition: str = "",
        minimum_iterations: int = 1,
        store: GenerationStore | None = None,
        on_result: Callable[[SaveResult], None] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        for name, size in (("max_size", max_size), ("best_size", best_size)):
            if isinstance(size, bool) or not isinstance(size, int):
                raise ArgumentTypeError(f"{name} must be a whole number, not {size!r}.")
        if max_size != -1 and max_size < 1:
            raise ArgumentValueError(f"max_size is {max_size}; it must be at least 1, or -1 to keep all.")
        if best_size < 0:
            raise ArgumentValueError(f"best_size is {best_size}; it must be at least 0.")
        if monitor is not None and not isinstance(monitor, str):
            raise ArgumentTypeError(
                f"monitor must be the name of an observed value, not {monitor!r}.",
                advice="Write monitor='validation/loss', say; mode says which means are better.",
                value=monitor,
            )
        if isinstance(resume_from, bool) or not isinstance(resume_from, int | str | Path | None):
            raise ArgumentTypeError(
                f"resume_from must be an iteration, or the name or the folder of a generation, not {resume_from!r}.",
                advice="To go on with the newest state leave it out; autoload does so.",
                value=resume_from,
            )
        if mode not in ("min", "max"):
            raise ArgumentValueError(f"mode is {mode!r}; it must be 'min' or 'max'.")
        if save_optimizer not in ("always", "exit", "never"):
            raise ArgumentValueError(f"save_optimizer is {save_optimizer!r}; choose 'always', 'exit' or 'never'.")
        if isinstance(patience, bool) or not isinstance(patience, (int, float)):
            raise ArgumentTypeError(f"patience must be a number of seconds, not {patience!r}.")
        if not patience > 0:
            raise ArgumentValueError(f"patience is {patience}; it must be above 0 seconds.")
        self.trigger = SaveDue(every, snapshot_every, monitor, on_asked=self._watch)
        # Without snapshots of their own kind all saves are counted together, that of the end like any other.
        self._policy = (
            RetentionPolicy(latest=max_size, snapshots=max_size, session_ends=0, best=best_size)
            if snapshot_every is None
            else RetentionPolicy(snapshots=max_size, best=best_size)
        )
        self.bar = BestBar(None, loss_definition)
        """The best mean so far."""
        self._snapshot_on_error = snapshot_on_error
        self._save_last = save_last
        self._autoload = autoload
        self._resume_from = resume_from
        self._target = target
        self._strict = strict
        self._patience = patience
        self._group: Group = Alone()
        self._loaded_iteration = 0
        self._counted_before = 0  # iterations that a target has seen and the trainer does not count
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
        """Wait until the save that is under way has ended, as far as this rank has a part in it."""
        if self._store is not None:
            self._store.settle()
        self._collect()

    @property
    def last_saved(self) -> int | None:
        """The iteration of the newest state that this process knows to be on the disk."""
        return next(iter(self._saved), None)

    # --- hooks of the trainer -----------------------------------------------------------------------------------------

    def restore(self, trainer: TrainerView) -> None:
        """Open the store and load what is there. Of several ranks all go on, or all raise.

        :raises RunLockedError: somebody else trains in this folder.
        :raises DamagedRunError: the folder holds state, and none of it can be read whole.
        :raises StateError: the folder holds a run, and ``autoload`` is off; or its state does not fit this program.
        """
        self._group = group_of(trainer)
        store = self._given_store
        if store is None:
            run = RunFolder(trainer.out, policy=self._policy)
            store = RunStore(run) if self._group.size == 1 else RankedStore(run, self._group, patience=self._patience)
        self._store = store
        try:
            store.open()
            loaded = store.load(self._resume_from)
            if loaded is None:
                return
            if not self._autoload and self._resume_from is None:
                raise StateError(
                    f"The folder {trainer.out} already holds a run, at iteration {loaded.iteration:,}.",
                    advice="Choose an empty folder for a new run, or set autoload to go on with this one.",
                )
            self._load_together(trainer, loaded)
        except BaseException:
            self._close()
            raise

    def _load_together(self, trainer: TrainerView, loaded: LoadedGeneration) -> None:
        problem: OstinatoError | None = None
        try:
            self._load(trainer, loaded)
        except OstinatoError as error:
            problem = error
        told = self._group.gather(None if problem is None else problem.what)
        if problem is not None:
            raise problem
        for rank, what in enumerate(told):
            if what is not None:
                raise StateError(
                    f"Rank {rank} could not go on from the saved state: {what}",
                    advice="What can be done stands in the error of that rank.",
                    rank=rank,
                )

    def _load(self, trainer: TrainerView, loaded: LoadedGeneration) -> None:
        stored_at = loaded.manifest.optimizer_iteration
        if stored_at is not None and stored_at != loaded.iteration:
            _log.warning(
                "The optimizer state is of iteration %d, the weights are of iteration %d: training goes on with both. "
                "Expect a short rise of the loss.",
                stored_at,
                loaded.iteration,
            )
        own = rank_state_for(loaded, self._group.rank, self._group.size)
        parts = StateParts(dict(loaded.model), loaded.optimizer, loaded.state, own)
        settings = {"strict": True} if self._strict and self._target is None else {}
        try:
            self._target_of(trainer).load_state_dict(join_state(parts, trainer.updater), **settings)
        except (OstinatoError, torch.OutOfMemoryError):
            raise
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
            raise StateError(
                f"Generation {loaded.manifest.generation} is whole, and its state does not fit this program: "
                f"{type(error).__name__}: {error}.",
                advice="Go on with the program and the options that saved it, or restore another generation.",
            ) from error
        self._loaded_iteration = loaded.iteration
        self._saved = {loaded.iteration: loaded.manifest.generation}

    def initialize(self, trainer: TrainerView) -> None:
        """Begin to count, now that everything is restored.

        A run that goes on is asked for its state here, for the memory that copies of it need, and not after its first
        update, as a new run is. So a run in pieces is asked after the same updates as one in one piece: to be asked may
        make a state bring up to date what it has put off, which rounds other numbers than putting it off further.
        """
        self._start_iteration = trainer.updater.state.iteration
        if self._target is not None:
            self._counted_before = max(0, self._loaded_iteration - self._start_iteration)
        if self._saved:
            try:
                self._watch(trainer)
            except BaseException:
                self._close()  # whoever fails to initialize is not finalized
                raise

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
            self._store.submit_alone(self._content(trainer, ("error",), with_optimizer=True, average=None, count=0))

    def finalize(self, trainer: TrainerView) -> None:
        """Save the last state, wait for the disk, close the store.

        :raises SaveError: the last state could not be saved.
        """
        if self._store is None:
            return
        try:
            if trainer.status == "failed":  # the other ranks may be gone
                self._store.hurry()
                self.settle()
                return
            self._collect(wait=True)
            iteration = self._iteration(trainer)
            if not self._save_last or trainer.updater.state.iteration <= self._start_iteration:
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
        iteration = self._iteration(trainer)
        total, count = self.trigger.take()
        if count == 0 and self._monitor is not None and self._monitor in trainer.observation:
            self.trigger.add(trainer.observation[self._monitor])
            total, count = self.trigger.take()
        pending = _Pending(total, count, self.bar)
        if self._monitor is not None and self._group.size > 1:
            total, values = self._group.sum_of([total, float(count)])
            average, count = (total / values if values else None), math.ceil(values / self._group.size)
        else:
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
        self._pending[iteration] = pending
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
        parts = self._parts(trainer)
        optimizer: Any = parts.optimizer
        if not with_optimizer:
            optimizer = KEEP_OPTIMIZER if self._save_optimizer == "exit" else None
        return GenerationContent(
            iteration=self._iteration(trainer),
            model=parts.model,
            optimizer=optimizer,
            state=parts.rest,
            reasons=reasons,
            epoch=trainer.updater.state.epoch,
            average_loss=average if average is not None and math.isfinite(average) else None,
            average_count=count,
            bar=self.bar,
            rank_state=parts.of_rank,
        )

    def _parts(self, trainer: TrainerView) -> StateParts:
        tree = self._target_of(trainer).state_dict()
        return split_state(tree, trainer.updater, several_ranks=self._group.size > 1)

    def _iteration(self, trainer: TrainerView) -> int:
        return trainer.updater.state.iteration + self._counted_before

    def _target_of(self, trainer: TrainerView) -> Any:
        return trainer if self._target is None else self._target

    def _watch(self, trainer: TrainerView) -> None:
        """In every iteration: hear of saves that ended; the first time, get the memory for the copies."""
        if not self._is_prepared and self._store is not None:
            self._is_prepared = True  # after the first update, or after loading: optimizers start without a state
            self._store.prepare(self._written_here(self._parts(trainer)))
        self._collect()

    def _written_here(self, parts: StateParts) -> list[Tensor]:
        """The tensors of which this rank takes a copy for a save."""
        found = pack_shared_tree([parts.optimizer, parts.rest])[1]
        own = pack_shared_tree([parts.of_rank, *(leaf.state for leaf in found.per_rank.values())])[1]
        rows = [cut.tensor for cut in found.rows.values()]
        common = [*parts.model.values(), *found.tensors.values()] if self._group.rank == 0 else []
        return [*common, *rows, *own.tensors.values()]

    def _not_saved(self, iteration: int) -> SaveError:
        """The error of a last save, which no next save makes up for."""
        cause = self._last_error
        newest = self.last_saved if self.last_saved is not None else self._loaded_iteration or None
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
