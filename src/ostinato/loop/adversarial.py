"""The two parts of adversarial training."""

from __future__ import annotations

from ostinato.loop.part import LossFunction, Part


def adversarial_parts(
    generator_loss: LossFunction,
    discriminator_loss: LossFunction,
    *,
    generator_first: bool = True,
    generator_start: int = 0,
    discriminator_start: int = 0,
) -> list[Part]:
    """A generator and a discriminator that learn from each other, for optimizers of these names.

    :param generator_loss: see :class:`~ostinato.loop.part.Part`.
    :param discriminator_loss: the same.
    :param generator_first: whether the generator's turn comes first in an update. Its output, shared with
        ``turn.detached``, then is the one that it made before it was stepped.
    :param generator_start: completed iterations before it is first trained.
    :param discriminator_start: the same.
    """
    generator = Part("generator", generator_loss, start=generator_start)
    discriminator = Part("discriminator", discriminator_loss, start=discriminator_start)
    return [generator, discriminator] if generator_first else [discriminator, generator]
