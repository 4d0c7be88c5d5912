"""The two networks of ``gan_plain.py`` with Ostinato: parts that take turns, declared and not programmed.

Both programs end with the same line. This one can be killed and started again. ``python examples/gan.py [FOLDER]``
"""

from __future__ import annotations

import sys

import torch

from gan_plain import EPOCHS, WAIT, faked, make, real, summary
from ostinato.extensions import Snapshot
from ostinato.loop import Part, PartsUpdater, Trainer


def main(folder: str) -> None:
    generator, discriminator, of_generator, of_discriminator, loader = make()

    def draw(batch, turn):  # computed once in an update, for both parts
        return generator(torch.randn(len(batch[0]), 4))

    def discriminator_loss(batch, turn):
        return real(discriminator(batch[0])) + faked(discriminator(turn.detached("drawn")))

    def generator_loss(batch, turn):
        return real(discriminator(turn["drawn"]))

    updater = PartsUpdater(
        {"generator": generator, "discriminator": discriminator},
        {"generator": of_generator, "discriminator": of_discriminator},
        loader,
        [Part("discriminator", discriminator_loss), Part("generator", generator_loss, start=WAIT)],
        shared={"drawn": draw},
    )
    trainer = Trainer(updater, (EPOCHS, "epoch"), folder)
    trainer.extend(lambda t: print(f"epoch {t.updater.state.epoch}  {summary(generator)}"), "tell", (1, "epoch"))
    trainer.extend(Snapshot())
    trainer.run()
    print(summary(generator))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "gan_run")
