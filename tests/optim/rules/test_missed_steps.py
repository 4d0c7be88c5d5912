"""Products of missed steps against multiplying them out one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.errors import ArgumentValueError
from ostinato.optim.rules import missed_steps
from ostinato.optim.rules.missed_steps import MissedSteps


def matrices(count: int) -> list[np.ndarray]:
    generator = np.random.default_rng(count)
    shrink, momentum = generator.uniform(0, 0.1, count), generator.uniform(0.5, 1, count)
    return [np.array([[1 - s, m], [-s, m]]) for s, m in zip(shrink, momentum, strict=True)]


@settings(deadline=None)
@given(st.integers(0, 300), st.sampled_from([2, 3, 32]), st.data())
def test_any_stretch_is_the_product_of_its_steps(count: int, radix: int, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(missed_steps, "RADIX", radix)
        steps, listed = MissedSteps(), matrices(count)
        for matrix in listed:
            steps.append(matrix)
        if data.draw(st.booleans()):
            steps = MissedSteps.from_state_dict(steps.state_dict())
        assert len(steps) == count
        asked = data.draw(st.lists(st.integers(0, count), min_size=1, max_size=8))
        found = steps.products_since(np.array(asked, dtype=np.int64))
    for since, product in zip(asked, found, strict=True):
        expected = np.eye(2)
        for matrix in listed[since:]:
            expected = matrix @ expected
        np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-14)


def test_a_very_long_stretch_does_not_underflow() -> None:
    steps = MissedSteps()
    for _ in range(20_000):
        steps.append(np.array([[1 - 1e-5, 0.9], [-1e-5, 0.9]]))
    (product,) = steps.products_since(np.array([0]))
    # The slow eigenvalue is about 1 - 1e-5/(1 - 0.9): what is left of a weight.
    assert product[0, 0] == pytest.approx(np.exp(-20_000 * 1e-4), rel=0.01)


def test_forgotten_steps_leave_nothing() -> None:
    steps = MissedSteps()
    for matrix in matrices(40):
        steps.append(matrix)
    steps.clear()
    assert len(steps) == 0
    assert np.array_equal(steps.products_since(np.array([0])), np.eye(2)[None])


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ArgumentValueError, match="format 2"):
        MissedSteps.from_state_dict({**MissedSteps().state_dict(), "format": 2})
