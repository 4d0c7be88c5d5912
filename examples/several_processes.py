"""The data-parallel training of ``several_processes_plain.py`` with Ostinato.

``torchrun --nproc-per-node 2 several_processes.py [FOLDER]``. Alone, without torchrun, it trains in one process; the
program does not ask. When one process fails, the others end too and say which one it was; a run that was saved by two
processes goes on with any number.
"""

from __future__ import annotations

import sys

import torch
from torch.nn.parallel import DistributedDataParallel

from ostinato.dist import open_group
from ostinato.extensions import LogReport, PrintReport, Snapshot, StandardEvaluator
from ostinato.loop import StandardUpdater, Trainer
from several_processes_plain import EPOCHS, error, make


class Regression(StandardUpdater):
    def compute_losses(self, batch):
        x, y = batch
        return {"main": torch.nn.functional.mse_loss(self.models["main"](x), y)}


def main(folder: str) -> None:
    with open_group() as group:
        model, optimizer, loader, unseen = make(group.rank, group.size)
        parallel = DistributedDataParallel(model) if group.size > 1 else model

        trainer = Trainer(Regression(parallel, optimizer, loader), (EPOCHS, "epoch"), folder, group=group)
        # Each rank evaluates its part of the batches, and all of them report the same mean.
        trainer.extend(StandardEvaluator(model, unseen.split(50), lambda points: {"unseen": error(model, points)}))
        trainer.extend(LogReport(["main", "unseen"]))
        trainer.extend(PrintReport(["epoch", "main", "unseen"]))
        trainer.extend(Snapshot())
        trainer.run()

        if group.rank == 0:
            with torch.no_grad():
                weights = sum(p.double().sum() for p in model.parameters())
                print(f"error {error(model, unseen):.10f}, weights {weights:.12f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "several_processes_run")
