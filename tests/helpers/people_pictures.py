"""Small pictures of people who do not exist, and a network that is quick and tells them apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ostinato.data.pictures import encode_png


def person_picture(person: int, number: int, size: int = 32) -> NDArray[np.uint8]:
    """A pattern of the person, a little different for each number. (size, size, 3) uint8."""
    base = np.random.default_rng(person).integers(40, 216, (4, 4, 3))
    noise = np.random.default_rng((person, number)).integers(-40, 41, (4, 4, 3))
    return np.kron(base + noise, np.ones((size // 4, size // 4, 1))).astype(np.uint8)


def write_people(folder: Path, people: int, pictures: int, size: int = 32) -> Path:
    """A folder with a sub-folder of PNG pictures for each person."""
    for person in range(people):
        place = folder / f"person_{person:02}"
        place.mkdir(parents=True)
        for number in range(pictures):
            (place / f"{number}.png").write_bytes(encode_png(person_picture(person, number, size)))
    return folder


class PatchMeans(nn.Module):
    """(B, 3, S, S) to the means of 4 x 4 patches, (B, 48), by a weight of one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.batches: list[int] = []
        """How many pictures each call had."""

    def forward(self, pictures: Tensor) -> Tensor:
        self.batches.append(len(pictures))
        return nn.functional.adaptive_avg_pool2d(pictures, 4).flatten(1) * self.weight
