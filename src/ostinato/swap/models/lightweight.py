"""The model ``lightweight``: 64 pixels in, 64 pixels out, with a smaller encoder and larger decoders."""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.swap.models.blocks import Blocks
from ostinato.swap.models.original import decoder
from ostinato.swap.models.sub_model import SubModel
from ostinato.swap.models.swap_model import SwapModel

SIZE = 64


def build_lightweight(
    blocks: Blocks, sides: Sequence[str], *, learn_mask: bool = False, color_order: str = "rgb"
) -> SwapModel:
    """Lay the layers of ``lightweight``; weights are not filled in.

    With two sides it has 51,066,374 parameters, 204 MB in float32.
    """
    encoder = blocks.halvings((3, 128, 256, 512))
    encoder += blocks.flatten()
    encoder += blocks.dense(8 * 8 * 512, 512)
    encoder += blocks.dense(512, 4 * 4 * 512)
    encoder += blocks.reshape(512, 4)
    encoder += blocks.upscale(512, 256)
    return SwapModel(
        "lightweight",
        SubModel([encoder]),
        {side: decoder(blocks, side, (256, 512, 256, 128), learn_mask=learn_mask) for side in sides},
        input_size=SIZE,
        output_sizes=(SIZE,),
        learn_mask=learn_mask,
        color_order=color_order,
    )
