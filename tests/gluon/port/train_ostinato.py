"""The same program with Ostinato's Gluon spelling: compare line by line with ``train_torch.py`` and with the original.

=====================================================  ==========================================================
MXNet Gluon                                            here
=====================================================  ==========================================================
``net.initialize(ctx=devices)``                        ``replicas = gluon.replicate(net, devices)``
``gluon.Trainer(net.collect_params(), "sgd", …)``      ``gluon.Trainer(gluon.collect_params(replicas), "sgd", …)``
``gluon.utils.split_and_load(data, devices)``          the same
``with autograd.record(): …``                          nothing: PyTorch always records
``loss.backward()``; ``trainer.step(batch_size)``      the same
``trainer.save_states(f)``; ``trainer.load_states(f)``  the same
=====================================================  ==========================================================
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from ostinato import gluon

DEVICES = ["cpu", "cpu"]
BATCH_SIZE, EPOCHS = 8, 3


def network() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(11)
    inputs = torch.randn(64, 4, generator=generator)
    labels = (inputs[:, :3] * 2).argmax(dim=1)
    return list(zip(inputs.split(BATCH_SIZE), labels.split(BATCH_SIZE), strict=True))


def main(folder: Path) -> dict[str, Tensor]:
    """Train for three passes, with the states saved and loaded again after each, and give the parameters."""
    replicas = gluon.replicate(network(), DEVICES)
    trainer = gluon.Trainer(
        gluon.collect_params(replicas),
        "sgd",
        {"learning_rate": 0.05, "momentum": 0.9, "wd": 1e-3, "clip_gradient": 0.5},
        kvstore="device",
    )
    loss_function = nn.CrossEntropyLoss(reduction="sum")
    for _ in range(EPOCHS):
        for data, label in batches():
            xs = gluon.utils.split_and_load(data, DEVICES)
            ys = gluon.utils.split_and_load(label, DEVICES)
            losses = [loss_function(net(x), y) for net, x, y in zip(replicas, xs, ys, strict=True)]
            for loss in losses:
                loss.backward()
            trainer.step(BATCH_SIZE)
        trainer.save_states(folder / "trainer.states")
        trainer.load_states(folder / "trainer.states")
    return dict(replicas[0].state_dict())
