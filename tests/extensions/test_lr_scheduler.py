from __future__ import annotations

import pytest
import torch
from loop_stand_ins import CountingUpdater, ListOfSnapshots

from ostinato.extensions.lr_scheduler import LRScheduler
from ostinato.loop import Trainer, report


class Stepping(CountingUpdater):
    """Steps its optimizer, but for the first ``skipped`` updates, and notes the rates."""

    def __init__(self, skipped: int = 0) -> None:
        super().__init__(2)
        self.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        self.skipped = skipped
        self.rates: list[float] = []

    def update(self) -> None:
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        if self.state.iteration >= self.skipped:
            self.optimizer.step()
        report("loss", 1.0)
        super().update()

    def state_dict(self):
        return {**super().state_dict(), "rate": self.optimizer.param_groups[0]["lr"]}

    def load_state_dict(self, state) -> None:
        super().load_state_dict(state)
        self.optimizer.param_groups[0]["lr"] = state["rate"]


def halving(updater):
    return torch.optim.lr_scheduler.ExponentialLR(updater.optimizer, 0.5)


def run(updater, extension, until, kept=None):
    trainer = Trainer(updater, (until, "iteration"), extensions=[extension])
    if kept is not None:
        trainer.extend(ListOfSnapshots(kept), trigger=(1, "iteration"))
    trainer.run()
    return updater.rates


@pytest.mark.parametrize(
    ("unit", "expected"), [("iteration", [1, 0.5, 0.25, 0.125, 0.0625]), ("epoch", [1, 1, 0.5, 0.5, 0.25])]
)
@pytest.mark.parametrize("killed_after", [None, 1, 2, 3])
def test_it_is_stepped_after_the_update_that_completes_its_unit(unit, expected, killed_after) -> None:
    kept: list = []
    rates = []
    for until in [5] if killed_after is None else [killed_after, 5]:
        updater = Stepping()
        rates += run(updater, LRScheduler(halving(updater), unit), until, kept)
    assert rates == expected


@pytest.mark.filterwarnings("error")  # torch warns when a schedule is stepped before its optimizer
def test_it_can_wait_for_the_first_step_of_the_optimizer() -> None:
    updater = Stepping(skipped=2)
    assert run(updater, LRScheduler(halving(updater), "iteration", wait_for_first_step=True), 5) == [1, 1, 1, 0.5, 0.25]
    assert not updater.optimizer._optimizer_step_post_hooks


def test_a_resumed_run_does_not_wait_again() -> None:
    kept: list = []
    updater = Stepping()
    run(updater, LRScheduler(halving(updater), "iteration", wait_for_first_step=True), 2, kept)
    updater = Stepping(skipped=3)
    rates = run(updater, LRScheduler(halving(updater), "iteration", wait_for_first_step=True), 4, kept)
    assert rates == [0.25, 0.125]


def test_a_schedule_may_follow_an_observed_value() -> None:
    updater = Stepping()
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(updater.optimizer, factor=0.5, patience=1)
    rates = run(updater, LRScheduler(schedule, "iteration", monitor="loss"), 6)
    assert rates == [1, 1, 1, 0.5, 0.5, 0.25]  # the first value is the best; two that are no better halve the rate


def test_without_the_value_it_is_not_stepped() -> None:
    updater = Stepping()
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(updater.optimizer, factor=0.5, patience=0)
    assert run(updater, LRScheduler(schedule, "iteration", monitor="other"), 4) == [1, 1, 1, 1]


def test_bad_arguments_are_refused() -> None:
    schedule = halving(Stepping())
    with pytest.raises(ValueError, match=r"unit is 'batch'\. Use 'iteration' or 'epoch'"):
        LRScheduler(schedule, "batch")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        LRScheduler(schedule)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="is no schedule, it has no step"):
        LRScheduler(3, "epoch")
    with pytest.raises(ValueError, match="monitor is empty"):
        LRScheduler(schedule, "epoch", monitor="")


def test_a_saved_state_of_another_unit_is_refused() -> None:
    state = LRScheduler(halving(Stepping()), "epoch").state_dict()
    with pytest.raises(ValueError, match="counted in epochs, and this one counts iterations"):
        LRScheduler(halving(Stepping()), "iteration").load_state_dict(state)
    with pytest.raises(ValueError, match="format 7"):
        LRScheduler(halving(Stepping()), "epoch").load_state_dict({**state, "format": 7})


def test_a_schedule_without_an_optimizer_cannot_wait() -> None:
    class Schedule:
        def step(self) -> None: ...

        def state_dict(self) -> dict:
            return {}

        def load_state_dict(self, state) -> None: ...

    trainer = Trainer(Stepping(), (1, "iteration"))
    trainer.extend(LRScheduler(Schedule(), "iteration", wait_for_first_step=True))
    with pytest.raises(RuntimeError, match="Schedule has no torch optimizer"):
        trainer.run()
