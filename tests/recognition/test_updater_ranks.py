"""Recognition updates with real processes as ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import RankResult, run_on_ranks
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))


def _values(results: list[RankResult]) -> list[Any]:
    for result in results:
        assert result.error is None, result.output
    return [result.value for result in results]


# --- in the processes ------------------------------------------------------------------------------------------------


def train_both_ways(group: Any, updates: int) -> list[dict[str, Any]]:
    return [_train(group, updates, overrides) for overrides in ([], ["accumulation=2"])]


def _train(group: Any, updates: int, overrides: list[str]) -> dict[str, Any]:
    """Ranks start from different weights, to see that those of rank 0 count."""
    from recognition_stand_ins import LinearBackbone, make_updater

    from ostinato.loop import scope

    updater = make_updater(*overrides, batch=10, group=group, backbone=LinearBackbone(seed=group.rank))
    updater.initialize(None)
    losses = []
    for _ in range(updates):
        observation: dict[str, Any] = {}
        with scope(observation):
            updater.update()
        losses.append(float(observation["loss"]))
    return {
        "losses": losses,
        "weight": updater.backbone.layer.weight.detach().tolist(),
        "centres": (updater.head.first_class, updater.head.weight.tolist()),
        "samples": updater.state.samples,
        "sent": updater.exchange.handed_over,
    }


def overflow(group: Any) -> list[Any]:
    """Rank 1's class centres overflow in the second update, and nobody else's."""
    from recognition_stand_ins import make_updater

    from ostinato.kvstore.loss_scaler import LossScaler
    from ostinato.loop import scope

    updater = make_updater(batch=10, group=group, scaler=LossScaler(1024.0))
    updater.initialize(None)
    seen = []
    for number in range(3):
        if number == 1 and group.rank == 1:
            updater.head.gradients_are_finite = lambda: False  # type: ignore[method-assign]
        elif group.rank == 1:
            updater.head.__dict__.pop("gradients_are_finite", None)
        observation: dict[str, Any] = {}
        with scope(observation):
            updater.update()
        seen.append((updater.is_skipped, float(observation["loss_scale"]), updater.backbone.layer.weight.sum().item()))
    return seen


def exchange(group: Any) -> dict[str, Any]:
    from ostinato.recognition.gradient_exchange import GradientExchange

    torch.manual_seed(group.rank)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    given = GradientExchange(model, group)
    given.open()
    first = [value.clone() for value in model.state_dict().values()]
    images = 3 + 2 * group.rank
    model(torch.randn(images, 3)).square().sum().backward()
    own = [parameter.grad.clone() for parameter in model.parameters()]
    statistics = [model[1].running_mean.clone(), model[1].running_var.clone()]
    given.exchange(images)
    return {
        "first": [value.tolist() for value in first],
        "own": [gradient.tolist() for gradient in own],
        "summed": [parameter.grad.tolist() for parameter in model.parameters()],
        "statistics": [value.tolist() for value in statistics],
        "averaged": [model[1].running_mean.tolist(), model[1].running_var.tolist()],
        "images": images,
    }


def normalise(group: Any) -> list[bool]:
    return [_normalise(group, 2), _normalise(group, 4)]


def _normalise(group: Any, dimensions: int) -> bool:
    """A synchronised norm over uneven parts, and a plain one over the whole."""
    from ostinato.recognition.synchronised_norm import synchronise_norms

    torch.manual_seed(0)
    shape = (7, 5) if dimensions == 2 else (7, 5, 3, 2)
    whole = 100.0 + torch.randn(shape, dtype=torch.float64)
    slopes = torch.randn(shape, dtype=torch.float64)
    plain = (nn.BatchNorm1d(5) if dimensions == 2 else nn.BatchNorm2d(5)).double()
    with torch.no_grad():
        plain.weight.uniform_(0.5, 2.0)
        plain.bias.uniform_(-1.0, 1.0)
    mine = nn.Sequential(nn.BatchNorm1d(5) if dimensions == 2 else nn.BatchNorm2d(5)).double()
    mine[0].load_state_dict(plain.state_dict())
    names = list(mine.state_dict())
    assert synchronise_norms(mine) == 1
    cut = slice(0, 1) if group.rank == 0 else slice(1, 7)
    inputs, all_inputs = whole[cut].clone().requires_grad_(), whole.clone().requires_grad_()
    output = mine(inputs)
    output.backward(slopes[cut])
    expected = plain(all_inputs)
    expected.backward(slopes)
    assert all_inputs.grad is not None
    assert inputs.grad is not None
    torch.testing.assert_close(output, expected[cut])
    torch.testing.assert_close(inputs.grad, all_inputs.grad[cut])
    for name in ("weight", "bias"):
        total = torch.stack(group.gather(getattr(mine[0], name).grad)).sum(0)
        torch.testing.assert_close(total, getattr(plain, name).grad)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        torch.testing.assert_close(getattr(mine[0], name), getattr(plain, name))
    mine.eval(), plain.eval()
    torch.testing.assert_close(mine(whole), plain(whole))
    return names == list(mine.state_dict())


# --- the tests -------------------------------------------------------------------------------------------------------


def test_any_number_of_ranks_trains_the_same_model(tmp_path: Path) -> None:
    results = [_values(run_on_ranks(train_both_ways, 4, folder=tmp_path, ranks=ranks)) for ranks in (1, 2, 3)]
    for way in range(2):
        alone, two, three = ([value[way] for value in values] for values in results)
        _assert_same_training(alone[0], two)
        _assert_same_training(alone[0], three)


def _assert_same_training(alone: dict[str, Any], several: list[dict[str, Any]]) -> None:
    size = len(several)
    for value in several:
        assert value["losses"] == several[0]["losses"]
        assert value["weight"] == several[0]["weight"]
        assert value["losses"] == pytest.approx(alone["losses"], rel=1e-4)
        assert value["samples"] == alone["samples"]
        _assert_near(value["weight"], alone["weight"])
        assert value["sent"] > alone["sent"] == 0
    assert [value["centres"][0] for value in several] == [12 * rank // size for rank in range(size)]
    _assert_near([row for value in several for row in value["centres"][1]], alone["centres"][1])


def _assert_near(found: list[Any], expected: list[Any]) -> None:
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-4, atol=1e-6)


def test_what_overflows_on_one_rank_makes_all_of_them_pass_over_the_update(tmp_path: Path) -> None:
    first, second = _values(run_on_ranks(overflow, folder=tmp_path))
    assert first == second
    assert [(skipped, scale) for skipped, scale, _ in first] == [(False, 1024.0), (True, 512.0), (False, 512.0)]
    assert first[0][2] == first[1][2] != first[2][2]


def test_gradients_are_summed_and_statistics_are_averaged_by_their_images(tmp_path: Path) -> None:
    first, second = _values(run_on_ranks(exchange, folder=tmp_path))
    assert first["first"] == second["first"]
    assert first["summed"] == second["summed"]
    for summed, one, other in zip(first["summed"], first["own"], second["own"], strict=True):
        torch.testing.assert_close(torch.tensor(summed), torch.tensor(one) + torch.tensor(other))
    assert first["averaged"] == second["averaged"]
    for averaged, one, other in zip(first["averaged"], first["statistics"], second["statistics"], strict=True):
        expected = (3 * torch.tensor(one) + 5 * torch.tensor(other)) / 8
        torch.testing.assert_close(torch.tensor(averaged), expected)


def test_a_synchronised_norm_normalises_as_one_over_the_whole_batch(tmp_path: Path) -> None:
    assert _values(run_on_ranks(normalise, folder=tmp_path)) == [[True, True]] * 2
