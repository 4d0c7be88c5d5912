"""The network of a recognition run."""

from __future__ import annotations

from typing import Literal

from ostinato.config.declaration import Options, option

Backbone = Literal[
    "r18",
    "r34",
    "r50",
    "r100",
    "r200",
    "r2060",
    "mbf",
    "mbf_large",
    "vit_t",
    "vit_t_dp005_mask0",
    "vit_s",
    "vit_s_dp005_mask_0",
    "vit_b",
    "vit_b_dp005_mask_005",
    "vit_l_dp005_mask_005",
    "vit_h",
]

SHAPE = "it decides the shape of the model"
"""Why an option is fixed."""


class RecognitionModelOptions(Options):
    """The network that turns a face into numbers."""

    backbone: Backbone = option(
        "r50",
        group="model",
        fixed=True,
        why_fixed=SHAPE,
        replaceable=False,
        help="""The network. mbf is small and fast, and the one to take without a graphics card. r18, r34, r50, r100,
        r200 are the usual ones, each larger, slower and better than the one before; r50 is a good first choice on a
        graphics card. The vit ones are transformers: they want very large sets of faces and the optimizer adamw. Do not
        take a large one for a small set of faces: it learns them by heart.""",
    )
    embedding_size: int = option(
        512,
        group="model",
        fixed=True,
        why_fixed=SHAPE,
        ge=8,
        le=4096,
        usual=(16, 1024),
        help="""How many numbers describe a face. 512 is what everybody uses, and published weights have. Fewer make
        comparing faces cheaper and a little less sure. Do not raise it for better results; it hardly gives any.""",
    )
    dropout: float = option(
        0.0,
        group="model",
        ge=0.0,
        lt=1.0,
        help="""The share of the last features that is left out at random while training, which keeps a model from
        learning few faces by heart. Published models use 0. Try 0.4 for a small set with a large network. The networks
        mbf and vit do not have it.""",
    )
    mixed_precision: Literal["no", "bf16", "fp16"] = option(
        "no",
        group="model",
        help="""Compute the network with numbers of half the size where that is safe. On graphics cards with tensor
        cores it is about twice as fast and needs less memory. bf16 is the safer kind; take fp16 on cards that do not
        have it. The classification is computed in full precision either way. Leave it at no on a processor.""",
    )
    checkpointing: bool | None = option(
        None,
        group="model",
        help="""Compute the inside of the network again when it is needed, instead of keeping it: far less memory for
        about a third more time. null takes what was published for the network. Switch it on when a batch does not fit
        into memory; do not use it when it does.""",
    )
    batch_norm: Literal["averaged", "synchronised"] = option(
        "averaged",
        group="model",
        help="""What the normalising layers do when several processes train. averaged: each looks at its own part of a
        batch, and what they remember of it is averaged in every update, so that all save the same. synchronised: all
        look at the whole batch, which is slower; take it when the part of one process is small, below about 16 images.
        With one process there is no difference.""",
    )
    channels_last: bool = option(
        False,
        group="model",
        help="""Keep pictures in memory with their colours side by side. Graphics cards with tensor cores are often
        faster with it, together with mixed precision. It never changes the meaning of a result, only the last digits.
        Try it and look at the speed; leave it off on a processor.""",
    )
    compile: bool = option(
        False,
        group="model",
        help="""Let torch translate the network for this machine, which takes minutes at the start and can save a fifth
        of the time afterwards. It needs a compiler on the machine. Leave it off for short runs and while trying things
        out.""",
    )
