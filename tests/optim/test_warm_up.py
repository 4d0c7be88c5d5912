from __future__ import annotations

import pytest

from ostinato.optim import warm_up_factor


@pytest.mark.parametrize(("iteration", "factor"), [(0, 0.1), (1, 0.2), (8, 0.9), (9, 1.0), (10, 1.0), (10_000, 1.0)])
def test_update_k_runs_with_k_over_steps_of_the_rate(iteration: int, factor: float) -> None:
    assert warm_up_factor(iteration, 10) == pytest.approx(factor)


def test_without_steps_there_is_no_warm_up() -> None:
    assert warm_up_factor(0, 0) == 1.0
