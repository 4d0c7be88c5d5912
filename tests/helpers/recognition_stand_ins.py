"""Small stand-ins for what a recognition updater works with."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from ostinato.config import RecognitionOptions, read_options
from ostinato.dist import Alone, Group
from ostinato.kvstore.loss_scaler import LossScaler
from ostinato.recognition.margins import Margin
from ostinato.recognition.partial_fc import PartialFC
from ostinato.recognition.rate_schedule import RateSchedule
from ostinato.recognition.updater import RecognitionUpdater

CLASSES = 12
SIZE = 4  # pixels a side


class LinearBackbone(nn.Module):
    """A backbone without batch norms: what a batch gives does not depend on how it is cut."""

    def __init__(self, seed: int = 0, size: int = 8) -> None:
        super().__init__()
        self.layer = nn.Linear(3 * SIZE * SIZE, size)
        self.unused = nn.Parameter(torch.zeros(3))
        with torch.no_grad():
            self.layer.weight.normal_(0, 0.3, generator=torch.Generator().manual_seed(seed))
            self.layer.bias.zero_()

    def forward(self, pictures: Tensor) -> Tensor:
        return self.layer(pictures.flatten(1))


class FormulaBatches:
    """Pictures and labels that follow from their position; each rank gets every so-manieth."""

    def __init__(self, batch_size: int, group: Group | None = None, images: int = 30) -> None:
        self.batch_size = batch_size
        self.epoch_length = images
        self.position = 0
        self._group: Group = Alone() if group is None else group

    def next_batch(self) -> Any:
        positions = range(self.position + self._group.rank, self.position + self.batch_size, self._group.size)
        images = [self._image(position % self.epoch_length) for position in positions]
        labels = [position % self.epoch_length % CLASSES for position in positions]
        self.position += self.batch_size
        return SimpleNamespace(
            images=torch.stack(images),
            labels=torch.tensor(labels),
            epoch=self.position // self.epoch_length,
            position=self.position,
        )

    def _image(self, number: int) -> Tensor:
        generator = torch.Generator().manual_seed(number)
        return torch.randint(0, 256, (3, SIZE, SIZE), dtype=torch.uint8, generator=generator)

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.position = int(state["position"])


def recognition_options(*overrides: str) -> RecognitionOptions:
    return read_options(RecognitionOptions, None, overrides).options


def make_updater(
    *overrides: str,
    batch: int = 10,
    group: Group | None = None,
    scaler: LossScaler | None = None,
    backbone: nn.Module | None = None,
    classes: int = CLASSES,
    data_classes: int | None = None,
    rate: float = 0.2,
) -> RecognitionUpdater:
    """An updater over a linear backbone, a small head and formula pictures."""
    options = recognition_options(*overrides)
    backbone = LinearBackbone() if backbone is None else backbone
    settings = options.optimizer
    return RecognitionUpdater(
        backbone,
        PartialFC(
            classes,
            8,
            Margin(16.0, 1.0, 0.0, 0.2),
            group=group,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            seed=3,
        ),
        torch.optim.SGD(
            [p for p in backbone.parameters() if p.requires_grad],
            lr=1.0,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        ),
        FormulaBatches(batch, group),
        schedule=RateSchedule(rate, 100, warm_up=3),
        options=options,
        classes=data_classes,
        group=group,
        scaler=scaler,
    )
