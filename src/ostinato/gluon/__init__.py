"""The spelling of MXNet's Gluon over :mod:`ostinato.kvstore`, to port training scripts line by line.

::

    replicas = replicate(net, devices)                       # net.initialize(ctx=devices)
    trainer = gluon.Trainer(gluon.collect_params(replicas), "sgd", {"learning_rate": 0.1}, kvstore="device")
    for data, label in batches:
        xs, ys = gluon.utils.split_and_load(data, devices), gluon.utils.split_and_load(label, devices)
        losses = [loss_function(replica(x), y) for replica, x, y in zip(replicas, xs, ys)]
        for loss in losses:
            loss.backward()
        trainer.step(len(data))

New programs use :class:`ostinato.kvstore.ParameterTrainer`.
"""

from ostinato.gluon import batches as utils
from ostinato.gluon.batches import clip_global_norm, split_and_load, split_data
from ostinato.gluon.collecting import collect_params
from ostinato.gluon.trainer import Trainer
from ostinato.kvstore import replicate

__all__ = ["Trainer", "clip_global_norm", "collect_params", "replicate", "split_and_load", "split_data", "utils"]
