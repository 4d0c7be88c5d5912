"""An extension of your own that has something to remember: a running average of the weights.

The run is cut in the middle, and the second half continues in new objects from what ``state_dict`` gave. Compare the
two lines that it prints: the cut leaves no trace. The last line is also that of ``custom_extension_plain.py``, the same
program without Ostinato. (To keep the state on a disk, register a ``Snapshot``, as in ``image_classifier.py``.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from custom_extension_plain import DECAY, ITERATIONS
from ostinato.loop import Extension, Trainer
from smallest_loop import FitALine, say_how_it_goes


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
    average = WeightAverage(updater.line, DECAY)
    trainer = Trainer(updater, (iterations, "iteration"), extensions=[average])
    trainer.extend(say_how_it_goes, trigger=(100, "iteration"))
    return trainer, average


if __name__ == "__main__":
    straight, average = make(ITERATIONS)
    straight.run()
    print("average", {name: value.flatten().tolist() for name, value in average.average.items()})

    first_half, _ = make(ITERATIONS // 2)
    first_half.run()
    second_half, continued = make(ITERATIONS)
    second_half.load_state_dict(first_half.state_dict())
    second_half.run()
    print("average", {name: value.flatten().tolist() for name, value in continued.average.items()})
