from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import BadInputError
from ostinato.recognition.data.synthetic import SyntheticSource
from ostinato.recognition.identities import (
    IdentityMemory,
    as_known,
    names_in_order,
    pack_names,
    unpack_names,
)

_NAMES = st.lists(st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=8), min_size=1, unique=True)


def _source(classes: int) -> Any:
    return SyntheticSource(classes, 2 * classes, image_size=8)


@given(_NAMES)
def test_names_come_back_from_their_bytes(names: list[str]) -> None:
    assert unpack_names(pack_names(names)) == tuple(names)
    assert unpack_names(pack_names(None)) is None


@given(_NAMES, st.data())
def test_everybody_keeps_their_number_and_new_people_come_after(now: list[str], data: Any) -> None:
    now = sorted(now)  # as a folder is read
    known = data.draw(st.permutations(now))[: data.draw(st.integers(1, len(now)))]
    source = as_known(_source(len(now)), now, len(known), known)
    order = names_in_order(now, known)
    assert order is not None
    assert order[: len(known)] == tuple(known)
    assert sorted(order) == now
    assert source.classes == len(now)
    for index in range(len(source)):
        _, label = source.read(index)
        assert label == source.labels[index]
        assert order[label] == now[index % len(now)]  # of a synthetic set picture i shows person i modulo their number


def test_a_set_that_has_not_changed_is_used_as_it_is() -> None:
    source = _source(3)
    assert as_known(source, ["a", "b", "c"], 3, ["a", "b", "c"]) is source
    assert as_known(source, None, 3, None) is source
    assert as_known(source, None, 2, None) is source


def test_people_who_are_missing_are_named() -> None:
    with pytest.raises(BadInputError, match=r"3 people, and 1 of them are not in the data any more: bob\."):
        as_known(_source(2), ["anna", "carl"], 3, ["anna", "bob", "carl"])
    with pytest.raises(BadInputError, match="has 5 classes, and the data has 2: people are missing"):
        as_known(_source(2), None, 5, None)


def test_names_are_kept_when_a_record_file_takes_the_place_of_a_folder() -> None:
    assert names_in_order(None, ["a", "b"]) == ("a", "b")
    assert names_in_order(["a", "b"], None) == ("a", "b")
    assert names_in_order(None, None) is None


def test_what_is_relabelled_is_otherwise_the_same() -> None:
    source = _source(3)
    relabelled = as_known(source, ["a", "b", "c"], 2, ["c", "a"])
    assert np.array_equal(relabelled.labels, np.array([1, 2, 0, 1, 2, 0]))
    assert len(relabelled) == 6
    assert relabelled.place(4) == source.place(4)
    assert np.array_equal(relabelled.read(4)[0], source.read(4)[0])
    relabelled.close()


def test_the_memory_saves_what_is_needed_to_compare() -> None:
    memory = IdentityMemory(2, ["a", "b"])
    memory(SimpleNamespace())  # type: ignore[arg-type]
    state = memory.state_dict()
    assert (state["format"], state["classes"], unpack_names(state["names"])) == (1, 2, ("a", "b"))
    memory.load_state_dict(state)
    assert IdentityMemory(2, None).state_dict()["names"] is None
