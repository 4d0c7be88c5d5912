"""The optimizer of a recognition run, and the schedule of its learning rate."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Literal

from ostinato.config.declaration import Conflict, Options, option

_MILESTONE = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


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
