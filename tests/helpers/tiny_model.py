"""A swap model of twenty thousand parameters, to be trained in place of the real ones, which have tens of millions.

It is made of the same blocks by the same options, so everything around it works as it does with the real ones; it is
only too small to learn anything.
"""

from __future__ import annotations

import torch

from ostinato.config import SwapOptions
from ostinato.swap.models import SwapModel
from ostinato.swap.models.blocks import Blocks
from ostinato.swap.models.initializers import initialize
from ostinato.swap.models.original import decoder
from ostinato.swap.models.sub_model import SubModel

SIZE = 64


def build_tiny_model(options: SwapOptions, sides: tuple[str, ...]) -> SwapModel:
    """What :func:`ostinato.swap.training.build_swap_model` builds, in small."""
    assert options.seed is not None
    blocks = Blocks(reflect_padding=options.network.reflect_padding)
    narrow = 6 if options.model.name == "lightweight" else 8
    encoder = blocks.halvings((3, 4, 8, 8, narrow))
    encoder += blocks.flatten()
    encoder += blocks.dense(4 * 4 * narrow, 8)
    encoder += blocks.dense(8, 4 * 4 * 8)
    encoder += blocks.reshape(8, 4)
    encoder += blocks.upscale(8, 8)
    learn_mask = options.mask.learn_mask
    model = SwapModel(
        options.model.name,
        SubModel([encoder]),
        {side: decoder(blocks, side, (8, 8, 4, 4), learn_mask=learn_mask) for side in sides},
        input_size=SIZE,
        output_sizes=(SIZE,),
        learn_mask=learn_mask,
    )
    generator = torch.Generator().manual_seed(options.seed)
    initialize(model, generator, icnr_init=False, conv_aware_init=False)
    return model


PLACES = (
    "ostinato.swap.training.build_swap_model",
    "ostinato.swap.trained_model.build_swap_model",
    "ostinato.cli.swap_train.build_swap_model",
)
"""Where the name of the real function has to be replaced."""
