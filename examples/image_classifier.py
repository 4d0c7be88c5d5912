"""An image classifier: tells circles from squares from triangles, and is tested on unseen ones after every epoch.

The order of the images is a function of seed and position, so the updater has nothing to save about its data but the
position itself, which ``state.samples`` counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ostinato.data.order import SideOrders
from ostinato.loop import PRIORITY_WRITER, Trainer, UpdaterState, make_extension, report

SIZE = 16  # pixels


def draw(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (count, 1, SIZE, SIZE) noisy pictures, float32, and their (count,) classes 0, 1, 2."""
    random = torch.Generator().manual_seed(seed)
    classes = torch.arange(count) % 3
    x, y = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="xy")
    shift = (torch.rand(2, count, 1, 1, generator=random) - 0.5) * 0.5
    x, y = x - shift[0], y - shift[1]
    shapes = torch.stack(
        [x**2 + y**2 < 0.4, torch.maximum(x.abs(), y.abs()) < 0.55, (y < 0.5) & (x.abs() * 2 < y + 0.7)]
    )
    pictures = shapes[classes, torch.arange(count)].float()
    return (pictures + 0.25 * torch.randn(pictures.shape, generator=random))[:, None], classes


class Classifier:
    """One update: a batch of pictures, cross entropy, Adam."""

    def __init__(self, batch_size: int = 32) -> None:
        self.images, self.classes = draw(600, seed=1)
        self.batch_size = batch_size
        self.order = SideOrders([len(self.images)], seed=1)
        self.state = UpdaterState(updates_per_epoch=len(self.images) // batch_size)
        self.model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 5, stride=2, padding=2), torch.nn.ReLU(),
            torch.nn.Conv2d(8, 16, 5, stride=2, padding=2), torch.nn.ReLU(),
            torch.nn.Flatten(), torch.nn.Linear(16 * 16, 3),
        )  # fmt: skip
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=4e-3)

    def update(self) -> None:
        chosen = torch.from_numpy(self.order.indices(0, start=self.state.samples, length=self.batch_size))
        loss = torch.nn.functional.cross_entropy(self.model(self.images[chosen]), self.classes[chosen])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        report("loss", loss)
        self.state.advance(samples=self.batch_size)

    def state_dict(self) -> dict[str, Any]:
        parts = {"counters": self.state, "model": self.model, "optimizer": self.optimizer}
        return {name: part.state_dict() for name, part in parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state.load_state_dict(state["counters"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


@make_extension(trigger=(1, "epoch"), priority=PRIORITY_WRITER)
@torch.no_grad()
def evaluate(trainer: Any) -> None:
    images, classes = draw(300, seed=2)
    report("accuracy", (trainer.updater.model(images).argmax(1) == classes).float().mean())


def log(trainer: Any) -> None:
    seen = {name: round(float(value), 3) for name, value in trainer.observation.items()}
    print(f"epoch {trainer.updater.state.epoch}  {seen}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)  # for pictures this small, threads cost more than they bring
    trainer = Trainer(Classifier(), stop_trigger=(8, "epoch"), extensions=[evaluate])
    trainer.extend(log, trigger=(1, "epoch"))
    trainer.run()
    assert trainer.observation["accuracy"] > 0.85
