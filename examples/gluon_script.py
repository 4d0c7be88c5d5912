"""The same program with Ostinato's Gluon spelling: compare with ``gluon_script_plain.py`` and with the original.

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

from torch import nn

from gluon_script_plain import BATCH_SIZE, CLIP, DECAY, DEVICES, EPOCHS, MOMENTUM, RATE, batches, network, show
from ostinato import gluon


def main() -> None:
    replicas = gluon.replicate(network(), DEVICES)
    trainer = gluon.Trainer(
        gluon.collect_params(replicas),
        "sgd",
        {"learning_rate": RATE, "momentum": MOMENTUM, "wd": DECAY, "clip_gradient": CLIP},
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
        trainer.save_states("trainer.states")
        trainer.load_states("trainer.states")
    print(show(replicas[0]))


if __name__ == "__main__":
    main()
