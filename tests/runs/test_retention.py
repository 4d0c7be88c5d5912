from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.runs import GenerationName, Manifest, RetentionPolicy, to_delete, why_kept


def _generation(iteration: int, *reasons: str, loss: float | None = None, version: int = 1, definition: str = ""):
    name = GenerationName(iteration, version, "error" in reasons)
    return Manifest(str(name), iteration, reasons or ("latest",), average_loss=loss, loss_definition=definition)


def _kept(generations: list[Manifest], policy: RetentionPolicy) -> list[int]:
    gone = set(to_delete(generations, policy))
    return sorted(g.iteration for g in generations if g.generation not in gone)


def test_the_newest_two_stay() -> None:
    assert _kept([_generation(i) for i in (5, 1, 4, 2, 3)], RetentionPolicy()) == [4, 5]


@pytest.mark.parametrize(("latest", "left"), [(-1, list(range(2, 21, 2))), (2, [18, 20]), (5, [12, 14, 16, 18, 20])])
def test_at_most_so_many_saves_stay(latest: int, left: list[int]) -> None:
    assert _kept([_generation(i) for i in range(2, 21, 2)], RetentionPolicy(latest=latest)) == left


def test_snapshots_are_counted_apart() -> None:
    generations = [_generation(i, "latest", *(["snapshot"] if i % 4 == 0 else [])) for i in range(1, 15)]
    assert _kept(generations, RetentionPolicy(snapshots=2)) == [8, 12, 13, 14]
    assert _kept(generations, RetentionPolicy()) == [4, 8, 12, 13, 14]


def test_the_best_of_the_current_loss_definition_stays() -> None:
    generations = [
        _generation(1, "best", loss=0.1, definition="old"),
        _generation(2, "best", loss=0.9, definition="new"),
        _generation(3, "best", loss=0.8, definition="new"),
        *[_generation(i, definition="new") for i in (4, 5, 6)],
    ]
    assert _kept(generations, RetentionPolicy()) == [3, 5, 6]
    assert _kept(generations, RetentionPolicy(best=0)) == [5, 6]


def test_the_best_of_the_old_definition_stays_until_there_is_a_new_one() -> None:
    generations = [_generation(1, "best", loss=0.1, definition="old"), *[_generation(i) for i in (2, 3, 4)]]
    assert _kept(generations, RetentionPolicy()) == [1, 3, 4]


def test_the_end_of_a_session_and_an_error_stay() -> None:
    generations = [
        _generation(1, "session_end"),
        _generation(2, "signal"),
        _generation(3, "error"),
        _generation(4, "error"),
        *[_generation(i) for i in (5, 6, 7)],
    ]
    assert _kept(generations, RetentionPolicy()) == [2, 4, 6, 7]


def test_an_error_state_is_not_one_of_the_latest() -> None:
    assert _kept([_generation(1), _generation(2), _generation(3, "error")], RetentionPolicy()) == [1, 2, 3]


def test_a_second_generation_of_an_iteration_takes_the_place_of_the_first() -> None:
    generations = [
        _generation(1),
        _generation(2, "latest", "snapshot"),
        _generation(2, "latest", "snapshot", version=2),
    ]
    assert to_delete(generations, RetentionPolicy()) == ["00000002"]


@pytest.mark.parametrize(
    "wrong", [{"latest": -2}, {"latest": 0}, {"snapshots": 0}, {"snapshots": -2}, {"best": -1}, {"errors": -1}]
)
def test_policies_that_keep_too_little_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ArgumentValueError):
        RetentionPolicy(**wrong)


@pytest.mark.parametrize("wrong", [True, 2.0, "2", None])
def test_numbers_must_be_whole(wrong: object) -> None:
    with pytest.raises(ArgumentTypeError):
        RetentionPolicy(latest=wrong)  # type: ignore[arg-type]


_GENERATIONS = st.lists(
    st.builds(
        lambda iteration, version, reasons, loss, definition: _generation(
            iteration, *sorted(reasons), version=version, loss=loss, definition=definition
        ),
        st.integers(0, 30),
        st.integers(1, 2),
        st.sets(st.sampled_from(["latest", "snapshot", "best", "session_end", "signal", "error"]), min_size=1),
        st.none() | st.floats(0, 1),
        st.sampled_from(["", "other"]),
    ),
    unique_by=lambda g: g.generation,
    max_size=25,
)
_POLICIES = st.builds(
    RetentionPolicy,
    latest=st.sampled_from([-1, 2, 3, 5]),
    snapshots=st.sampled_from([-1, 1, 3]),
    best=st.integers(0, 2),
    session_ends=st.integers(0, 2),
    errors=st.integers(0, 2),
)


@given(_GENERATIONS, _POLICIES)
def test_what_always_holds(generations: list[Manifest], policy: RetentionPolicy) -> None:
    gone = to_delete(generations, policy)
    left = [g for g in generations if g.generation not in gone]
    assert set(gone) <= {g.generation for g in generations}
    # The newest two states that differ are never given up.
    regular = sorted({g.iteration for g in generations if not g.name.error})
    assert {g.iteration for g in left if not g.name.error} >= set(regular[-2:])
    # Deleting is over after one time, and what went away does not change why the rest stays.
    assert to_delete(left, policy) == []
    assert {name: reasons for name, reasons in why_kept(generations, policy).items() if reasons} == why_kept(
        left, policy
    )
    # The order of the list has no meaning.
    assert set(to_delete(generations[::-1], policy)) == set(gone)
    # Bounds hold.
    if policy.snapshots != -1:
        assert sum("snapshot" in reasons for reasons in why_kept(left, policy).values()) <= policy.snapshots


@given(_GENERATIONS, _POLICIES)
def test_a_policy_that_keeps_more_deletes_no_more(generations: list[Manifest], policy: RetentionPolicy) -> None:
    from dataclasses import replace

    assert set(to_delete(generations, replace(policy, latest=-1))) <= set(to_delete(generations, policy))
