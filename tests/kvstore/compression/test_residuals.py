from __future__ import annotations

import pytest
import torch

from ostinato.errors import StateError
from ostinato.kvstore.compression import CompressionScheme, Compressor, decode, residuals_for_rank

SCHEME = CompressionScheme("2bit", 0.5)


def gradients(seed: int) -> torch.Tensor:
    return torch.randn(40, generator=torch.Generator().manual_seed(seed))


def test_bucketing_changes_nothing() -> None:
    alone, together = Compressor(SCHEME), Compressor(SCHEME)
    layouts = [[("a", 7), ("b", 33)], [("a", 7), ("b", 33)], [("b", 33), ("a", 7)]]
    for seed, layout in enumerate(layouts):
        flat = gradients(seed)
        decoded = decode(SCHEME, together.compress_together(layout, flat), 40)
        for (key, size), gradient, got in zip(
            layout, flat.split([size for _, size in layout]), decoded.split([size for _, size in layout]), strict=True
        ):
            assert torch.equal(decode(SCHEME, alone.compress(key, gradient), size), got)
            assert torch.equal(alone.residual(key), together.residual(key))


def test_state_travels() -> None:
    first, second = Compressor(SCHEME), Compressor(SCHEME)
    first.compress("a", gradients(0))
    second.load_state_dict(first.state_dict())
    before = second.state_dict()["residuals"]["a"].clone()
    assert torch.equal(first.compress("a", gradients(1)), second.compress("a", gradients(1)))
    assert not torch.equal(before, second.residual("a"))
    first.reset()
    assert first.residual("a") is None


def test_a_saved_state_is_a_copy() -> None:
    compressor = Compressor(SCHEME)
    compressor.compress("a", gradients(0))
    state = compressor.state_dict()
    kept = state["residuals"]["a"].clone()
    compressor.compress("a", gradients(1))
    assert torch.equal(state["residuals"]["a"], kept)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_what_is_owed_stays_the_same_with_another_number_of_workers(size: int) -> None:
    states = []
    for seed in range(4):
        compressor = Compressor(SCHEME)
        compressor.compress("a", gradients(seed))
        states.append(compressor.state_dict())
    owed = torch.zeros(40)
    for rank in range(size):
        compressor = Compressor(SCHEME)
        compressor.load_sum_of(residuals_for_rank(states, rank, size))
        kept = compressor.residual("a")
        owed += 0 if kept is None else kept
    torch.testing.assert_close(owed, sum(state["residuals"]["a"] for state in states))


def test_residuals_of_another_type_are_refused_and_nothing_changes() -> None:
    compressor = Compressor(SCHEME)
    compressor.compress("a", gradients(0))
    kept = compressor.residual("a").clone()
    with pytest.raises(StateError, match="1bit"):
        compressor.load_state_dict(Compressor(CompressionScheme("1bit")).state_dict())
    with pytest.raises(StateError, match="version"):
        compressor.load_state_dict({"a": torch.zeros(40)})
    with pytest.raises(StateError, match="float64"):
        compressor.load_state_dict({**compressor.state_dict(), "residuals": {"a": torch.zeros(3).double()}})
    assert torch.equal(compressor.residual("a"), kept)


def test_a_parameter_that_changed_its_size_is_an_error() -> None:
    compressor = Compressor(SCHEME)
    compressor.compress("a", gradients(0))
    with pytest.raises(StateError, match="40 elements"):
        compressor.compress("a", torch.zeros(3))


def test_a_proposal_changes_nothing_until_it_is_accepted_and_then_only_what_counts() -> None:
    proposing, plain = Compressor(SCHEME), Compressor(SCHEME)
    layout = [("a", 7), ("b", 33)]
    for compressor in (proposing, plain):
        compressor.compress_together(layout, gradients(0))
    before = proposing.state_dict()["residuals"]
    proposal = proposing.propose(layout, gradients(1))
    packed = plain.compress_together(layout, gradients(1))
    assert torch.equal(proposal.packed, packed)
    for key, kept in before.items():
        assert torch.equal(proposing.residual(key), kept)
    proposing.accept(proposal, only={"a"})
    assert torch.equal(proposing.residual("a"), plain.residual("a"))
    assert torch.equal(proposing.residual("b"), before["b"])
    proposing.accept(proposal)
    assert torch.equal(proposing.residual("b"), plain.residual("b"))
