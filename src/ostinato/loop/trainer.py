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
    finalize    every extension, exactly once: logs after the others, the updater last
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

from ostinato.dist import Alone, Group, RefusingGroup
from ostinato.errors import BadInputError, NonFiniteError, RankFailedError, StateError
from ostinato.loop.agreement import Agreement
from ostinato.loop.first_rank_only import refuse_collectives
from ostinato.loop.notes import add_note
from ostinato.loop.protocols import ExtensionFunction, Status, TriggerFunction, Updater, WrapCall
from ostinato.loop.rank_checks import compare_counters, compare_registrations
from ostinato.loop.registration import Ranks, Registration, RegistrationList, callable_attribute, describe_trigger
from ostinato.loop.reporter import scope
from ostinato.loop.shared_trigger import triggers_of_run
from ostinato.loop.trainer_arguments import checked_agree_every, checked_extensions, checked_group, checked_updater
from ostinato.loop.trainer_state import load_trainer_state, trainer_state
from ostinato.loop.triggers.get_trigger import get_stop_trigger
from ostinato.loop.triggers.run_limit import limit_of_run, limits_of_run
from ostinato.loop.triggers.stop_memory import StopMemory

_log = logging.getLogger(__name__)


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
    :param agree_every: with several ranks, how many iterations lie between two agreements on what passes slowly: time
        triggers, requests to stop and signals. By default 10. A process alone looks in every iteration.
    :param clock: seconds that never go back.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: when it has a value that is not allowed.
    """

    def __init__(
        self,
        updater: Updater,
        stop_trigger: Any,
        out: str | os.PathLike[str] = "result",
        extensions: Iterable[ExtensionFunction] | None = None,
        *,
        group: Group | None = None,
        agree_every: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.updater = checked_updater(updater)
        self.stop_trigger: TriggerFunction = get_stop_trigger(stop_trigger)
        # Found now: while the run lasts, stand-ins take the places of parts of the trigger.
        self._limits = limits_of_run(self.stop_trigger)
        self._stop_memory = StopMemory(self.stop_trigger)
        self.out = Path(out)
        self.observation: dict[str, Any] = {}
        """The numbers reported in this iteration."""
        self.group: Group = Alone() if group is None else checked_group(group)
        """The ranks that train together. Refuses collectives where they could not end: in an extension that runs on
        rank 0 only, and after an error."""
        self._agree_every = checked_agree_every(agree_every)
        self._agreement = Agreement(self.group, self._agree_every, self._accept_stop) if self.group.size > 1 else None
        self._clock = clock
        self._status: Status = "created"
        self._registrations = RegistrationList()
        self._stop_reason: str | None = None
        self._wraps: list[WrapCall] | None = []  # None once the loop has begun
        self._earlier_time = 0.0  # elapsed seconds of the processes before this one
        self._started_at: float | None = None  # clock at the end of the restore step; None while it does not run
        for extension in checked_extensions(extensions):
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
        """The iteration at which the run ends at the latest, where a limit of iterations or of known epochs tells."""
        length = self.updater.state.updates_per_epoch
        ends = [int(limit.limit) for limit in self._limits if limit.unit == "iteration"]
        if length is not None:
            ends += [math.ceil(limit.limit * length) for limit in self._limits if limit.unit == "epoch"]
        return min(ends, default=None)

    @property
    def is_before_training(self) -> bool:
        """Whether no update of this run has been completed yet."""
        return self.updater.state.iteration == 0

    @property
    def agree_every(self) -> int:
        """How many iterations lie between two agreements of the ranks on what passes slowly."""
        return self._agree_every

    @property
    def stop_reason(self) -> str | None:
        """Why a stop was requested, the same on every rank; ``None`` while it was not, or is not agreed on yet."""
        return self._stop_reason

    def request_stop(self, reason: str = "request") -> None:
        """End the run after the current iteration with all its extensions; before the first one if none has begun.

        May be called from an extension, another thread or a signal handler: it only makes a note. With several ranks a
        request of any one of them ends the run on all, after the next iteration in which the ranks agree.
        """
        if self._agreement is None:
            self._accept_stop(reason)
        elif self._agreement.wish is None:
            self._agreement.wish = reason

    def _accept_stop(self, reason: str) -> None:
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
        self._registrations.add(
            extension,
            name=name,
            trigger=trigger,
            priority=priority,
            ranks=ranks,
            call_before_training=call_before_training,
            limit=limit_of_run(self.stop_trigger),
        )

    def get_extension(self, name: str) -> ExtensionFunction:
        """The extension of that name.

        :raises ArgumentValueError: when there is none.
        """
        return self._registrations.named(name).extension

    def name_of(self, extension: ExtensionFunction) -> str:
        """The name under which an extension is registered, the first one if there are several.

        :raises ArgumentValueError: when it is not registered.
        """
        return self._registrations.name_of(extension)

    def wrap_calls(self, wrap: WrapCall) -> None:
        """Let something else be called in place of the update and of every extension: what ``wrap(name, call)`` returns
        for each, with ``None`` as the name of the update. For an extension that measures them, in its ``initialize``.

        :raises StateError: before the run, and once the loop has begun.
        """
        if self._status != "running" or self._wraps is None:
            raise StateError(
                "The calls of the loop are put together when it begins.",
                advice="Call wrap_calls() in the initialize() of an extension.",
                status=self._status,
            )
        self._wraps.append(wrap)

    # --- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides how the run goes on: a tree of dict, list, JSON values, tensors and arrays.

        Tensors are the live ones, not copies.
        """
        tree = trainer_state(self.updater, self._registrations, self.stop_trigger, self.elapsed_time)
        return {**tree, "stopped_by": self._stop_memory.state()}

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = False) -> None:
        """Continue from a tree that :meth:`state_dict` has returned; called by the ``restore`` hook of an extension.

        An extension or trigger that the tree does not know starts fresh; one that is no longer registered is ignored.
        Both are logged.

        :param strict: make both an error.
        :raises ArgumentValueError: when the tree has another format.
        :raises StateError: with ``strict``, for names that differ. Nothing has been loaded then.
        """
        self._earlier_time = load_trainer_state(
            state, self.updater, self._registrations, self.stop_trigger, strict=strict
        )
        self._stop_memory.load(state.get("stopped_by"))

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train until the stop trigger says so or a stop is requested; see the picture at the head of this module.

        An exception of an update, an extension or a trigger leaves this method unchanged but for notes that say where
        it happened, after every extension was told and finalized.

        :raises StateError: when this trainer has run before, or the ranks have registered different extensions.
        :raises BadInputError: when the folder ``out`` cannot be made.
        """
        if self._status != "created":
            raise StateError(
                f"A trainer runs once, and this one is {self._status}.",
                advice="Make a new trainer; it continues from the saved state.",
                status=self._status,
            )
        self._status = "running"
        group = self.group
        order = self._registrations.in_order()
        here = [known for known in order if known.ranks == "all" or group.rank == 0]
        restored: list[Registration] = []  # restored, and not asked to initialize yet
        initialized: list[Registration] = []
        failure: BaseException | None = None
        try:
            compare_registrations(group, self._described())
            self._restore(here, restored)
            self._initialize(here, restored, initialized)
            self._status = self._loop(order, {known.name for known in here})
        except BaseException as error:  # also KeyboardInterrupt and SystemExit: extensions have to let go of files
            failure = error
            self._fail()
        self._stop_clock()
        if failure is not None:
            self._tell(initialized, failure)
        # Who has restored holds something, even if the run failed before its turn to initialize came.
        failure = self._finalize(initialized + restored, failure)
        if failure is not None:
            group.abort(failure)
            if isinstance(failure, RankFailedError):
                failure.__traceback__ = None  # what is worth reading stands in the other rank's error
            try:
                raise failure
            finally:
                del failure  # breaks the cycle of exception, traceback and this frame

    def _described(self) -> list[str]:
        return [
            *(known.describe() for known in self._registrations),
            f"stop trigger {describe_trigger(self.stop_trigger)}, agreement every {self._agree_every} iterations",
        ]

    def _restore(self, here: list[Registration], restored: list[Registration]) -> None:
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(
                f"The folder {self.out}, which this trainer writes to, cannot be made: {error.strerror or error}.",
                advice="Give another folder as out, or move away what is in its place.",
                folder=self.out,
            ) from error
        for known in here:
            restore = known.hook("restore")
            if restore is not None:
                self._guarded(f"restore of extension {known.name!r}", self._in_its_place(known, restore), self)
                restored.append(known)
        self._started_at = self._clock()

    def _initialize(
        self, here: list[Registration], restored: list[Registration], initialized: list[Registration]
    ) -> None:
        initialize = callable_attribute(self.updater, "initialize")
        if initialize is not None:
            self._guarded("initialize of the updater", initialize, self)
        compare_counters(self.group, self.updater.state)
        for known in here:
            if known in restored:
                restored.remove(known)
            initialize = known.hook("initialize")
            if initialize is not None:
                self._guarded(f"initialize of extension {known.name!r}", self._in_its_place(known, initialize), self)
            initialized.append(known)
        for known in self._registrations:
            for trigger in known.inner_triggers if known not in here else ():
                # The extension would do it, and it runs elsewhere; but all ranks ask.
                self._guarded(f"initialize of the trigger inside extension {known.name!r}", trigger.initialize, self)
            initialize = callable_attribute(known.trigger, "initialize")
            if initialize is not None:
                self._guarded(f"initialize of the trigger of extension {known.name!r}", initialize, self)
        initialize = callable_attribute(self.stop_trigger, "initialize")
        if initialize is not None:
            self._guarded("initialize of the stop trigger", initialize, self)

    def _loop(self, order: list[Registration], here: set[str]) -> Status:
        """The loop itself; returns how it ended."""
        agreement = self._agreement
        wraps, self._wraps = self._wraps or [], None
        with (
            triggers_of_run(
                [known.trigger for known in order], self.stop_trigger, agreement.on if agreement else None
            ) as (triggers, stop_trigger),
            scope(self.observation) as reports,
        ):
            steps = [
                _Step(
                    known, trigger, self._asking(known, self._wrapped(known, wraps) if known.name in here else _nothing)
                )
                for known, trigger in zip(order, triggers, strict=True)
            ]
            ordinary = [step for step in steps if not step.registration.is_late]
            late = [step for step in steps if step.registration.is_late]
            update = self.updater.update
            for wrap in wraps:
                update = wrap(None, update)
            stop = _bound(agreement.with_wishes(stop_trigger) if agreement else stop_trigger)
            current: _Step | None = None  # for the message only: whose turn it was when something raised
            phase = "extensions called before training"
            try:
                if self.is_before_training:
                    for current in steps:
                        if current.registration.call_before_training:
                            current.extension(self)
                current, phase = None, "stop trigger"
                finished = stop(self) or self._stop_memory.holds()
                while not finished and self._stop_reason is None:
                    current, phase = None, "update"
                    self.observation = reports.target = {}
                    update()
                    for current in ordinary:
                        if current.trigger(self):
                            current.extension(self)
                    current, phase = None, "stop trigger"
                    finished = stop(self)
                    if finished:
                        self._stop_memory.note()
                    for current in late:
                        current.is_due = current.trigger(self)
                    for current in late:
                        if current.is_due:
                            current.extension(self)
            except BaseException as error:
                explained = self._noted(error, phase if current is None else f"extension {current.registration.name!r}")
                if explained is not error:
                    raise explained from None
                raise
        return "finished" if finished else "stopped"

    def _wrapped(self, known: Registration, wraps: list[WrapCall]) -> Callable[..., Any]:
        call = self._in_its_place(known, known.extension)
        for wrap in wraps:
            call = wrap(known.name, call)
        return call

    def _asking(self, known: Registration, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call of an extension, before which all ranks ask the triggers that it asks itself, where those need it."""
        triggers = [trigger for trigger in known.inner_triggers if not trigger.is_equal_on_all_ranks]
        if self.group.size == 1 or not triggers:
            return call

        def asking(trainer: Any) -> Any:
            for trigger in triggers:
                trigger.ask_together(trainer, self._agree_every)
            return call(trainer)

        return asking

    def _in_its_place(self, known: Registration, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call of an extension, guarded if it runs on one of several ranks only."""
        if known.ranks == "all" or self.group.size == 1:
            return call

        def guarded(*arguments: Any) -> None:
            with refuse_collectives(self, known.name):
                call(*arguments)

        return guarded

    def _stop_clock(self) -> None:
        self._earlier_time = self.elapsed_time
        self._started_at = None

    def _fail(self) -> None:
        """From here on the ranks go separate ways: nobody waits for the others any more (RK-7)."""
        self._status = "failed"
        if self.group.size > 1 and not isinstance(self.group, RefusingGroup):
            self.group = RefusingGroup(
                self.group,
                "The run has failed, so the ranks no longer meet",
                "Do without collectives in on_error, and in finalize when trainer.status is 'failed'.",
            )

    def _tell(self, initialized: list[Registration], failure: BaseException) -> None:
        for known in initialized:
            on_error = known.hook("on_error")
            if on_error is not None:
                try:
                    self._in_its_place(known, on_error)(self, failure, failure.__traceback__)
                except BaseException as error:  # the others have to be told too
                    self._attach(failure, error, f"on_error of extension {known.name!r}")

    def _finalize(self, initialized: list[Registration], failure: BaseException | None) -> BaseException | None:
        """Finalize everything; returns the exception that leaves the run."""
        calls: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
            (f"finalize of extension {known.name!r}", self._in_its_place(known, finalize), (self,))
            for known in sorted(initialized, key=lambda known: known.finalizes_last)
            if (finalize := known.hook("finalize")) is not None
        ]
        finalize = callable_attribute(self.updater, "finalize")
        if finalize is not None:
            calls.append(("finalize of the updater", finalize, ()))
        for what, finalize, arguments in calls:
            try:
                finalize(*arguments)
            except BaseException as error:  # whatever it is, the others must still be closed
                if failure is not None:
                    self._attach(failure, error, what)
                    continue
                failure = self._noted(error, what)
                if self.group.size > 1 or isinstance(failure, NonFiniteError):
                    # The other ranks are not where this one is; or what the run has come to is worth nothing.
                    self._fail()
        if failure is not None:
            self._fail()  # only now: the loop has ended well, and the last state is worth saving
        return failure

    def _guarded(self, where: str, hook: Callable[..., Any], *arguments: Any) -> None:
        try:
            hook(*arguments)
        except BaseException as error:
            explained = self._noted(error, where)
            if explained is not error:
                raise explained from None
            raise

    def _noted(self, error: BaseException, where: str) -> BaseException:
        """What leaves the run, with a note on where it happened: the error, or the failure that it is the echo of."""
        explained = self.group.explain(error)
        place = f"at iteration {self.updater.state.iteration}, {where}"
        add_note(explained, place)
        _log.error("%s: %s (%s)", type(explained).__name__, explained, place)
        return explained

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
