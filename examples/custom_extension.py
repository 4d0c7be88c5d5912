"""An extension of your own that has something to remember: a running average of the weights.

The run is cut in the middle, and the second half continues in new objects from what ``state_dict`` gave. Compare the
two lines that it prints: the cut leaves no trace. (To keep the state on a disk, see ``durable_loop.py``.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ostinato.loop import Extension, Trainer
from smallest_loop import FitALine


class WeightAverage(Extension):
    """Keeps an exponential average of a model's parameters, which is often better than the last value.

    :param model: the model to watch.
    :param decay: how much of the average stays in each iteration, from 0 to 1.
    """

    trigger = (1, "iteration")

    def __init__(self, model: torch.nn.Module, decay: float = 0.98) -> None:
        self.model = model
        self.decay = decay
        self.average: dict[str, torch.Tensor] = {}

    def initialize(self, trainer: Any) -> None:
        # Comes after a saved state was loaded, so what was loaded must not be overwritten here.
        if not self.average:
            self.average = {name: value.detach().clone() for name, value in self.model.named_parameters()}

    @torch.no_grad()
    def __call__(self, trainer: Any) -> None:
        for name, value in self.model.named_parameters():
            self.average[name].lerp_(value, 1 - self.decay)

    def state_dict(self) -> dict[str, Any]:
        return {"average": dict(self.average)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.average = {name: value.clone() for name, value in state["average"].items()}


def make(iterations: int) -> tuple[Trainer, WeightAverage]:
    torch.manual_seed(0)
    updater = FitALine()
    average = WeightAverage(updater.line)
    return Trainer(updater, (iterations, "iteration"), extensions=[average]), average


if __name__ == "__main__":
    straight, average = make(300)
    straight.run()

    first_half, _ = make(150)
    first_half.run()
    second_half, continued = make(300)
    second_half.load_state_dict(first_half.state_dict())
    second_half.run()

    for what, result in (("straight ", average), ("continued", continued)):
        print(what, {name: value.flatten().tolist() for name, value in result.average.items()})
    assert all(torch.equal(average.average[name], continued.average[name]) for name in average.average)
