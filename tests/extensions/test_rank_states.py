"""With what ranks go on when their number has changed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.extensions.rank_states import rank_state_for
from ostinato.loop.random_state import capture_random_state, restore_random_state
from ostinato.runs import LoadedGeneration, RankStates
from ostinato.runs.manifest import Manifest


def _random(seed: int) -> dict[str, Any]:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return capture_random_state()


def _own(rank: int) -> dict[str, Any]:
    return {
        "random": {"now": {**_random(rank), "loader": [torch.tensor([9])]}, "pass_start": _random(50 + rank)},
        "loader": {"position": rank},
    }


def _loaded(saved_by: int, iteration: int = 7) -> LoadedGeneration:
    manifest = Manifest(f"{iteration:08d}", iteration, ("latest",), world_size=saved_by)
    updater = {"state": {}, **(_own(0) if saved_by == 1 else {})}
    states = RankStates(saved_by, _own) if saved_by > 1 else RankStates(1, lambda _rank: None)
    return LoadedGeneration(manifest, {}, None, {"trainer": {"updater": updater}}, {}, (), states)


@pytest.fixture(autouse=True)
def _same_generators_afterwards():
    before = capture_random_state()
    yield
    restore_random_state(before)


def test_one_rank_goes_on_as_before() -> None:
    assert rank_state_for(_loaded(1), 0, 1) is None


@pytest.mark.parametrize("rank", [0, 1])
def test_as_many_ranks_go_on_with_what_each_has_saved(rank: int) -> None:
    state = rank_state_for(_loaded(2), rank, 2)
    assert state is not None
    assert state["loader"] == {"position": rank}
    assert state["random"]["now"]["torch"].equal(_random(rank)["torch"])
    assert state["random"]["pass_start"] is not None


@given(saved_by=st.integers(1, 4), size=st.integers(1, 6), iteration=st.integers(0, 5))
def test_whatever_their_numbers(saved_by: int, size: int, iteration: int) -> None:
    if saved_by == size:
        return
    loaded = _loaded(saved_by, iteration)
    states = [rank_state_for(loaded, rank, size) for rank in range(size)]
    for rank, state in enumerate(states):
        assert state is not None
        # A place in a share of the data that no longer exists, and an order drawn for it, are left out.
        assert state["loader"] is None
        assert state["random"]["pass_start"] is None
        assert state["random"]["now"]["loader"][0].equal(torch.tensor([9]))
        if rank < saved_by:
            assert state["random"]["now"]["torch"].equal(_random(rank)["torch"])
        restore_random_state(state["random"]["now"])  # it is a state like any other
    draws = []
    for state in states:
        assert state is not None
        restore_random_state(state["random"]["now"])
        draws.append((random.random(), float(np.random.rand()), float(torch.rand(()))))
    for generator in range(3):
        assert len({draw[generator] for draw in draws}) == size
    again = rank_state_for(loaded, size - 1, size)
    assert again is not None
    assert again["random"]["now"]["torch"].equal(states[-1]["random"]["now"]["torch"])  # type: ignore[index]


def test_making_generators_draws_from_none() -> None:
    loaded = _loaded(1)
    torch.manual_seed(3)
    before = capture_random_state()
    own = LoadedGeneration(loaded.manifest, {}, None, loaded.state, {}, ())
    rank_state_for(own, 3, 4)
    after = capture_random_state()
    assert before["torch"].equal(after["torch"])
    assert np.array_equal(before["python"]["key"], after["python"]["key"])
    assert np.array_equal(before["numpy"]["key"], after["numpy"]["key"])


def test_a_state_without_generators_is_left_alone() -> None:
    manifest = Manifest("00000007", 7, ("latest",), world_size=1)
    loaded = LoadedGeneration(manifest, {}, None, {"trainer": {"updater": {"state": {}}}}, {}, ())
    assert rank_state_for(loaded, 1, 2) is None


def test_the_change_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    for rank in range(3):
        rank_state_for(_loaded(2), rank, 3)
    assert caplog.text.count("saved by 2 ranks, and 3 go on with it") == 1
