from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loop_stand_ins import CountingUpdater, ListOfSnapshots

from ostinato.extensions.rate_shifts import (
    ExponentialShift,
    InverseShift,
    LinearShift,
    MultistepShift,
    PolynomialShift,
    StepShift,
    WarmupShift,
)
from ostinato.extensions.shift import Shift
from ostinato.loop import Trainer


def sgd(*rates):
    return torch.optim.SGD([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates])


def trainer_of(**optimizers):
    return SimpleNamespace(updater=SimpleNamespace(optimizers=optimizers))


def values(shift, calls, optimizer=None):
    optimizer = optimizer or sgd(0.1)
    trainer = trainer_of(main=optimizer)
    shift.initialize(trainer)
    found = [optimizer.param_groups[0]["lr"]]
    for _ in range(calls):
        shift(trainer)
        found.append(optimizer.param_groups[0]["lr"])
    return found


def make(name):
    return {
        "exponential": lambda: ExponentialShift("lr", 0.5),
        "inverse": lambda: InverseShift("lr", 1, 1, target=0.02),
        "linear": lambda: LinearShift("lr", (2.0, 4.0), (2, 6)),
        "multistep": lambda: MultistepShift("lr", 0.5, [4, 2, 4]),
        "polynomial": lambda: PolynomialShift("lr", 0.5, 6, target=0.01),
        "step": lambda: StepShift("lr", 0.5, 2),
        "warmup": lambda: WarmupShift("lr", 0.0, 4),
        "warmup from the found value": lambda: WarmupShift("lr", None, 4, 1.0),
    }[name]()


NAMES = [
    "exponential", "inverse", "linear", "multistep", "polynomial", "step", "warmup", "warmup from the found value",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("resume_after", [0, 3, 8])
def test_a_resumed_run_goes_on_from_the_start_value_that_was_saved(name, resume_after) -> None:
    expected = values(make(name), 9)
    optimizer = sgd(0.1)
    shift = make(name)
    found = values(shift, resume_after, optimizer)
    again = make(name)
    again.load_state_dict(json.loads(json.dumps(shift.state_dict())))
    # The optimizer has been restored too: its rate is the decayed one, and must not be taken for the start.
    resumed = sgd(0.1)
    resumed.load_state_dict(optimizer.state_dict())
    assert found + values(again, 9 - resume_after, resumed)[1:] == expected
    assert values(make(name), 0) == expected[:1]


@given(
    start=st.floats(-10, 10, allow_nan=False),
    target=st.floats(-10, 10, allow_nan=False),
    rate=st.floats(0, 3),
    power=st.floats(-2, 2),
)
def test_no_shift_passes_its_target_on_the_way_from_the_start(start, target, rate, power) -> None:
    for shift in (
        ExponentialShift("lr", rate, start, target),
        InverseShift("lr", rate, power, start, target),
        PolynomialShift("lr", power, 4, start, target),
        StepShift("lr", rate, 2, start, target),
    ):
        for value in values(shift, 8):
            assert math.isfinite(value)
            assert value <= target if start <= target else value >= target


def test_a_long_run_does_not_end_at_a_number_too_large() -> None:
    for shift, end in (
        (ExponentialShift("lr", 2, 0.1, 1.0), 1.0),
        (ExponentialShift("lr", 2, -0.1, -1.0), -1.0),
        (StepShift("lr", 3, 2, 0.1, 1.0), 1.0),
        (ExponentialShift("lr", 2, 0.0), 0.0),
    ):
        assert shift.value_at(1, 0.0) == 0
        trainer = trainer_of(main=sgd(0.1))
        shift.load_state_dict({"format": 1, "kind": "", "attr": "lr", "calls": 10**6, "init": None})
        shift.initialize(trainer)
        assert trainer.updater.optimizers["main"].param_groups[0]["lr"] == end


def test_a_polynomial_with_a_target_reaches_its_end() -> None:
    assert values(PolynomialShift("lr", 1, 4, 1.0, 0.3), 6) == [1.0, 0.75, 0.5, 0.3, 0.3, 0.3, 0.3]


def test_a_polynomial_that_grows_stays_finite() -> None:
    assert values(PolynomialShift("lr", -1, 4, 1.0), 6) == [1.0, 4 / 3, 2.0, 4.0, 4.0, 4.0, 4.0]


def test_a_call_reaches_one_milestone_at_most() -> None:
    assert values(MultistepShift("lr", 0.5, [2, 4, 4], 1.0), 6) == [1.0, 1.0, 0.5, 0.5, 0.25, 0.125, 0.125]
    assert values(MultistepShift("lr", 0.5, 0, 1.0), 2) == [1.0, 0.5, 0.5]


def test_every_group_starts_from_its_own_value_unless_one_is_given() -> None:
    optimizer = sgd(0.8, 0.4)
    values(ExponentialShift("lr", 0.5), 2, optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.2, 0.1]
    values(ExponentialShift("lr", 0.5, init=0.4), 2, optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1]


def test_any_setting_of_an_optimizer_and_any_attribute_can_be_moved() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.5)
    shift = LinearShift("momentum", (0.5, 0.9), (0, 2), optimizer)
    shift.initialize(SimpleNamespace())
    shift(SimpleNamespace())
    assert optimizer.param_groups[0]["momentum"] == 0.7
    thing = SimpleNamespace(strength=4)
    shift = ExponentialShift("strength", 0.5, optimizer=thing)
    shift.initialize(SimpleNamespace())
    shift(SimpleNamespace())
    assert thing.strength == 2.0


def test_a_rate_that_is_a_tensor_stays_the_same_tensor() -> None:
    rate = torch.tensor(0.5)
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    shift = ExponentialShift("lr", 0.5, optimizer=optimizer)
    shift.initialize(SimpleNamespace())
    shift(SimpleNamespace())
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate == 0.25


