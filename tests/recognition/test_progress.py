from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from ostinato.dist import Alone
from ostinato.loop import UpdaterState
from ostinato.recognition.progress import RecognitionProgress


def _trainer(iteration: int, samples: int, seconds: float, observation: dict[str, Any]) -> Any:
    state = UpdaterState(iteration=iteration, samples=samples)
    return SimpleNamespace(
        updater=SimpleNamespace(state=state),
        elapsed_time=seconds,
        observation=observation,
        max_iteration=400,
        group=Alone(),
        status="running",
    )


def test_the_line_tells_where_the_training_is_and_where_its_time_goes() -> None:
    lines: list[str] = []
    progress = RecognitionProgress(lines.append, epoch_length=1000)
    progress.initialize(_trainer(0, 0, 0.0, {}))
    seen = {
        "loss": torch.tensor(12.34567),
        "rate": 0.05,
        "loss_scale": 65536.0,
        "time/data": 0.1,
        "time/backbone": 0.7,
        "time/head": 0.2,
    }
    progress(_trainer(40, 4000, 10.0, seen))
    (line,) = lines
    assert line == (
        "iteration 40 of 400 · epoch 4.0 of 40 · 400 images/s · 0:01:30 left · loss 12.3457 · rate 0.05 · "
        "loss scale 6.554e+04 · data 10 % backbone 70 % head 20 %"
    )


def test_a_line_without_numbers_leaves_them_out() -> None:
    lines: list[str] = []
    progress = RecognitionProgress(lines.append, epoch_length=1000)
    progress.initialize(_trainer(0, 0, 0.0, {}))
    progress(_trainer(0, 0, 0.0, {"loss": "not a number"}))
    assert lines == ["iteration 0 of 400 · epoch 0.0"]


def test_passes_are_told_alike_however_many_there_are() -> None:
    lines: list[str] = []
    for samples, length in ((4000, 1000), (480, 10000), (100000, 80)):
        progress = RecognitionProgress(lines.append, epoch_length=length)
        progress.initialize(_trainer(40, samples, 0.0, {}))
        lines.append(progress.line(_trainer(40, samples, 10.0, {})))
    assert [line.split(" · ")[1] for line in lines] == [
        "epoch 4.0 of 40",
        "epoch 0.0 of 0.5",
        "epoch 1,250.0 of 12,500",
    ]
