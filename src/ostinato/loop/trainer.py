"""The object that loops.

::

    restore     the newest saved state is loaded, by the extension that knows how
    initialize  the updater, every extension (high priority first), every trigger
    loop        until the stop trigger says so or a stop was requested:
                  update       one batch, one parameter update; the counters rise
                  ordinary     each extension: its trigger is asked, then it runs
                  stop         the stop trigger is asked
                  late         all triggers are asked, then those that fired run: saving sees everything
    on_error    every extension, if something raised
    finalize    every extension, exactly once; the updater last
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from ostinato.dist import Alone, Group
from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.loop.extension import Extension
from ostinato.loop.notes import add_note
from ostinato.loop.protocols import ExtensionFunction, Status, TriggerFunction, Updater
from ostinato.loop.registration import (
    Ranks,
    Registration,
    callable_attribute,
    check_priority,
    setting,
    wanted_name,
)
from ostinato.loop.reporter import scope
from ostinato.loop.shared_trigger import share_triggers
from ostinato.loop.triggers.get_trigger import get_stop_trigger, get_trigger
from ostinato.loop.triggers.limit_trigger import LimitTrigger

_log = logging.getLogger(__name__)

STATE_FORMAT = 1


class Trainer:
    """Calls the updater until the stop trigger says so, and every extension when its trigger does.

    One iteration: the update; then the ordinary extensions from high priority to low, each asked and called before the
    next is asked; then the stop trigger; then the late extensions (priority -100 and below), all asked before any is
    called. All of them see the same ``observation``, a new dictionary in every iteration, which ``report`` fills.

    The constructor stores; nothing is opened, created or started before :meth:`run`.

    :param updater: does the updates; see :class:`~ostinato.loop.protocols.Updater`.
    :param stop_trigger: ``(1000, "iteration")``, a time text such as ``"5ep"``, a trigger, a list of these of which any
        one ends the run, or ``None`` for a run without limit, which has to be written down.
    :param out: the folder that extensions write to; created by :meth:`run`.
    :param extensions: registered with :meth:`extend` without further settings.
    :param group: the ranks that train together.
    :param clock: seconds that never go back.
    """

    def __init__(
        self,
        updater: Updater,
        stop_trigger: Any,
        out: str | os.PathLike[str] = "result",
        extensions: Iterable[ExtensionFunction] | None = None,
        *,
        group: Group | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.updater = updater
        self.stop_trigger: TriggerFunction = get_stop_trigger(stop_trigger)
        self.out = Path(out)
        self.observation: dict[str, Any] = {}
        """The numbers reported in this iteration."""
        self.group: Group = group if group is not None else Alone()
        self._clock = clock
        self._status: Status = "created"
        self._registrations: dict[str, Registration] = {}
        self._stop_reason: str | None = None
        self._earlier_time = 0.0  # elapsed seconds of the processes before this one
        self._started_at: float | None = None  # clock at the end of the restore step; None while it does not run
        for extension in extensions or ():
            self.extend(extension)

    # --- what extensions ask ---------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """``created``, ``running``, ``finished`` (the stop trigger said so), ``stopped`` (a request) or ``failed``."""
        return self._status

    @property
    def elapsed_time(self) -> float:
        """Seconds of training: of this process since its restore step ended, and of all earlier ones."""
        if self._started_at is None:
            return self._earlier_time
        return self._earlier_time + (self._clock() - self._started_at)

    @property
    def max_iteration(self) -> int | None:
        """The iteration at which the stop trigger ends the run, if it counts iterations, or epochs of known length."""
        limit = self.stop_trigger
        if not isinstance(limit, LimitTrigger):
            return None
        if limit.unit == "iteration":
            return int(limit.limit)
        length = self.updater.state.updates_per_epoch
        if limit.unit == "epoch" and length is not None:
            return math.ceil(limit.limit * length)
        return None

    @property
    def is_before_training(self) -> bool:
        """Whether no update of this run has been completed yet."""
        return self.updater.state.iteration == 0

    @property
    def stop_reason(self) -> str | None:
        """Why a stop was requested; ``None`` while it was not."""
        return self._stop_reason

    def request_stop(self, reason: str = "request") -> None:
        """End the run after the current iteration with all its extensions; before the first one if none has begun.

        May be called from an extension, another thread or a signal handler: it only makes a note.
        """
        if self._stop_reason is None:
            self._stop_reason = reason

    # --- registering -----------------------------------------------------------------------------------------------

    def extend(
        self,
        extension: ExtensionFunction,
        name: str | None = None,
        trigger: Any = None,
        priority: float | None = None,
        *,
        ranks: Ranks = "all",
        call_before_training: bool = False,
    ) -> None:
        """Register an extension: any callable that takes the trainer. It is not changed.

        :param name: its name, made unique by ``_1``, ``_2``, ...; by default its own ``name``, ``default_name``,
            ``__name__`` or the name of its class.
        :param trigger: when it runs, see :func:`~ostinato.loop.triggers.get_trigger`; by default its own, else every
            iteration.
        :param priority: high runs first; by default its own, else 100.
        :param ranks: ``"all"``, or 0 for one that only writes and uses no collectives: it is registered everywhere and
            runs on rank 0.
        :param call_before_training: run it also once before the first update of a fresh run.
        :raises ArgumentTypeError: when it cannot be called, or an argument has the wrong type.
        :raises ArgumentValueError: for a bad name, trigger or rank, and for an ``Extension`` registered already.
        :raises StateError: when the run has begun.
        """
        if self._status != "created":
            raise StateError(
                f"Extensions are registered before the run; this trainer is {self._status}.",
                advice="Call extend() before run().",
                status=self._status,
            )
        if not callable(extension):
            raise ArgumentTypeError(
                f"An extension must be callable, and {extension!r} is not.",
                advice="Give a function of the trainer, or an object with __call__.",
                value=extension,
            )
        unique = self._unique_name(wanted_name(extension, name))
        if isinstance(extension, Extension) and any(
            extension is known.extension for known in self._registrations.values()
        ):
            raise ArgumentValueError(
                f"The same extension object is already registered as {self.name_of(extension)!r}.",
                advice="Make a second object, or combine the triggers with |.",
                name=unique,
            )
        if ranks not in ("all", 0) or isinstance(ranks, bool):
            raise ArgumentValueError(f"ranks must be 'all' or 0, not {ranks!r}.", value=ranks)
        limit = self.stop_trigger if isinstance(self.stop_trigger, LimitTrigger) else None
        self._registrations[unique] = Registration(
            name=unique,
            extension=extension,
            trigger=get_trigger(setting(extension, "trigger", trigger, (1, "iteration")), limit),
            priority=check_priority(setting(extension, "priority", priority, None)),
            ranks=ranks,
            call_before_training=call_before_training,
        )

    def _unique_name(self, name: str) -> str:
        unique, number = name, 0
        while unique in self._registrations:
            number += 1
            unique = f"{name}_{number}"
        return unique

    def get_extension(self, name: str) -> ExtensionFunction:
        """The extension of that name.

        :raises ArgumentValueError: when there is none.
        """
        if name not in self._registrations:
            raise ArgumentValueError(
                f"No extension is named {name!r}.",
                advice=f"Registered are: {', '.join(self._registrations) or 'none'}.",
                name=name,
            )
        return self._registrations[name].extension

    def name_of(self, extension: ExtensionFunction) -> str:
        """The name under which an extension is registered, the first one if there are several.

        :raises ArgumentValueError: when it is not registered.
        """
        for known in self._registrations.values():
            # Equality for bound methods: each access makes a new object.
            if known.extension is extension or known.extension == extension:
                return known.name
        raise ArgumentValueError(f"{extension!r} is not registered here.", value=extension)

    def ranks_of(self, extension: ExtensionFunction) -> Ranks:
        """On which ranks an extension runs: ``"all"`` or 0. One that uses collectives where it can has to know.

        :raises ArgumentValueError: when it is not registered.
        """
        return self._registrations[self.name_of(extension)].ranks

    # --- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides how the run goes on: a tree of dict, list, JSON values, tensors and arrays.

        Tensors are the live ones, not copies.
        """
        extensions: dict[str, Any] = {}
        triggers: dict[str, Any] = {}
        for known in self._registrations.values():
            for owner, states in ((known.extension, extensions), (known.trigger, triggers)):
                save = callable_attribute(owner, "state_dict")
                if save is not None:
                    states[known.name] = save()
        save = callable_attribute(self.stop_trigger, "state_dict")
        return {
            "format": STATE_FORMAT,
            "updater": self.updater.state_dict(),
            "elapsed_time": self.elapsed_time,
            "extensions": extensions,
            "triggers": triggers,
            "stop_trigger": None if save is None else save(),
        }

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = False) -> None:
        """Continue from a tree that :meth:`state_dict` has returned; called by the ``restore`` hook of an extension.

        An extension or trigger that the tree does not know starts fresh; one that is no longer registered is ignored.
        Both are logged.

        :param strict: make both an error.
        :raises ArgumentValueError: when the tree has another format.
        :raises StateError: with ``strict``, for names that differ. Nothing has been loaded then.
        """
        if state.get("format") != STATE_FORMAT:
            raise ArgumentValueError(
                f"This state has format {state.get('format')!r}; this version reads format {STATE_FORMAT}.",
                advice="Continue the run with the version of Ostinato that saved it, or a newer one.",
                format=state.get("format"),
            )
        saved_extensions, saved_triggers = state.get("extensions", {}), state.get("triggers", {})
        self._compare_names(saved_extensions, saved_triggers, strict)
        self.updater.load_state_dict(state["updater"])
        for known in self._registrations.values():
            for owner, states in ((known.extension, saved_extensions), (known.trigger, saved_triggers)):
                load = callable_attribute(owner, "load_state_dict")
                if load is not None and known.name in states:
                    load(states[known.name])
        load = callable_attribute(self.stop_trigger, "load_state_dict")
        if load is not None and state.get("stop_trigger") is not None:
            load(state["stop_trigger"])
        self._earlier_time = float(state["elapsed_time"])

    def _compare_names(self, extensions: Mapping[str, Any], triggers: Mapping[str, Any], strict: bool) -> None:
        with_state = {
            known.name
            for known in self._registrations.values()
            if callable_attribute(known.extension, "state_dict") or callable_attribute(known.trigger, "state_dict")
        }
        saved = set(extensions) | set(triggers)
        new, gone = sorted(with_state - saved), sorted(saved - set(self._registrations))
        if strict and (new or gone):
            raise StateError(
                f"The saved state and this trainer differ. New here: {', '.join(new) or 'none'}. "
                f"Only in the saved state: {', '.join(gone) or 'none'}.",
                advice="Register the same extensions, or load with strict=False.",
                new=new,
                gone=gone,
            )
        if new:
            _log.info("new in this process, starting fresh: %s", ", ".join(new))
        if gone:
            _log.warning("in the saved state, no longer registered, ignored: %s", ", ".join(gone))

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train until the stop trigger says so or a stop is requested; see the picture at the head of this module.

        An exception of an update, an extension or a trigger leaves this method unchanged but for notes that say where
        it happened, after every extension was told and finalized.

        :raises StateError: when this trainer has run before, or the ranks have registered different extensions.
        """
        if self._status != "created":
            raise StateError(
                f"A trainer runs once, and this one is {self._status}.",
                advice="Make a new trainer; it continues from the saved state.",
                status=self._status,
            )
        self._status = "running"
        order = sorted(self._registrations.values(), key=lambda known: -known.priority)  # stable
        here = [known for known in order if known.ranks == "all" or self.group.rank == 0]
        restored: list[Registration] = []  # restored, and not asked to initialize yet
        initialized: list[Registration] = []
        failure: BaseException | None = None
        try:
            self._restore(here, restored)
            self._initialize(here, restored, initialized)
            self._status = self._loop(order, {known.name for known in here})
        except BaseException as error:  # also KeyboardInterrupt and SystemExit: extensions have to let go of files
            failure = error
            self._status = "failed"
        self._stop_clock()
        if failure is not None:
            self._tell(initialized, failure)
        # Who has restored holds something, even if the run failed before its turn to initialize came.
        failure = self._finalize(initialized + restored, failure)
        if failure is not None:
            self._status = "failed"
            try:
                raise failure
            finally:
                del failure  # breaks the cycle of exception, traceback and this frame

    def _restore(self, here: list[Registration], restored: list[Registration]) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        for known in here:
            restore = known.hook("restore")
            if restore is not None:
                self._guarded(f"restore of extension {known.name!r}", restore, self)
                restored.append(known)
        self._started_at = self._clock()

    def _initialize(
        self, here: list[Registration], restored: list[Registration], initialized: list[Registration]
    ) -> None:
        self._compare_ranks()
        initialize = callable_attribute(self.updater, "initialize")
        if initialize is not None:
            self._guarded("initialize of the updater", initialize, self)
        for known in here:
            if known in restored:
                restored.remove(known)
            initialize = known.hook("initialize")
            if initialize is not None:
                self._guarded(f"initialize of extension {known.name!r}", initialize, self)
            initialized.append(known)
        for known in self._registrations.values():
            initialize = callable_attribute(known.trigger, "initialize")
            if initialize is not None:
                self._guarded(f"initialize of the trigger of extension {known.name!r}", initialize, self)
        initialize = callable_attribute(self.stop_trigger, "initialize")
        if initialize is not None:
            self._guarded("initialize of the stop trigger", initialize, self)

    def _compare_ranks(self) -> None:
        """Different registrations would end in a hang or in mixed-up collectives; here they are an error (RK-1)."""
        mine = [known.describe() for known in self._registrations.values()]
        for rank, theirs in enumerate(self.group.gather(mine)):
            if theirs == mine:
                continue
            odd = [entry for entry in [*mine, *theirs] if (entry in mine) != (entry in theirs)]
            raise StateError(
                f"Rank {self.group.rank} and rank {rank} have registered different extensions: "
                f"{'; '.join(odd) or 'the order differs'}.",
                advice="Register the same extensions on every rank; give ranks=0 to those that only write.",
                rank=rank,
                entries=odd,
            )

    def _loop(self, order: list[Registration], here: set[str]) -> Status:
        """The loop itself; returns how it ended."""
        triggers, stop_trigger = share_triggers([known.trigger for known in order], self.stop_trigger)
        steps = [
            _Step(known, trigger, known.extension if known.name in here else _nothing)
            for known, trigger in zip(order, triggers, strict=True)
        ]
        ordinary = [step for step in steps if not step.registration.is_late]
        late = [step for step in steps if step.registration.is_late]
        update = self.updater.update
        stop = _bound(stop_trigger)
        current: _Step | None = None  # for the message only: whose turn it was when something raised
        phase = "extensions called before training"
        with scope(self.observation) as reports:
            try:
                if self.is_before_training:
                    for current in steps:
                        if current.registration.call_before_training:
                            current.extension(self)
                current, phase = None, "stop trigger"
                finished = stop(self)
                while not finished and self._stop_reason is None:
                    current, phase = None, "update"
                    self.observation = reports.target = {}
                    update()
                    for current in ordinary:
                        if current.trigger(self):
                            current.extension(self)
                    current, phase = None, "stop trigger"
                    finished = stop(self)
                    for current in late:
                        current.is_due = current.trigger(self)
                    for current in late:
                        if current.is_due:
                            current.extension(self)
            except BaseException as error:
                self._note(error, phase if current is None else f"extension {current.registration.name!r}")
                raise
        return "finished" if finished else "stopped"

    def _stop_clock(self) -> None:
        self._earlier_time = self.elapsed_time
        self._started_at = None

    def _tell(self, initialized: list[Registration], failure: BaseException) -> None:
        for known in initialized:
            on_error = known.hook("on_error")
            if on_error is not None:
                try:
                    on_error(self, failure, failure.__traceback__)
                except BaseException as error:  # the others have to be told too
                    self._attach(failure, error, f"on_error of extension {known.name!r}")

    def _finalize(self, initialized: list[Registration], failure: BaseException | None) -> BaseException | None:
        """Finalize everything; returns the exception that leaves the run."""
        calls: list[tuple[str, Callable[..., Any] | None, tuple[Any, ...]]] = [
            (f"finalize of extension {known.name!r}", known.hook("finalize"), (self,)) for known in initialized
        ]
        calls.append(("finalize of the updater", callable_attribute(self.updater, "finalize"), ()))
        for what, finalize, arguments in calls:
            if finalize is None:
                continue
            try:
                finalize(*arguments)
            except BaseException as error:  # whatever it is, the others must still be closed
                if failure is None:
                    failure = error
                    self._note(error, what)
                else:
                    self._attach(failure, error, what)
        return failure

    def _guarded(self, where: str, hook: Callable[..., Any], *arguments: Any) -> None:
        try:
            hook(*arguments)
        except BaseException as error:
            self._note(error, where)
            raise

    def _note(self, error: BaseException, where: str) -> None:
        place = f"at iteration {self.updater.state.iteration}, {where}"
        add_note(error, place)
        _log.error("%s: %s (%s)", type(error).__name__, error, place)

    @staticmethod
    def _attach(failure: BaseException, error: BaseException, where: str) -> None:
        if error is failure:  # an extension that repeats what it said, so that nothing is saved on the way out
            return
        note = f"then {where} raised {type(error).__name__}: {error}"
        add_note(failure, note)
        _log.error("%s", note, exc_info=error)


class _Step:
    """One extension within the loop: what is asked and what is called, as plain attributes."""

    __slots__ = ("extension", "is_due", "registration", "trigger")

    def __init__(self, registration: Registration, trigger: TriggerFunction, extension: ExtensionFunction) -> None:
        self.registration = registration
        self.is_due = False
        self.trigger = _bound(trigger)
        self.extension = _bound(extension)


def _bound(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same call for less: calling a method costs half of calling an object that has ``__call__``."""
    return call if isinstance(call, FunctionType | MethodType | type) else call.__call__


def _nothing(trainer: Trainer) -> None:
    """Runs in place of an extension that belongs to another rank."""