def test_one_of_several_optimizers_is_named() -> None:
    generator, discriminator = sgd(1.0), sgd(1.0)
    trainer = trainer_of(generator=generator, discriminator=discriminator)
    shift = ExponentialShift("lr", 0.5, optimizer="discriminator")
    shift.initialize(trainer)
    shift(trainer)
    assert (generator.param_groups[0]["lr"], discriminator.param_groups[0]["lr"]) == (1.0, 0.5)
    with pytest.raises(ValueError, match="several optimizers: generator, discriminator"):
        ExponentialShift("lr", 0.5).initialize(trainer)
    with pytest.raises(ValueError, match=r"no optimizer is named 'critic'\. The updater has: generator"):
        ExponentialShift("lr", 0.5, optimizer="critic").initialize(trainer)
    with pytest.raises(RuntimeError, match="this updater has none"):
        ExponentialShift("lr", 0.5).initialize(SimpleNamespace(updater=SimpleNamespace()))


def test_in_a_run_the_first_update_has_the_first_value() -> None:
    optimizer = sgd(0.1)
    seen = []

    class Updater(CountingUpdater):
        optimizers = {"main": optimizer}  # noqa: RUF012

        def update(self) -> None:
            seen.append(optimizer.param_groups[0]["lr"])
            super().update()

    kept: list = []
    for until in (2, 5):
        trainer = Trainer(Updater(), (until, "iteration"), extensions=[WarmupShift("lr", 0.0, 4, 1.0)])
        trainer.extend(ListOfSnapshots(kept), trigger=(1, "iteration"))
        trainer.run()
    assert seen == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_a_changed_setting_acts_at_once_after_a_resume() -> None:
    shift = ExponentialShift("lr", 0.5)
    values(shift, 2)
    again = ExponentialShift("lr", 0.1)
    again.load_state_dict(shift.state_dict())
    assert values(again, 0) == pytest.approx([0.1 * 0.1**2])


@pytest.mark.parametrize(
    ("build", "kind", "match"),
    [
        (lambda: ExponentialShift("lr", -1), ValueError, "ExponentialShift: rate must be 0 or more, not -1"),
        (lambda: ExponentialShift("lr", "x"), TypeError, "rate must be a number, not 'x'"),
        (lambda: ExponentialShift("lr", 0.5, init=math.inf), ValueError, "init must be finite, not inf"),
        (lambda: ExponentialShift("lr", 0.5, target="low"), TypeError, "target must be a number"),
        (lambda: ExponentialShift("", 0.5), ValueError, "attr is empty"),
        (lambda: ExponentialShift(3, 0.5), TypeError, "attr must be a text"),
        (lambda: InverseShift("lr", -1, 1), ValueError, "gamma must be 0 or more, not -1"),
        (lambda: InverseShift("lr", 1, math.nan), ValueError, "power must be finite"),
        (lambda: LinearShift("lr", (1, 2), (6, 2)), ValueError, "time_range is 6 to 2, which goes back"),
        (lambda: LinearShift("lr", (1, 2), (-1, 2)), ValueError, "time_range must be 0 or more, not -1"),
        (lambda: LinearShift("lr", (1, 2), (0, 2.5)), TypeError, "time_range must be a whole number"),
        (lambda: LinearShift("lr", 1, (0, 2)), TypeError, "value_range must be two numbers, not 1"),
        (lambda: MultistepShift("lr", 0.5, []), ValueError, "step_value is empty"),
        (lambda: MultistepShift("lr", 0.5, [1, -2]), ValueError, "step_value must be 0 or more, not -2"),
        (lambda: MultistepShift("lr", 0.5, "12"), TypeError, "step_value must be a whole number, not '12'"),
        (lambda: PolynomialShift("lr", 1, 0), ValueError, "max_count must be 1 or more, not 0"),
        (lambda: StepShift("lr", 0.5, True), TypeError, "step must be a whole number, not True"),
        (lambda: WarmupShift("lr", 0.0, 0), ValueError, "warmup_iter must be 1 or more, not 0"),
        (lambda: WarmupShift("lr", "cold", 3), TypeError, "warmup_start must be a number"),
    ],
)
def test_bad_arguments_are_refused(build, kind, match) -> None:
    with pytest.raises(kind, match=match):
        build()


def test_what_is_not_there_or_no_number_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match=r"SGD has no 'betas'\. Its settings are: lr, momentum"):
        ExponentialShift("betas", 0.5).initialize(trainer_of(main=sgd(1.0)))
    with pytest.raises(TypeError, match="'nesterov' is False, which is no number"):
        ExponentialShift("nesterov", 0.5).initialize(trainer_of(main=sgd(1.0)))
    with pytest.raises(ValueError, match="SimpleNamespace has no 'x'"):
        ExponentialShift("x", 0.5, optimizer=SimpleNamespace()).initialize(SimpleNamespace())


def test_a_saved_state_that_does_not_fit_is_refused() -> None:
    state = {"format": 1, "kind": "StepShift", "attr": "lr", "calls": 3, "init": [0.1]}
    with pytest.raises(ValueError, match="format 2"):
        StepShift("lr", 0.5, 1).load_state_dict({**state, "format": 2})
    with pytest.raises(ValueError, match="about 'lr'; this one sets 'momentum'"):
        StepShift("momentum", 0.5, 1).load_state_dict(state)


def test_a_shift_of_ones_own_says_where_the_value_is() -> None:
    class Nothing(Shift):
        pass

    with pytest.raises(NotImplementedError, match="override value_at"):
        Nothing("lr").initialize(trainer_of(main=sgd(1.0)))
