"""States to save, small enough to save hundreds of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato.runs import GenerationContent, RunFolder
from ostinato.runs.atomic import Files, set_hook

MakeContent = Callable[..., GenerationContent]


@pytest.fixture
def make_content() -> MakeContent:
    """A state whose every number depends on the iteration."""

    def make(iteration: int, **fields: Any) -> GenerationContent:
        generator = torch.Generator().manual_seed(iteration)
        weight = torch.randn(3, 4, 2, 2, generator=generator).to(memory_format=torch.channels_last)
        bias = torch.randn(3, generator=generator)
        settings: dict[str, Any] = {
            "iteration": iteration,
            "model": {"encoder.weight": weight, "encoder.bias": bias, "scale": torch.tensor(0.5)},
            "optimizer": {"state": {"encoder.weight": {"step": torch.tensor(float(iteration)), "mean": weight * 2}}},
            "state": {
                "position": iteration * 8,
                "random": torch.arange(11, dtype=torch.uint8),
                "lists": [1, (2, None)],
            },
            "average_loss": 1.0 / (1 + iteration),
            "average_count": 10,
        }
        return GenerationContent(**{**settings, **fields})

    return make


@pytest.fixture
def quick_files() -> Files:
    """Tries again without waiting long."""
    return Files(attempts=3, first_wait=0.001)


@pytest.fixture
def run(tmp_path: Path, quick_files: Files) -> Iterator[RunFolder]:
    """An open, empty run."""
    folder = RunFolder(tmp_path / "run", files=quick_files).open(recipe="test")
    folder.begin_session(start_iteration=0, batch_size=8, config={"optimizer": {"rate": 1e-4}})
    yield folder
    folder.close()


@pytest.fixture(autouse=True)
def _no_hook_left() -> Iterator[None]:
    yield
    set_hook(None)
