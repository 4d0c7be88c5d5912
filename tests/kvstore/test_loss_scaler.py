from __future__ import annotations

import pytest
import torch

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore import LossScaler
from ostinato.kvstore.loss_scaler import all_finite
from ostinato.optim.row_sparse_gradient import RowSparse

INF, NAN = float("inf"), float("nan")


def test_the_scale_halves_at_once_and_doubles_after_the_window() -> None:
    scaler = LossScaler(16.0, maximum=32.0, minimum=4.0, window=2)
    scales = []
    for overflow in (True, True, True, False, False, False, False, False, False, False, True):
        scaler.update(overflow)
        scales.append(scaler.loss_scale)
    assert scales == [8, 4, 4, 4, 8, 8, 16, 16, 32, 32, 16]


def test_a_step_that_is_not_clean_starts_the_window_again() -> None:
    scaler = LossScaler(8.0, window=3)
    for overflow in (False, False, True, False, False):
        scaler.update(overflow)
    assert (scaler.loss_scale, scaler.clean_steps) == (4.0, 2)


def test_scale_and_counter_are_state_and_limits_are_options() -> None:
    scaler = LossScaler(8.0, window=3)
    scaler.update(False)
    other = LossScaler(2.0, maximum=4.0, window=3)
    other.load_state_dict(scaler.state_dict())
    assert (other.loss_scale, other.clean_steps) == (4.0, 1)


@pytest.mark.parametrize(
    "wrong",
    [{"loss_scale": 0.0}, {"minimum": 2.0**20}, {"maximum": 2.0}, {"maximum": INF}, {"window": 0}, {"factor": 1.0}],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ArgumentValueError, match="no sense"):
        LossScaler(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_every_kind_of_bad_number_is_found(bad: float, dtype: torch.dtype) -> None:
    good = torch.full((3, 2), 6e4, dtype=dtype)
    broken = good.clone()
    broken[1, 1] = bad
    assert all_finite([good, torch.ones(2, dtype=torch.int64)])
    assert not all_finite([good, broken])
    rows = RowSparse(torch.tensor([0, 2, 4]), broken, (5, 2))
    assert not all_finite([rows])
    assert not all_finite([rows.to_coo()])


@pytest.mark.parametrize("argument", ["loss_scale", "maximum", "minimum", "window", "factor"])
def test_settings_that_are_no_numbers_are_type_errors(argument: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"{argument} is a number"):
        LossScaler(**{argument: "a"})  # type: ignore[arg-type]


def test_nothing_is_finite() -> None:
    assert all_finite([])
