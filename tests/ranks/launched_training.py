"""A training that is started by ``ostinato launch``: saves after every step, and goes on from there.

    launched_training.py STORE FOLDER STEPS DIES_AFTER

In its first life, rank 1 kills itself after so many steps.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

from ostinato.dist import open_group
from ostinato.kvstore import ParameterTrainer


def main() -> None:
    store, folder, steps, dies_after = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    first_life = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    with open_group(backend="gloo") as group:
        weight = torch.nn.Parameter(torch.zeros(3))
        trainer = ParameterTrainer({"w": weight}, "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore=store)
        done, weights, states = 0, folder / "weights.pt", folder / "states"
        if weights.exists():
            saved = torch.load(weights, weights_only=True)
            done = saved["done"]
            with torch.no_grad():
                weight.copy_(saved["w"])
            trainer.load_states(states)
        for step in range(done, steps):
            trainer.zero_grad()
            (weight * (group.rank + 1 + step)).sum().backward()
            trainer.step(1)
            group.barrier()
            trainer.save_states(states.with_suffix(".new"))
            if group.rank == 0:
                torch.save({"w": weight.detach(), "done": step + 1}, weights.with_suffix(".new"))
                states.with_suffix(".new").rename(states)
                weights.with_suffix(".new").rename(weights)
            group.barrier()
            if first_life and group.rank == 1 and step + 1 == dies_after:
                os.kill(os.getpid(), signal.SIGKILL)
        print(f"rank {group.rank} of {group.size} went on from {done}: {weight.tolist()}", flush=True)
        assert trainer.kvstore is not None
        trainer.kvstore.close()


if __name__ == "__main__":
    main()
