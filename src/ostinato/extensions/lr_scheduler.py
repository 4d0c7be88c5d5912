"""Steps a learning-rate schedule of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch.utils.hooks import RemovableHandle

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.extensions.observed_entries import check_key, value_of
from ostinato.extensions.saved_format import check_format
from ostinato.loop import Extension, TrainerView, is_scalar, read_scalars

STATE_FORMAT = 1


class LRScheduler(Extension):
    """Steps a schedule of ``torch.optim.lr_scheduler`` after the updates that complete its unit; saved with the run.

    For updaters that do not step their schedules themselves; ``StandardUpdater`` can, see its ``schedulers``. A
    schedule belongs to one of the two and not to both.

    :param scheduler: the schedule.
    :param unit: what it counts: ``iteration`` or ``epoch``. Must be given, for a wrong one goes unnoticed.
    :param wait_for_first_step: leave the schedule where it is until its optimizer has made its first step: a loss
        scaler may skip the first ones.
    :param monitor: the observed value that is handed to ``scheduler.step``, for ``ReduceLROnPlateau``. In an iteration
        in which it is not reported the schedule is not stepped.
    :raises ArgumentTypeError: when the schedule cannot be stepped, or an argument has the wrong type.
    :raises ArgumentValueError: for another unit or an empty key.
    """

    name = "lr_scheduler"

    def __init__(
        self,
        scheduler: Any,
        unit: Literal["iteration", "epoch"],
        *,
        wait_for_first_step: bool = False,
        monitor: str | None = None,
    ) -> None:
        missing = [name for name in ("step", "state_dict", "load_state_dict") if not hasattr(scheduler, name)]
        if missing:
            raise ArgumentTypeError(
                f"LRScheduler: {scheduler!r} is no schedule, it has no {', '.join(missing)}.",
                advice="Give one of torch.optim.lr_scheduler.",
                value=scheduler,
            )
        if unit not in ("iteration", "epoch"):
            raise ArgumentValueError(
                f"LRScheduler: unit is {unit!r}.", advice="Use 'iteration' or 'epoch'.", name="unit", value=unit
            )
        self.scheduler = scheduler
        self.unit = unit
        self.trigger = (1, unit)
        self._monitor = None if monitor is None else check_key(monitor, "LRScheduler", "monitor")
        self._waits = wait_for_first_step
        self._hook: RemovableHandle | None = None

    def initialize(self, trainer: TrainerView) -> None:
        """Begin to wait for the first step of the optimizer, if told so.

        :raises StateError: when the schedule does not say which optimizer it is for.
        """
        if not self._waits:
            return
        register = getattr(getattr(self.scheduler, "optimizer", None), "register_step_post_hook", None)
        if register is None:
            raise StateError(
                f"LRScheduler cannot wait for the first step: {type(self.scheduler).__name__} has no torch optimizer.",
                advice="Leave wait_for_first_step out.",
            )
        self._hook = register(self._note_step)

    def _note_step(self, *_: Any) -> None:
        self._waits = False
        self._let_go()

    def _let_go(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def __call__(self, trainer: TrainerView) -> None:
        """Step the schedule."""
        if self._waits:
            return
        if self._monitor is None:
            self.scheduler.step()
            return
        value = value_of(trainer.observation.get(self._monitor))
        if value is not None and is_scalar(value):
            self.scheduler.step(read_scalars([value])[0])  # the processor waits for the device here

    def finalize(self, trainer: TrainerView) -> None:
        """Let go of the optimizer."""
        self._let_go()

    def state_dict(self) -> dict[str, Any]:
        """The state of the schedule, and whether it still waits."""
        return {
            "format": STATE_FORMAT,
            "unit": self.unit,
            "scheduler": self.scheduler.state_dict(),
            "waits": self._waits,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        :raises ArgumentValueError: when it has another format or was counted in another unit.
        """
        check_format(state, STATE_FORMAT, "LRScheduler")
        if state["unit"] != self.unit:
            raise ArgumentValueError(
                f"The saved schedule was counted in {state['unit']}s, and this one counts {self.unit}s.",
                advice="Keep the unit, or register the new schedule under another name, so that it starts fresh.",
                unit=state["unit"],
            )
        self.scheduler.load_state_dict(state["scheduler"])
        self._waits = self._waits and bool(state["waits"])
