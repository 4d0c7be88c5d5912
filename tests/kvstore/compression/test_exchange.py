from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rank_processes import run_on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ostinato.kvstore.collective_calls import Collectives
from ostinato.kvstore.compression import CompressionScheme, Compressor, decode
from ostinato.kvstore.compression.ddp_hook import CompressionHook
from ostinato.kvstore.compression.exchange import begin_sum, cheaper_route

SCHEMES = [CompressionScheme("2bit", 0.5), CompressionScheme("1bit", 0.0)]
SIZES = [1, 31, 64, 1003]
ROUNDS = 3


def gradient(rank: int, size: int, turn: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(1000 * rank + 10 * size + turn))


def sums_over_ranks(group: Any) -> dict[str, Any]:
    """Every scheme on both routes, and the bytes that were handed over."""
    found: dict[str, Any] = {}
    for scheme in SCHEMES:
        for route in ("all_gather", "all_to_all"):
            collectives = Collectives(dist.group.WORLD)
            for size in SIZES:
                compressor = Compressor(scheme)
                for turn in range(ROUNDS):
                    packed = compressor.compress("w", gradient(group.rank, size, turn))
                    total = begin_sum(scheme, packed, size, collectives, route).finish(torch.empty(size))
                    found[f"{scheme.type} {route} {size} {turn}"] = total
            found[f"{scheme.type} {route} bytes"] = dict(collectives.handed_over)
    return found


@pytest.mark.parametrize("ranks", [1, 3])
def test_both_routes_give_the_sum_of_what_every_rank_has_sent(tmp_path: Path, ranks: int) -> None:
    results = run_on_ranks(sums_over_ranks, folder=tmp_path, ranks=ranks)
    assert [result.error for result in results] == [None] * ranks
    for scheme in SCHEMES:
        for size in SIZES:
            compressors = [Compressor(scheme) for _ in range(ranks)]
            for turn in range(ROUNDS):
                expected = torch.zeros(size)
                for rank, compressor in enumerate(compressors):
                    expected += decode(scheme, compressor.compress("w", gradient(rank, size, turn)), size)
                for result in results:
                    for route in ("all_gather", "all_to_all"):
                        assert torch.equal(result.value[f"{scheme.type} {route} {size} {turn}"], expected)
        handed_over = results[0].value[f"{scheme.type} all_gather bytes"]
        assert handed_over == {"all_gather": ROUNDS * sum(scheme.packed_bytes(size) for size in SIZES)}


def test_the_cheaper_route_depends_on_the_number_of_ranks() -> None:
    two, one = CompressionScheme("2bit"), CompressionScheme("1bit")
    assert [cheaper_route(two, size) for size in (2, 16, 17, 18)] == ["all_gather"] * 3 + ["all_to_all"]
    assert [cheaper_route(one, size) for size in (32, 33, 34)] == ["all_gather"] * 2 + ["all_to_all"]


def train_with_hook(group: Any) -> dict[str, Any]:
    """Three updates of a model under DistributedDataParallel, with small buckets, and a gradient that overflows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 60), nn.ReLU(), nn.Linear(60, 3))
    hook = CompressionHook(CompressionScheme("2bit", 0.05), model.named_parameters())
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.001)
    ddp.register_comm_hook(hook, CompressionHook.exchange)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for turn in range(3):
        optimizer.zero_grad()
        ddp(hook_batch(group.rank, turn)).pow(2).sum().backward()
        optimizer.step()
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    residuals = hook.state_dict()["residuals"]
    optimizer.zero_grad()
    (ddp(hook_batch(group.rank, 3)).sum() * (torch.inf if group.rank else 1)).backward()
    overflow = [bool(parameter.grad.isnan().all()) for parameter in model.parameters()]
    return {"weights": weights, "residuals": residuals, "overflow": overflow}


def hook_batch(rank: int, turn: int) -> torch.Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * turn + rank))


def test_a_communication_hook_equals_the_scheme_in_one_process(tmp_path: Path) -> None:
    results = run_on_ranks(train_with_hook, folder=tmp_path, ranks=2)
    assert [result.error for result in results] == [None, None]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 60), nn.ReLU(), nn.Linear(60, 3))
    compressors = [Compressor(CompressionScheme("2bit", 0.05)) for _ in range(2)]
    for turn in range(3):
        sums = {name: torch.zeros(value.numel()) for name, value in model.named_parameters()}
        for rank, compressor in enumerate(compressors):
            model.zero_grad()
            model(hook_batch(rank, turn)).pow(2).sum().backward()
            for name, value in model.named_parameters():
                sums[name] += decode(compressor.scheme, compressor.compress(name, value.grad), value.numel())
        with torch.no_grad():
            for name, value in model.named_parameters():
                value -= 0.1 * sums[name].view_as(value) / 2
    for rank, result in enumerate(results):
        for name, value in model.named_parameters():
            torch.testing.assert_close(result.value["weights"][name], value.detach())
            torch.testing.assert_close(
                result.value["residuals"][name], compressors[rank].residual(name), rtol=0, atol=1e-5
            )
        assert all(result.value["overflow"])
