"""The updater of a swap training with the tiny model and random batches, for tests that need no faces."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tiny_model
import torch
from torch import Tensor

from ostinato.config import SwapOptions, read_options
from ostinato.faces.loader import SwapBatch
from ostinato.loop.reporter import scope
from ostinato.optim import build_optimizer
from ostinato.swap.losses import SwapLoss
from ostinato.swap.updater import SwapUpdater

SIZE, COUNT = tiny_model.SIZE, 2


class Batches:
    """Random batches, each a function of its position."""

    epoch_length = 5
    batch_size = COUNT

    def __init__(self, sides: int) -> None:
        self.sides = sides
        self.position = 0

    def next_batch(self) -> SwapBatch:
        batch = self.at(self.position)
        self.position = batch.position
        return batch

    def at(self, position: int) -> SwapBatch:
        generator = torch.Generator().manual_seed(position)

        def draw(channels: int) -> Tensor:
            shape = (self.sides, COUNT, SIZE, SIZE, channels)
            return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)

        after = position + COUNT
        files = [[Path(f"{side}_{position + row}.png") for row in range(COUNT)] for side in range(self.sides)]
        masks = {name: [draw(1)] for name in ("face", "eye", "mouth")}
        return SwapBatch(draw(3), [draw(3)], masks, files, position=after, epoch=after // self.epoch_length)

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.position = state["position"]


def options_of(*overrides: str) -> SwapOptions:
    return read_options(SwapOptions, None, ["seed=5", *overrides]).options


def updater_of(options: SwapOptions, sides: tuple[str, ...] = ("a", "b"), **settings: Any) -> SwapUpdater:
    model = tiny_model.build_tiny_model(options, sides)
    loss = SwapLoss(options.loss, options.mask.learn_mask, model.output_sizes)
    optimizer = build_optimizer(model.named_parameters(), options.optimizer)
    loader = Batches(len(sides))
    return SwapUpdater(model, loss, optimizer, loader, options=options.optimizer, network=options.network, **settings)


def run(updater: SwapUpdater, updates: int) -> list[dict[str, float]]:
    losses = []
    for _ in range(updates):
        observation: dict[str, Any] = {}
        with scope(observation):
            updater.update()
        losses.append({name: float(value) for name, value in observation.items()})
    return losses


def saved(updater: SwapUpdater) -> dict[str, Any]:
    return copy.deepcopy(updater.state_dict())


def assert_equal(one: SwapUpdater, other: SwapUpdater) -> None:
    left, right = one.state_dict(), other.state_dict()
    for name, tensor in left["models"]["main"].items():
        assert tensor.equal(right["models"]["main"][name]), name
    for name, entry in left["optimizers"]["main"]["state"].items():
        for key, value in entry.items():
            assert torch.equal(value, right["optimizers"]["main"]["state"][name][key]), (name, key)
    assert left["gradients"].keys() == right["gradients"].keys()
    for name, gradient in left["gradients"].items():
        assert gradient.equal(right["gradients"][name]), name
