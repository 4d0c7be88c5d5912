"""All options of a recognition run."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Literal

from pydantic import Field

from ostinato.config.declaration import Conflict, Options, option

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

_SHAPE = "it decides the shape of the model"
_ORDER = "the order of the images follows from it"
_CENTRES = "the class centres were trained with it"
_MILESTONE = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


class RecognitionModelOptions(Options):
    """The network that turns a face into numbers."""

    backbone: Backbone = option(
        "r50",
        group="model",
        fixed=True,
        why_fixed=_SHAPE,
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
        why_fixed=_SHAPE,
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


class RecognitionHeadOptions(Options):
    """The classification that the network is trained with: margins, and how the class centres are kept."""

    scale: float = option(
        64.0,
        group="margin",
        gt=0.0,
        le=1000.0,
        usual=(8.0, 64.0),
        help="""By how much the similarities are multiplied before the classes compete. 64 is right for large sets. For
        a few hundred people or fewer take 16 with a margin of 0.2: with 64 training stays behind for long.""",
    )
    m1: float = option(
        1.0,
        group="margin",
        gt=0.0,
        le=4.0,
        help="""A factor on the angle between a face and its class (SphereFace). Leave it at 1 unless you compare with
        a model that has it.""",
    )
    m2: float = option(
        0.5,
        group="margin",
        ge=0.0,
        le=1.5,
        help="""An angle in radians that is added between a face and its class (ArcFace), so that training demands more
        than it has to. 0.5 is the published value; 0.2 suits small sets. For CosFace set it to 0, and m3 to 0.4.""",
    )
    m3: float = option(
        0.0,
        group="margin",
        ge=-1.0,
        le=1.0,
        help="""What is taken off the similarity of a face to its class (CosFace): 0.4 is the published value, with m2
        at 0. It can be used together with the others.""",
    )
    interclass_threshold: float = option(
        0.0,
        group="margin",
        ge=0.0,
        lt=1.0,
        help="""Other classes whose similarity is above this do not count, because with dirty data they are probably
        the same person under another name. 0 switches it off; 0.4 was published for sets with many wrong labels. Do not
        use it on clean data.""",
    )
    gradient: Literal["exact", "straight_through"] = option(
        "exact",
        group="margin",
        help="""How the angle margin passes changes back. exact is the true derivative, with which the published ArcFace
        results were made. straight_through is what InsightFace's training does since December 2022. They do not differ
        for CosFace. Change it only to repeat a run of that program.""",
    )
    wrap: Literal["none", "easy", "linear"] = option(
        "linear",
        group="margin",
        help="""What happens with an angle that the margin would push beyond a half turn. linear goes on downhill, as in
        the published results. none lets the similarity rise again. easy gives faces no margin that are further away
        than a right angle. Leave it alone unless you compare.""",
    )
    sampling_rate: float = option(
        1.0,
        group="classes",
        ge=0.0,
        le=1.0,
        help="""The share of the classes that takes part in each update. The classes of the batch always do; the rest is
        drawn at random. 1 is best for up to about a million people; 0.1 to 0.3 costs far less memory and time with more
        of them and is hardly worse. 0 takes the classes of the batch alone. Below some thousand people it changes
        little.""",
    )
    sub_centres: int = option(
        1,
        group="classes",
        fixed=True,
        why_fixed=_SHAPE,
        ge=1,
        le=16,
        help="""How many centres each person has. 3 lets wrong pictures gather at a centre of their own, where they can
        be found and thrown out; that is for cleaning a set, and the clean set is then trained with 1. It needs so many
        times the memory.""",
    )
    update: Literal["frozen", "dense_lazy"] = option(
        "frozen",
        group="classes",
        fixed=True,
        why_fixed=_CENTRES,
        help="""What happens to classes that take no part in an update. frozen: nothing, as in the published results
        before July 2022. dense_lazy: what a common optimizer would do to them (they coast and decay), computed when
        they are next needed; it equals InsightFace's training since then. With sampling_rate 1 they are the same.""",
    )


