"""Learning rates against those of the established programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ostinato.recognition.rate_schedule import RateSchedule

TOLERANCE = 1e-12


def test_the_compatible_polynomial_schedule_gives_the_rates_of_the_upstream_scheduler(golden: Path) -> None:
    cases = json.loads((golden / "recognition/lr_schedules/schedules.json").read_text())["polynomial_warmup"]
    assert len(cases) == 6
    for case in cases:
        for group, base in enumerate(case["base_lr"]):
            schedule = RateSchedule(base, case["total"], warm_up=case["warmup"], power=case["power"], starts_full=True)
            expected = [rates[group] for rates in case["lr_after_n_scheduler_steps"]]
            # Optimizer step j uses what the scheduler holds after j - 1 steps of its own.
            found = [schedule(update) for update in range(1, len(expected) + 1)]
            assert found == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE), case["name"]


def test_a_warm_up_that_starts_low_differs_in_the_warm_up_alone(golden: Path) -> None:
    cases = json.loads((golden / "recognition/lr_schedules/schedules.json").read_text())["polynomial_warmup"]
    for case in cases:
        for group, base in enumerate(case["base_lr"]):
            schedule = RateSchedule(base, case["total"], warm_up=case["warmup"], power=case["power"])
            warm_up = max(0, case["warmup"])
            rates = [entry[group] for entry in case["lr_after_n_scheduler_steps"]]
            for update in range(1, len(rates) + 1):
                # The scheduler's entry W is the top of the warm-up; update W + 1 uses it in both.
                expected = rates[update] if update <= warm_up else rates[update - 1]
                assert schedule(update) == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE), (case["name"], update)


def test_step_decay_falls_after_each_listed_update(golden: Path) -> None:
    cases = json.loads((golden / "recognition/lr_schedules/schedules.json").read_text())["step_decay"]
    assert len(cases) == 4
    for name, case in cases.items():
        schedule = RateSchedule(
            case["base_lr"],
            case["max_update"],
            "multistep",
            milestones=tuple(case["steps"]),
            factor=case["factor"],
        )
        for update, rate in case["points"]:
            assert schedule(update) == pytest.approx(rate, rel=TOLERANCE), (name, update)
