"""From which state a recovery goes on, and what a journal must tell for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato.config import RecoveryOptions
from ostinato.errors import NonFiniteError, NonFiniteLossError
from ostinato.runs import GenerationContent, RunFolder
from ostinato.swap.base_rate import BaseRate
from ostinato.swap.recovery import Failure, note_failure, pending_failure, plan_recovery, saved_rate

FAILURE = Failure(8, "loss/b is nan")
OPTIONS = RecoveryOptions()


def error(**losses: float) -> NonFiniteLossError:
    values = {name.replace("__", "/"): value for name, value in losses.items()}
    return NonFiniteLossError("It is none.", kind="loss", names=list(values), losses=values, iteration=8)


def commit(run: RunFolder, iteration: int, rate: BaseRate | None = None, **parts: Any) -> None:
    updater: dict[str, Any] = {"gradients": parts.get("gradients", {})}
    if rate is not None:
        updater["learning_rate"] = rate.state_dict()
    model = {"w": parts.get("weights", torch.ones(2))}
    optimizer = {"main": parts.get("moments", torch.ones(2))}
    content = GenerationContent(
        iteration, model, optimizer, {"trainer": {"updater": updater}}, reasons=parts.get("reasons", ("latest",))
    )
    run.commit(run.pack(content))


@pytest.fixture
def run(tmp_path: Path) -> Any:
    with RunFolder(tmp_path / "run") as folder:
        folder.begin_session(start_iteration=0)
        yield folder


def plan(run: RunFolder, options: RecoveryOptions = OPTIONS) -> Any:
    return plan_recovery(run, run.load_newest(), FAILURE, options, 5e-5)


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_failure_counts_until_the_next_state_is_committed(run: RunFolder) -> None:
    assert pending_failure(run) is None
    commit(run, 3)
    note_failure(run, error(loss__total=float("nan"), loss__b=float("nan"), gradient__norm=float("nan")))
    assert pending_failure(run) == FAILURE
    commit(run, 8, reasons=("error",))  # the state in which it failed is no way on
    assert pending_failure(run) == FAILURE
    commit(run, 6)
    assert pending_failure(run) is None


def test_what_is_not_finite_is_kept_short(run: RunFolder) -> None:
    note_failure(run, error(**{f"loss__b__{number}": float("inf") for number in range(9)}))
    failure = pending_failure(run)
    assert failure is not None
    assert failure.what.endswith("loss/b/5 is inf and 3 more")
    note_failure(run, NonFiniteError("x", kind="grad", names=["gradient/norm"], iteration=9))
    assert pending_failure(run) == Failure(9, "gradient/norm")


# --- the state to go on from ------------------------------------------------------------------------------------------


def test_it_is_the_newest_one_with_a_lower_rate(run: RunFolder) -> None:
    commit(run, 3)
    commit(run, 6, BaseRate(5e-5).with_found(1e-3))
    found = plan(run, RecoveryOptions(nan_recovery_factor=0.1))
    assert (found.loaded.iteration, found.set_aside, found.passed_over) == (6, (), ())
    assert found.rate.value == pytest.approx(1e-4)
    assert found.rate.recoveries[-1].went_back_to == 6


def test_where_nothing_was_saved_it_begins_anew(run: RunFolder) -> None:
    found = plan(run)
    assert (found.loaded, found.set_aside) == (None, ())
    assert found.rate.value == 2.5e-5


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"moments": torch.tensor([1.0, float("nan")])}, "its optimizer state"),
        ({"gradients": {"w": torch.tensor([float("inf")])}}, "its collected gradients"),
    ],
)
def test_a_state_with_numbers_that_are_not_finite_is_passed_over(run: RunFolder, part: Any, words: str) -> None:
    commit(run, 3)
    commit(run, 6, **part)
    found = plan(run)
    assert found.loaded.iteration == 3
    assert found.set_aside == ("00000006",)
    assert words in found.passed_over[0]


def test_a_damaged_state_is_passed_over(run: RunFolder) -> None:
    commit(run, 3)
    commit(run, 6)
    newest = run.load_newest()
    path = run.path / "generations" / "00000006" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    found = plan_recovery(run, None, FAILURE, OPTIONS, 5e-5)
    assert found.loaded.iteration == 3
    assert found.passed_over == ("00000006: it is damaged",)
    # One that is in memory already is as good as it was when it was read.
    assert plan_recovery(run, newest, FAILURE, OPTIONS, 5e-5).loaded is newest


def test_when_no_state_is_good_it_refuses_and_never_begins_anew(run: RunFolder) -> None:
    for iteration in (3, 6):
        commit(run, iteration, moments=torch.full((2,), float("nan")))
    with pytest.raises(NonFiniteError, match="There is no good state to go back to") as caught:
        plan(run)
    assert "00000003: not all numbers of its optimizer state are finite" in caught.value.what


def test_one_that_failed_after_a_recovery_already_is_suspected(run: RunFolder) -> None:
    commit(run, 3)
    commit(run, 6, BaseRate(5e-5).lowered(0.5, 8, 6, "loss/b is nan"))
    found = plan(run)
    assert (found.loaded.iteration, found.set_aside) == (3, ("00000006",))
    assert "the last recovery went back to it" in found.passed_over[0]
    assert found.rate.value == 1.25e-5


def test_progress_since_the_last_recovery_takes_the_suspicion_away(run: RunFolder) -> None:
    rate = BaseRate(5e-5).lowered(0.5, 8, 6, "loss/b is nan")
    commit(run, 6, rate)
    commit(run, 9, rate)
    assert plan(run).loaded.iteration == 9


def test_a_suspected_state_is_used_when_it_is_the_only_one(run: RunFolder) -> None:
    commit(run, 6, BaseRate(5e-5).lowered(0.5, 8, 6, "loss/b is nan"))
    found = plan(run)
    assert (found.loaded.iteration, found.set_aside, found.passed_over) == (6, (), ())
    assert found.rate.value == 1.25e-5


def test_after_so_many_times_it_refuses(run: RunFolder) -> None:
    rate = BaseRate(5e-5)
    for _ in range(3):
        rate = rate.lowered(0.5, 8, 6, "loss/b is nan")
    commit(run, 6, rate)
    with pytest.raises(NonFiniteError, match="recovered 3 times") as caught:
        plan(run)
    assert caught.value.fields["recoveries"] == list(rate.recoveries)
    assert len(plan(run, RecoveryOptions(nan_recovery_limit=4)).rate.recoveries) == 4


@pytest.mark.parametrize(("factor", "is_said"), [(0.1, True), (0.5, False)])
def test_only_a_rate_that_is_much_lower_than_at_first_is_said_to_be_no_cause(
    run: RunFolder, factor: float, is_said: bool
) -> None:
    commit(run, 6, BaseRate(5e-5).lowered(factor, 8, 6, "loss/b is nan"))
    with pytest.raises(NonFiniteError, match="recovered 1 time,") as caught:
        plan(run, RecoveryOptions(nan_recovery_limit=1))
    assert ("so it is hardly the cause" in caught.value.what) == is_said


def test_a_state_of_before_rates_were_saved_has_the_configured_one(run: RunFolder) -> None:
    commit(run, 3)
    assert saved_rate(run.load_newest(), 3e-5) == BaseRate(3e-5)
    assert saved_rate(None, 3e-5) == BaseRate(3e-5)
