"""Which saved states a loader goes on from."""

from __future__ import annotations

import pytest

from ostinato.data.loader_state import STATE_FORMAT, check_loader_state
from ostinato.errors import StateError


def test_a_state_of_the_same_run_is_accepted() -> None:
    check_loader_state({"format": STATE_FORMAT, "seed": 7, "position": 3}, seed=7)


def test_another_format_and_another_seed_are_refused_with_both_values() -> None:
    with pytest.raises(StateError, match=r"has format 99; this version reads format 1"):
        check_loader_state({"format": 99, "seed": 7}, seed=7)
    with pytest.raises(StateError, match=r"belongs to seed 7, and this loader has seed 8"):
        check_loader_state({"format": STATE_FORMAT, "seed": 7}, seed=8)
