from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from loop_stand_ins import CountingUpdater

from ostinato.extensions.observe_lr import observe_lr
from ostinato.extensions.rate_shifts import ExponentialShift
from ostinato.loop import StandardUpdater, Trainer, scope


def training(schedule_unit="iteration"):
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    return StandardUpdater(
        model,
        optimizer,
        [torch.ones(1, 1)] * 2,
        loss_function=lambda output, batch: output.sum(),
        schedulers={"main": (schedule, schedule_unit)},
    )


def observed(trainer, keys=("lr",)):
    seen = []
    trainer.extend(lambda t: seen.append([t.observation[key] for key in keys]), name="reader", priority=50)
    trainer.run()
    return seen


def test_it_reports_the_rate_that_the_update_was_made_with() -> None:
    trainer = Trainer(training(), (3, "iteration"))
    trainer.extend(observe_lr(), trigger=(1, "iteration"))
    assert observed(trainer) == [[1.0], [0.5], [0.25]]


def test_also_with_a_schedule_of_epochs_and_with_a_shift() -> None:
    trainer = Trainer(training("epoch"), (4, "iteration"))
    trainer.extend(observe_lr(), trigger=(1, "iteration"))
    assert observed(trainer) == [[1.0], [1.0], [0.5], [0.5]]
    updater = training("epoch")
    updater.schedulers.clear()
    trainer = Trainer(updater, (3, "iteration"))
    trainer.extend(observe_lr(), trigger=(1, "iteration"))
    trainer.extend(ExponentialShift("lr", 0.1), priority=400)
    assert observed(trainer) == [[1.0], [0.1], [pytest.approx(0.01)]]


def optimizers(**rates):
    made = {}
    for name, group_rates in rates.items():
        groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in group_rates]
        made[name] = torch.optim.SGD(groups)
    return made


def report_of(optimizers, extension):
    class Updater(CountingUpdater):
        def update(self) -> None:
            for optimizer in optimizers.values():
                optimizer.step()
            super().update()

    updater = Updater()
    updater.optimizers = optimizers
    trainer = Trainer(updater, (1, "iteration"))
    trainer.extend(extension, trigger=(1, "iteration"))
    trainer.run()
    return trainer.observation


def test_groups_and_optimizers_are_told_apart_by_their_keys() -> None:
    assert report_of(optimizers(main=[1.0]), observe_lr()) == {"lr": 1.0}
    assert report_of(optimizers(main=[1.0, 2.0]), observe_lr()) == {"lr/0": 1.0, "lr/1": 2.0}
    both = optimizers(generator=[1.0], critic=[2.0, 3.0])
    assert report_of(both, observe_lr()) == {"lr/generator": 1.0, "lr/critic/0": 2.0, "lr/critic/1": 3.0}
    assert report_of(both, observe_lr("generator", "rate")) == {"rate": 1.0}
    assert report_of(both, observe_lr(both["critic"])) == {"lr/0": 2.0, "lr/1": 3.0}


def test_a_rate_in_a_tensor_is_the_one_of_then() -> None:
    rate = torch.tensor(0.5)
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=rate)

    class Updater(CountingUpdater):
        optimizers = {"main": optimizer}  # noqa: RUF012

        def update(self) -> None:
            optimizer.step()
            rate.fill_(0.25)  # what a schedule does
            super().update()

    trainer = Trainer(Updater(), (1, "iteration"))
    trainer.extend(observe_lr(), trigger=(1, "iteration"))
    trainer.run()
    assert trainer.observation["lr"] == 0.5


def test_an_optimizer_that_rests_is_reported_with_the_rate_it_has() -> None:
    class Resting(CountingUpdater):
        pass

    updater = Resting()
    updater.optimizers = optimizers(main=[0.3])
    trainer = Trainer(updater, (1, "iteration"))
    trainer.extend(observe_lr(), trigger=(1, "iteration"))
    trainer.run()
    assert trainer.observation == {"lr": 0.3}


@pytest.mark.parametrize("given", [True, False])
def test_what_only_looks_like_an_optimizer_is_read_too(given) -> None:
    lookalike: Any = SimpleNamespace(param_groups=[{"lr": 0.5}])
    extension = observe_lr(lookalike if given else None)
    trainer: Any = SimpleNamespace(updater=SimpleNamespace(optimizers={"main": lookalike}), observation={})
    extension.initialize(trainer)
    with scope(trainer.observation):
        extension(trainer)
    extension.finalize(trainer)
    assert trainer.observation == {"lr": 0.5}


def test_nothing_is_left_at_the_optimizer_after_the_run() -> None:
    updater = training()
    trainer = Trainer(updater, (1, "iteration"), extensions=[observe_lr()])
    trainer.run()
    assert not updater.optimizers["main"]._optimizer_step_pre_hooks


@pytest.mark.parametrize(("arguments", "kind"), [((3,), TypeError), ((None, ""), ValueError), ((None, 3), TypeError)])
def test_bad_arguments_are_refused(arguments, kind) -> None:
    with pytest.raises(kind):
        observe_lr(*arguments)


def test_an_optimizer_that_is_not_there_is_named() -> None:
    trainer = Trainer(training(), (1, "iteration"), extensions=[observe_lr("critic")])
    with pytest.raises(ValueError, match=r"no optimizer is named 'critic'\. The updater has: main"):
        trainer.run()
    trainer = Trainer(CountingUpdater(), (1, "iteration"), extensions=[observe_lr()])
    with pytest.raises(RuntimeError, match="this updater has none"):
        trainer.run()
