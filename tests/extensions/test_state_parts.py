from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from ostinato.extensions.state_parts import join_state, split_state
from ostinato.loop import StandardUpdater


class Compiled(nn.Module):
    """Wraps a module as ``torch.compile`` does."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._orig_mod = module


@pytest.mark.parametrize("wrap", [nn.DataParallel, Compiled, lambda module: Compiled(nn.DataParallel(module))])
def test_a_run_does_not_remember_how_its_model_was_wrapped(wrap: Callable[[nn.Module], nn.Module]) -> None:
    linear = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(linear.parameters())
    linear(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    updater = StandardUpdater(wrap(linear), optimizer, [])
    parts = split_state({"updater": updater.state_dict()}, updater)
    assert set(parts.model) == {"weight", "bias"}
    assert parts.optimizer is not None
    assert set(parts.optimizer["main"]["state"]) == {"weight", "bias"}

    bare = nn.Linear(2, 2)
    fresh = StandardUpdater(bare, torch.optim.Adam(bare.parameters()), [])
    fresh.load_state_dict(join_state(parts, fresh)["updater"])
    assert bare.weight.equal(linear.weight)
    assert fresh.optimizers["main"].state[bare.weight]["exp_avg"].equal(optimizer.state[linear.weight]["exp_avg"])


def test_what_each_rank_has_for_itself_is_taken_out_and_put_back() -> None:
    linear = nn.Linear(2, 2)
    updater = StandardUpdater(linear, torch.optim.Adam(linear.parameters()), [])
    tree = {"updater": updater.state_dict(), "elapsed_time": 1.0}
    alone = split_state(tree, updater)
    assert alone.of_rank is None
    assert "random" in alone.rest["trainer"]["updater"]
    parts = split_state(tree, updater, several_ranks=True)
    assert parts.of_rank == {"random": tree["updater"]["random"], "loader": tree["updater"]["loader"]}
    assert not {"random", "loader"} & parts.rest["trainer"]["updater"].keys()
    assert join_state(parts, updater)["updater"].keys() == tree["updater"].keys()


def test_the_state_of_a_module_alone_is_all_weights() -> None:
    linear = nn.Linear(2, 2)
    parts = split_state(linear.state_dict(), None)
    assert set(parts.model) == {"weight", "bias"}
    assert parts.optimizer is None
    nn.Linear(2, 2).load_state_dict(join_state(parts, None))
