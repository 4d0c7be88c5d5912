"""The model ``original``: 64 pixels in, 64 pixels out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ostinato.swap.models.blocks import Blocks, NamedLayers
from ostinato.swap.models.sub_model import SubModel
from ostinato.swap.models.swap_model import SwapModel

SIZE = 64


def build_original(
    blocks: Blocks, sides: Sequence[str], *, lowmem: bool = False, learn_mask: bool = False, color_order: str = "rgb"
) -> SwapModel:
    """Lay the layers of ``original``; weights are not filled in.

    With two sides it has 82,062,470 parameters, 328 MB in float32; with ``lowmem``, which leaves the widest convolution
    out and halves the narrowest dense layer, 60,565,126.
    """
    widths = (3, 128, 256, 512) if lowmem else (3, 128, 256, 512, 1024)
    encoder = blocks.halvings(widths)
    narrowest = SIZE >> (len(widths) - 1)
    bottleneck = 512 if lowmem else 1024
    encoder += blocks.flatten()
    encoder += blocks.dense(narrowest * narrowest * widths[-1], bottleneck)
    encoder += blocks.dense(bottleneck, 4 * 4 * 1024)
    encoder += blocks.reshape(1024, 4)
    encoder += blocks.upscale(1024, 512)
    return SwapModel(
        "original",
        SubModel([encoder]),
        {side: decoder(blocks, side, (512, 256, 128, 64), learn_mask=learn_mask) for side in sides},
        input_size=SIZE,
        output_sizes=(SIZE,),
        learn_mask=learn_mask,
        color_order=color_order,
    )


def decoder(blocks: Blocks, side: str, widths: Sequence[int], *, learn_mask: bool) -> SubModel:
    """The decoder of one side: upscales from ``widths[0]`` channels on, then a face; beside it the same for a mask."""
    branches = []
    for key, filters in (("face_out", 3), ("mask_out", 1))[: 2 if learn_mask else 1]:
        branch: NamedLayers = []
        for inputs, outputs in pairwise(widths):
            branch += blocks.upscale(inputs, outputs)
        branch += blocks.output(widths[-1], filters, f"{key}_{side}")
        branches.append(branch)
    return SubModel(branches)
