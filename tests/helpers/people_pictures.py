"""Small pictures of people who do not exist, and a network that is quick and tells them apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ostinato.data.pictures import encode_png
from ostinato.recognition.verification.pictures import ALIGNED


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


def write_templates(folder: Path, people: int = 6) -> Path:
    """A folder laid out as IJB-C: two templates of two pictures for each person; every two templates are a pair. The
    faces are not in the middle of their pictures."""
    (folder / "meta").mkdir(parents=True)
    (folder / "loose_crop").mkdir()
    media, points, pairs, owners = [], [], [], []
    for template in range(2 * people):
        person = template // 2
        owners.append(person)
        for number in range(2):
            name = f"{template}_{number}.png"
            canvas = np.zeros((180, 200, 3), np.uint8)
            canvas[40:152, 60:172] = person_picture(person, 2 * template + number, 112)
            (folder / "loose_crop" / name).write_bytes(encode_png(canvas))
            media.append(f"{name} {template} {number}")
            marks = " ".join(f"{x + 60} {y + 40}" for x, y in ALIGNED)
            points.append(f"{name} {marks} 0.9")
    for one in range(2 * people):
        pairs += [f"{one} {other} {int(owners[one] == owners[other])}" for other in range(one)]
    for ending, lines in (("face_tid_mid", media), ("name_5pts_score", points), ("template_pair_label", pairs)):
        (folder / "meta" / f"ijbx_{ending}.txt").write_text("\n".join(lines) + "\n")
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