class RecognitionOptimizerOptions(Options):
    """How the network's and the class centres' numbers are moved after each batch."""

    optimizer: Literal["sgd", "adamw"] = option(
        "sgd",
        group="optimizer",
        fixed=True,
        why_fixed="what is kept of the updates so far belongs to it",
        help="""The method that turns mistakes into changes. sgd, with momentum, is right for all networks but the vit
        ones, which want adamw.""",
    )
    learning_rate: float = option(
        0.1,
        group="optimizer",
        gt=0.0,
        le=100.0,
        usual=(1e-4, 1.0),
        help="""How large a step each update makes, for a whole batch of linear_scaling_batch images where
        linear_scaling is on, and as it is where it is off. 0.1 is right for sgd, 0.001 for adamw. Too large and the
        loss jumps or becomes not-a-number.""",
    )
    linear_scaling: bool = option(
        False,
        group="optimizer",
        help="""Change the learning rate in proportion to the batch: half of it for half as many images in an update.
        Presets switch it on, so that they can be run with a smaller batch than the published one. Leave it off if you
        give a rate that is meant for your batch.""",
    )
    linear_scaling_batch: int = option(
        1024,
        group="optimizer",
        ge=1,
        le=10_000_000,
        help="""The number of images in an update, of all processes together and with accumulation, for which
        learning_rate is meant. It acts with linear_scaling only. 1024 goes with a rate of 0.1.""",
    )
    momentum: float = option(
        0.9,
        group="optimizer",
        ge=0.0,
        lt=1.0,
        help="""How much of its direction sgd keeps from update to update. 0.9 averages over about ten of them. Leave it
        alone unless you know the method. It does nothing with adamw.""",
    )
    weight_decay: float = option(
        5e-4,
        group="optimizer",
        ge=0.0,
        le=10.0,
        help="""Pull all numbers a little towards zero with every update. 0.0005 is right for sgd, 0.0001 for the small
        mbf on large sets, 0.1 for adamw.""",
    )
    schedule: Literal["polynomial", "multistep", "constant"] = option(
        "polynomial",
        group="schedule",
        help="""How the learning rate falls. polynomial: from its full value to 0 at the end of the run, along a
        straight line if power is 1. multistep: at the milestones, to a tenth each time. constant: not at all. Take
        polynomial; with it, the length of the run has to be right from the beginning.""",
    )
    warmup_epochs: float = option(
        0.0,
        group="schedule",
        ge=0.0,
        le=1000.0,
        help="""For how many passes the rate rises from nearly nothing to its full value at the beginning. A long run
        with a large batch starts more steadily with 1 to 4; small batches need none.""",
    )
    warmup_starts_full: bool = option(
        False,
        group="schedule",
        help="""Let the very first update of a warm-up use the full rate, and each later one that of the update before
        it, as InsightFace's training does. It is of use only to repeat such a run exactly.""",
    )
    power: float = option(
        1.0,
        group="schedule",
        gt=0.0,
        le=10.0,
        help="""The shape of the polynomial schedule: 1 is a straight line, 2 falls faster at first and slower at the
        end. Published runs use 1.""",
    )
    milestones: list[str] = option(
        [],
        group="schedule",
        help="""When the rate of the multistep schedule falls: a list of passes, such as 8, 14, 18, or of updates if
        milestone_unit says so. They have to rise.""",
    )
    milestone_unit: Literal["epoch", "iteration"] = option(
        "epoch",
        group="schedule",
        help="""What the milestones count: passes over the data, or updates.""",
    )
    milestone_factor: float = option(
        0.1,
        group="schedule",
        gt=0.0,
        le=1.0,
        help="""What the rate is multiplied by at each milestone. 0.1 is the usual one.""",
    )
    gradient_clipping: float = option(
        5.0,
        group="clipping",
        ge=0.0,
        le=1e9,
        help="""The longest change, over all numbers of the network together, that one update may ask for; the class
        centres are not limited. 5 is the published value. 0 switches it off.""",
    )
    accumulation: int = option(
        1,
        group="updates",
        ge=1,
        le=10_000,
        help="""Average the changes of this many batches before the network is changed once. It acts like a larger batch
        without needing its memory, and each update takes as many times longer. Leave it at 1 if the batch you want fits
        into memory.""",
    )

    def conflicts(self) -> list[Conflict]:
        """Milestones that are no numbers, do not rise, or are missing."""
        if self.schedule != "multistep":
            return []
        numbers = [float(text) for text in self.milestones if _MILESTONE.fullmatch(text)]
        message = ""
        if not self.milestones:
            message = (
                "the schedule multistep has no milestones, so the rate would never fall; name them, such as "
                "optimizer.milestones=8,14,18, or take the schedule constant"
            )
        elif len(numbers) < len(self.milestones):
            wrong = next(text for text in self.milestones if not _MILESTONE.fullmatch(text))
            message = f"the milestone {wrong} is no number; write passes or updates, such as 8, 14, 18"
        elif numbers[0] <= 0 or any(late <= early for early, late in pairwise(numbers)):
            message = f"the milestones {', '.join(self.milestones)} do not rise from above 0; sort them, each once"
        elif self.milestone_unit == "iteration" and any(number != math.floor(number) for number in numbers):
            message = f"the milestones {', '.join(self.milestones)} are not whole numbers, and updates are counted"
        return [Conflict(("milestones", "schedule"), message)] if message else []

    def idle(self) -> list[Conflict]:
        """Settings of a schedule or an optimizer that is not in use."""
        remarks = []
        if self.schedule != "multistep" and self.milestones:
            remarks.append(Conflict(("milestones", "schedule"), f"schedule is {self.schedule}"))
        if self.schedule != "polynomial" and self.power != 1.0:
            remarks.append(Conflict(("power", "schedule"), f"schedule is {self.schedule}"))
        if self.warmup_starts_full and self.warmup_epochs == 0:
            remarks.append(Conflict(("warmup_starts_full", "warmup_epochs"), "warmup_epochs is 0"))
        if self.optimizer == "adamw" and self.momentum != 0.9:
            remarks.append(Conflict(("momentum", "optimizer"), "optimizer is adamw"))
        if not self.linear_scaling and self.linear_scaling_batch != 1024:
            remarks.append(Conflict(("linear_scaling_batch", "linear_scaling"), "linear_scaling is false"))
        return remarks


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
        why_fixed=_ORDER,
        help="""Show each person equally often, however many pictures there are of them. It helps where some people have
        hundreds of pictures and others two. Leave it off for sets that are even: pictures of small classes would be
        learned by heart.""",
    )
    image_size: int = option(
        112,
        group="size",
        fixed=True,
        why_fixed=_SHAPE,
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


class RecognitionOptions(Options):
    """The options of training a model that recognises faces."""

    seed: int | None = option(
        None,
        group="run",
        fixed=True,
        why_fixed="the order of the images and all chance in the run follow from it",
        ge=0,
        le=2**63 - 1,
        help="""The number that all chance in the run grows from. Leave it at null: a number is then drawn, shown and
        kept. Give one only to repeat a run.""",
    )
    batch_size: int = option(
        128,
        group="run",
        ge=2,
        le=10_000_000,
        usual=(8, 65536),
        help="""How many images are looked at together, over all processes: 8 processes and 1024 make 128 each. So a run
        means the same with any number of processes. Larger is faster and needs more memory; the learning rate has to go
        with it. -b is short for it.""",
    )
    epochs: float = option(
        20.0,
        group="run",
        gt=0.0,
        le=1_000_000.0,
        help="""How long the run is, in passes over the data. The schedule of the learning rate is laid over this
        length, so changing it in the middle of a run changes the rate at once. -e is short for it.""",
    )
    iterations: int = option(
        0,
        group="run",
        ge=0,
        le=10**12,
        help="""How long the run is, in updates, all sessions together; it wins over epochs. 0 counts in epochs. -i is
        short for it.""",
    )
    model: RecognitionModelOptions = Field(default_factory=RecognitionModelOptions)
    head: RecognitionHeadOptions = Field(default_factory=RecognitionHeadOptions)
    optimizer: RecognitionOptimizerOptions = Field(default_factory=RecognitionOptimizerOptions)
    data: RecognitionDataOptions = Field(default_factory=RecognitionDataOptions)
    verification: RecognitionVerificationOptions = Field(default_factory=RecognitionVerificationOptions)

    def conflicts(self) -> list[Conflict]:
        """What the sections say of themselves, and ways of updating that do not go together."""
        found = super().conflicts()
        if self.head.update == "dense_lazy" and self.optimizer.optimizer != "sgd":
            message = (
                f"head.update dense_lazy can be computed for sgd alone, and optimizer.optimizer is "
                f"{self.optimizer.optimizer}; set head.update to frozen"
            )
            found.append(Conflict(("head.update", "optimizer.optimizer"), message))
        return found

    def idle(self) -> list[Conflict]:
        """What the sections say of themselves, and what the kind of network leaves without effect."""
        remarks = super().idle()
        if self.model.dropout and not self.model.backbone.startswith("r"):
            remarks.append(Conflict(("model.dropout", "model.backbone"), f"the network {self.model.backbone} has none"))
        if self.iterations and self.epochs != 20.0:
            remarks.append(Conflict(("epochs", "iterations"), "iterations is given"))
        return remarks
