"""State by class number: on any number of ranks, and only where it fits."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.recognition.margins import arcface
from ostinato.recognition.partial_fc import PartialFC
from ostinato.runs.row_cut import RowCut

CLASSES, WIDTH = 37, 6
KINDS: dict[str, dict[str, Any]] = {
    "frozen": {},
    "dense_lazy": {"update": "dense_lazy"},
    "adamw": {"optimizer": "adamw"},
    "sub-centres": {"sub_centres": 2},
    "bare": {"momentum": 0.0},
}


class Seat:
    """A place among ranks, for what needs no exchange with the others."""

    local_rank = 0

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def head_of(group: Any = None, seed: int = 0, **options: Any) -> PartialFC:
    return PartialFC(CLASSES, WIDTH, arcface(0.5, 16.0), sampling_rate=0.3, group=group, seed=seed, **options)


def train(head: PartialFC, steps: range) -> list[float]:
    losses = []
    for number in steps:
        generator = torch.Generator().manual_seed(number)
        embeddings = torch.randn((5, WIDTH), generator=generator, requires_grad=True)
        loss = head(embeddings, torch.randint(CLASSES, (5,), generator=generator))
        loss.backward()
        head.step(0.1)
        losses.append(loss.item())
    return losses


def whole(state: dict[str, Any]) -> dict[str, Any]:
    """As a file of all rows gives it."""

    def copied(leaf: Any) -> Any:
        if isinstance(leaf, dict):
            return {name: copied(value) for name, value in leaf.items()}
        return leaf.tensor.clone() if isinstance(leaf, RowCut) else leaf

    return copied(state)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_head_goes_on_as_the_other_would_have(kind: str) -> None:
    head = head_of(**KINDS[kind])
    train(head, range(5))
    state = whole(head.state_dict())
    expected = train(head, range(5, 10))
    other = head_of(seed=0, **KINDS[kind])
    other.load_state_dict(state)
    assert (other.draws, other.steps) == (5, 5)
    assert train(other, range(5, 10)) == expected
    assert torch.equal(other.weight, head.weight)


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_hand_over_cuts_that_cover_the_table_and_take_back_theirs(kind: str) -> None:
    trained = head_of(**KINDS[kind])
    train(trained, range(4))
    state = whole(trained.state_dict())
    parts = []
    for rank in range(5):
        head = head_of(Seat(rank, 5), seed=9, **KINDS[kind])
        head.load_state_dict(state)
        parts.append(head.state_dict())
        head.load_state_dict(parts[-1])  # its own cut will do as well
    for name in ("weight", *state["tables"]):
        cuts = [part["weight"] if name == "weight" else part["tables"][name] for part in parts]
        end = 0
        for cut in cuts:
            assert cut.first_row == end
            end += len(cut.tensor)
        assert end == cuts[0].total_rows
        before = state["weight"] if name == "weight" else state["tables"][name]
        assert torch.equal(torch.cat([cut.tensor for cut in cuts]), before)


def test_centres_alone_are_enough(caplog) -> None:
    head = head_of()
    train(head, range(3))
    table = torch.randn(CLASSES, WIDTH)
    state = {"format": 1, "classes": CLASSES, "embedding_size": WIDTH, "sub_centres": 1, "weight": table}
    with caplog.at_level(logging.WARNING):
        head.load_state_dict(state)
    assert torch.equal(head.weight, table)
    assert not head.centres.tables["momentum"].any()
    assert (head.draws, head.steps) == (0, 0)
    assert "momentum start at zero" in caplog.text


def test_momentum_of_another_rule_is_dropped_and_the_log_says_so(caplog) -> None:
    head = head_of(optimizer="adamw")
    train(head, range(3))
    state = whole(head.state_dict())
    other = head_of(momentum_form="rate_inside")
    train(other, range(1))
    with caplog.at_level(logging.WARNING):
        other.load_state_dict(state)
    assert torch.equal(other.weight, head.weight)
    assert not other.centres.tables["momentum"].any()
    assert "memory of adamw, and these are updated by sgd, momentum rate_inside" in caplog.text


def test_frozen_and_lazy_heads_take_over_each_others_momentum() -> None:
    frozen, lazy = head_of(), head_of(update="dense_lazy")
    train(lazy, range(5))
    frozen.load_state_dict(whole(lazy.state_dict()))
    assert frozen.centres.tables["momentum"].any()
    train(frozen, range(3))
    lazy.load_state_dict(whole(frozen.state_dict()))
    assert torch.equal(lazy.weight, frozen.weight)
    assert torch.equal(lazy.centres.tables["momentum"], frozen.centres.tables["momentum"])


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"format": 2}, ArgumentValueError, "format 2"),
        ({"classes": 38}, ArgumentValueError, r"classes 38 \(here 37\).*grow"),
        ({"embedding_size": 5}, ArgumentValueError, "embedding_size 5"),
        ({"sub_centres": 3}, ArgumentValueError, "sub_centres 3"),
        ({"weight": torch.zeros(CLASSES, WIDTH + 1)}, ArgumentValueError, r"\(37, 7\)"),
        ({"weight": "rows"}, ArgumentTypeError, "str"),
        ({"tables": {"momentum": torch.zeros(3, WIDTH)}}, ArgumentValueError, "'momentum'"),
        ({"weight": RowCut(torch.zeros(5, WIDTH), 0, CLASSES)}, ArgumentValueError, "one rank's cut"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_changes(change: Any, error: type[Exception], says: str) -> None:
    head = head_of()
    train(head, range(3))
    before = whole(head.state_dict())
    with pytest.raises(error, match=says):
        head.load_state_dict({**before, **change})
    after = whole(head.state_dict())
    assert torch.equal(after["weight"], before["weight"])
    assert torch.equal(after["tables"]["momentum"], before["tables"]["momentum"])


def test_a_head_inside_a_model_is_refused_when_the_model_is_saved() -> None:
    model = torch.nn.ModuleDict({"head": head_of()})
    with pytest.raises(StateError, match="beside the backbone"):
        model.state_dict()


def test_first_values_are_made_only_when_they_are_needed(monkeypatch) -> None:
    from ostinato.recognition import class_centres

    made = []
    fill = class_centres.fill_initial_centres
    monkeypatch.setattr(class_centres, "fill_initial_centres", lambda *given: made.append(given[1]) or fill(*given))
    head = head_of()
    head.load_state_dict(whole(head_of().state_dict()))
    train(head, range(2))
    assert made == [0]  # of the head that the state came from


def test_growing_keeps_all_that_is_known_and_starts_new_classes_as_if_from_the_start() -> None:
    for kind, options in KINDS.items():
        head = head_of(**options)
        train(head, range(6))
        before = whole(head.state_dict())
        head.grow(50)
        after = whole(head.state_dict())
        fresh = PartialFC(50, WIDTH, arcface(), **options)
        rows = CLASSES * head.sub_centres
        assert torch.equal(after["weight"][:rows], before["weight"]), kind
        assert torch.equal(after["weight"][rows:], fresh.weight[rows:])
        for name, table in before["tables"].items():
            assert torch.equal(after["tables"][name][: len(table)], table)
            assert not after["tables"][name][len(table) :].any()
        assert (head.classes, head.last_class, after["classes"]) == (50, 50, 50)
        head(torch.randn(3, WIDTH), torch.tensor([0, 49, 48])).backward()
        head.step(0.1)


def test_growing_is_refused_where_it_makes_no_sense() -> None:
    head = head_of()
    with pytest.raises(ArgumentValueError, match="36"):
        head.grow(36)
    head(torch.randn(3, WIDTH), torch.tensor([0, 1, 2])).backward()
    with pytest.raises(StateError, match="between"):
        head.grow(40)
    head.zero_grad()
    head.grow(CLASSES)
    assert head.classes == CLASSES
