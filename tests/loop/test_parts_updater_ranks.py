"""Parts whose models are wrapped for data-parallel training, on real ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rank_processes import run_on_ranks
from torch import Tensor, nn

from ostinato.loop import Part, PartsUpdater

ROWS = torch.linspace(-1, 1, 32).reshape(8, 2, 2)  # batches of both ranks together


class Both(nn.Module):
    """A generator and a discriminator in one model, called by name."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.generator, self.discriminator = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, which: str, x: Tensor) -> Tensor:
        return getattr(self, which)(x)


def train(group: Any, together: bool) -> list[list[float]]:
    """The weights after training on this rank's half of each batch, or, without a group, on whole batches."""
    model = Both()
    rows = list(ROWS if group is None else ROWS[:, group.rank : group.rank + 1])
    optimizers = {
        name: torch.optim.SGD(getattr(model, name).parameters(), lr=0.1) for name in ("generator", "discriminator")
    }
    call: Any
    models: dict[str, nn.Module]
    if together:
        wrapped: nn.Module = model
        if group is not None:
            wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        models, call = {"main": wrapped}, wrapped
    else:
        models = {"generator": model.generator, "discriminator": model.discriminator}
        if group is not None:
            models = {name: nn.parallel.DistributedDataParallel(one) for name, one in models.items()}

        def call(which: str, x: Tensor) -> Tensor:
            return models[which](x)

    updater = PartsUpdater(
        models,
        optimizers,
        rows,
        [
            Part("discriminator", lambda b, t: call("discriminator", t.detached("fake")).square().mean(), stop=5),
            Part("generator", lambda b, t: call("discriminator", t["fake"]).mean(), start=2),
            Part("again", lambda b, t: call("generator", b).square().mean(), "generator", every=2),
        ],
        shared={"fake": lambda batch, turn: call("generator", batch)},
    )
    for _ in range(12):
        updater.update()
    return [p.detach().flatten().tolist() for p in model.parameters()]


@pytest.mark.parametrize("together", [False, True])
def test_ranks_train_together_as_one_process_does(tmp_path, together: bool) -> None:
    results = run_on_ranks(train, together, folder=tmp_path)
    assert [result.error for result in results] == [None, None], results[0].output
    assert results[0].value == results[1].value
    alone = train(None, together)
    for found, expected in zip(results[0].value, alone, strict=True):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-7)
