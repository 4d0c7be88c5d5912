"""The smallest training: an updater with four members, and a plain function as an extension.

Run it with ``python examples/smallest_loop.py``; it takes two seconds and writes nothing but an empty folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ostinato.loop import Trainer, UpdaterState, report


class FitALine:
    """Learns slope and offset of a line from noisy points.

    An updater says how far it is (``state``), does one update, and can save and load what the next update depends on.
    """

    def __init__(self) -> None:
        self.state = UpdaterState()
        self.line = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.line.parameters(), lr=0.1)
        self.random = torch.Generator().manual_seed(0)

    def update(self) -> None:
        x = torch.rand(32, 1, generator=self.random)
        y = 3 * x - 1 + 0.05 * torch.randn(32, 1, generator=self.random)
        loss = torch.nn.functional.mse_loss(self.line(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        report("loss", loss)  # stays a tensor until somebody reads it
        self.state.advance(samples=len(x))

    def state_dict(self) -> dict[str, Any]:
        return {
            "counters": self.state.state_dict(),
            "line": self.line.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": self.random.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state.load_state_dict(state["counters"])
        self.line.load_state_dict(state["line"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.random.set_state(state["random"])


def say_how_it_goes(trainer: Any) -> None:
    print(f"iteration {trainer.updater.state.iteration:4}  loss {float(trainer.observation['loss']):.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    updater = FitALine()
    trainer = Trainer(updater, stop_trigger=(500, "iteration"))
    trainer.extend(say_how_it_goes, trigger=(100, "iteration"))
    trainer.run()
    print(f"y = {updater.line.weight.item():.2f} x + {updater.line.bias.item():.2f}")
