"""The pictures of a recognition run, and those that it is measured with."""

from __future__ import annotations

from typing import Literal

from ostinato.config.declaration import Options, option
from ostinato.config.recognition_model import SHAPE


class RecognitionDataOptions(Options):
    """How pictures are read and varied."""

    mirror: bool = option(
        True,
        group="augmentation",
        help="""Mirror every second picture, at random. A mirrored face is the same person, so it doubles what there is
        to learn from. Leave it on.""",
    )
    augmentation: Literal["none", "dali_aug"] = option(
        "none",
        group="augmentation",
        help="""Further random changes. none: none, as in most published runs. dali_aug: now and then blur, grey, shift
        of colours and coarser resolution, as published for the largest transformers. It makes a model surer with bad
        pictures and needs longer training.""",
    )
    balanced: bool = option(
        False,
        group="order",
        fixed=True,
        why_fixed="the order of the images follows from it",
        help="""Show each person equally often, however many pictures there are of them. It helps where some people have
        hundreds of pictures and others two. Leave it off for sets that are even: pictures of small classes would be
        learned by heart.""",
    )
    image_size: int = option(
        112,
        group="size",
        fixed=True,
        why_fixed=SHAPE,
        ge=112,
        le=112,
        help="""Width and height of the pictures that the network sees, in pixels. All networks here take 112; pictures
        of another size are brought to it.""",
    )
    workers: int = option(
        2,
        group="data loading",
        ge=0,
        le=64,
        help="""How many helpers of each process read and decode pictures; 0 leaves it to the training itself. It
        changes the speed, never what training sees. Raise it when the time for data is more than a little; do not set
        it above the number of processor cores.""",
    )
    max_bad_records: int = option(
        10,
        group="data loading",
        ge=0,
        le=10**9,
        help="""How many damaged pictures may be passed over before training stops; each is reported with its place. 0
        stops at the first. Raise it for a large set that you cannot repair, and look at what is reported.""",
    )


class RecognitionVerificationOptions(Options):
    """Measuring, while training, how well faces of unseen people are told apart."""

    targets: list[str] = option(
        [],
        group="verification",
        help="""Pair files, such as lfw, cfp_fp, agedb_30: names of .bin files that lie beside the training set, or
        paths of pair files anywhere. A name without a file is passed over, and said. Empty measures nothing.""",
    )
    every: int = option(
        2000,
        group="verification",
        ge=0,
        le=10**9,
        help="""How many updates lie between two measurements; 0 measures at the end alone. They take time: do not make
        it a large part of training.""",
    )
