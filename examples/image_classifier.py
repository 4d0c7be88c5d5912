"""The image classifier of ``image_classifier_plain.py`` with Ostinato: kill it and start it again, it goes on.

The model and the data are those of the plain program, and so is the last line. What the loops did is a list now: what
happens, and when. ``python examples/image_classifier.py [FOLDER]``
"""

from __future__ import annotations

import sys

import torch

from image_classifier_plain import EPOCHS, make
from ostinato.extensions import LogReport, PrintReport, Snapshot, StandardEvaluator
from ostinato.loop import StandardUpdater, Trainer, report


class Classification(StandardUpdater):
    """An update is what it always is; this says what the loss of a batch is."""

    def compute_losses(self, batch):
        images, classes = batch
        return {"main": torch.nn.functional.cross_entropy(self.models["main"](images), classes)}


def main(folder: str) -> None:
    model, optimizer, training, test = make()

    def accuracy(batch):
        images, classes = batch
        report("accuracy", (model(images).argmax(1) == classes).float().mean())

    trainer = Trainer(Classification(model, optimizer, training), (EPOCHS, "epoch"), folder)
    trainer.extend(StandardEvaluator(model, test, accuracy))
    trainer.extend(LogReport(["main", "accuracy"]))
    trainer.extend(PrintReport(["epoch", "main", "accuracy"]))
    trainer.extend(Snapshot(save_last=False))
    trainer.run()

    accuracy_now = StandardEvaluator(model, test, accuracy)()["accuracy"]
    print(f"accuracy {accuracy_now:.3f}, sum of all weights {sum(p.double().sum() for p in model.parameters()):.12f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "image_classifier_run")
