"""Options of what the model is told to get right: the losses."""

from __future__ import annotations

from typing import Literal

from ostinato.config.declaration import Conflict, Options, option

MainLoss = Literal[
    "ssim",
    "ms_ssim",
    "mse",
    "mae",
    "logcosh",
    "smooth_loss",
    "l_inf_norm",
    "gmsd",
    "pixel_gradient_diff",
    "laploss",
    "ffl",
]
ExtraLoss = Literal[
    "none",
    "ssim",
    "ms_ssim",
    "mse",
    "mae",
    "logcosh",
    "smooth_loss",
    "l_inf_norm",
    "gmsd",
    "pixel_gradient_diff",
    "laploss",
    "ffl",
    "flip",
    "lpips_alex",
    "lpips_squeeze",
    "lpips_vgg16",
]

_KINDS = """ssim compares structure (edges and textures) the way an eye does. ms_ssim does so on five scales at once;
it suits outputs of 176 pixels and more, and takes none below 48. mse compares pixels and punishes large mistakes most;
mae treats all mistakes alike; logcosh and smooth_loss treat small mistakes as mse does and large ones as mae does.
l_inf_norm sees only the single worst pixel of each colour. gmsd and pixel_gradient_diff compare edges, and do not see
what colour plain areas have; the numbers of pixel_gradient_diff are a hundred times those of mse, so give it a small
weight. laploss compares details of several sizes, the finest most, and hardly sees whether the whole face is too
bright. ffl compares the frequencies in a face, such as the fine lines of hair, and looks most at those that are
furthest off."""

_COMPANIONS = """flip counts what a viewer would notice if the two pictures took each other's place. lpips_alex,
lpips_squeeze and lpips_vgg16 compare what a network that was trained to name objects sees in the faces; they need files
that you name in lpips_files, and outputs of 63, 49 and 48 pixels or more, and lpips_vgg16 makes training several times
slower. These four overlook grids and moire patterns, so they cannot be the first; 25 percent is plenty for an lpips
loss."""


def _extra_function(default: str, which: str) -> ExtraLoss:
    return option(
        default,
        group="loss",
        help=f"""The {which} loss, added to the first. The functions are those of loss_function, where they are
        explained, and four more: {_COMPANIONS} Its share is set by the weight of the same number. Choose none to go
        without. Do not add losses because they are there: each one makes training slower and pulls the others
        aside.""",
    )


def _extra_weight(default: int, which: str) -> int:
    return option(
        default,
        group="loss",
        ge=0,
        le=400,
        step=1,
        help=f"""How much the {which} loss counts beside the first, in percent: 100 is as much as the first, 50 half
        as much, 0 switches it off. Losses have different natural sizes, so look at the numbers that training shows
        before you decide. Do not change it in the middle of a run without a reason: the total loss jumps, and the
        best state so far is judged anew.""",
    )


class LossOptions(Options):
    """What counts as a mistake, and how much."""

    loss_function: MainLoss = option(
        "ssim",
        group="loss",
        help=f"""How a rebuilt face is compared with the real one. {_KINDS} ssim gives the most natural faces for most
        people. Do not use mse or mae alone unless you accept soft, blurred skin. Use gmsd, pixel_gradient_diff,
        laploss, ffl and l_inf_norm only beside another loss, since alone they leave colours or places wrong.""",
    )
    loss_function_2: ExtraLoss = _extra_function("mse", "second")
    loss_weight_2: int = _extra_weight(100, "second")
    loss_function_3: ExtraLoss = _extra_function("none", "third")
    loss_weight_3: int = _extra_weight(0, "third")
    loss_function_4: ExtraLoss = _extra_function("none", "fourth")
    loss_weight_4: int = _extra_weight(0, "fourth")
    lpips_files: list[str] = option(
        [],
        group="loss",
        expects="paths of files, with commas between them",
        help="""The files with the weights of the lpips losses, two for each: the trunk, which is a network trained to
        name objects, and the head, which says how much each of its channels matters. Put commas between the paths; the
        order and the names do not matter, since each file is recognised by what is in it. When one is missing, training
        does not start, and says how to get it. Leave it empty when no loss is called lpips. Keep the files where they
        are as long as you train, because the run does not hold a copy of them.""",
    )
    mask_loss_function: Literal["mse", "mae"] = option(
        "mse",
        group="loss",
        before="mse",
        help="""How a mask drawn by the model is compared with the real mask. It only matters when learn_mask is on.
        mse punishes large mistakes most; mae is more forgiving of single wrong pixels. There is rarely a reason to
        change it.""",
    )
    eye_multiplier: int = option(
        3,
        group="loss",
        ge=1,
        le=100,
        usual=(1, 40),
        step=1,
        help="""How many times as much a mistake in the eyes counts as a mistake elsewhere in the face. 1 is no extra
        weight. Eyes are small, and we look at them first, so a little more weight makes gaze and eyelids clearer. It
        needs penalized_mask_loss and faces with landmarks. Do not go high: large numbers make crisp eyes in a blurred
        face, and can upset training.""",
    )
    mouth_multiplier: int = option(
        2,
        group="loss",
        ge=1,
        le=100,
        usual=(1, 40),
        step=1,
        help="""How many times as much a mistake in the mouth counts as a mistake elsewhere in the face. 1 is no extra
        weight. Useful where somebody speaks. It needs penalized_mask_loss and faces with landmarks. Do not go high:
        large numbers draw sharp teeth in a blurred face, and can upset training.""",
    )
    penalized_mask_loss: bool = option(
        True,
        group="loss",
        fixed=True,
        why_fixed="the model has learned what to care about with it",
        help="""Look only at the face when mistakes are counted, and not at the background. The mask of mask_type says
        what is face. It gives a better face for the same time of training. Switch it off when the background and the
        hair in the crop should be learned as well, or when your faces have no masks and no landmarks.""",
    )

    def conflicts(self) -> list[Conflict]:
        """An lpips loss without its files."""
        if self.lpips_files:
            return []
        message = "needs the files of its weights; name its trunk and its head in lpips_files, or choose another loss"
        return [Conflict((path, "lpips_files"), f"{name} {message}") for path, name in self._lpips_losses()]

    def _lpips_losses(self) -> list[tuple[str, str]]:
        """The options that switch an lpips loss on, and its name."""
        return [
            (f"loss_function_{number}", getattr(self, f"loss_function_{number}"))
            for number in (2, 3, 4)
            if getattr(self, f"loss_function_{number}").startswith("lpips_")
            and getattr(self, f"loss_weight_{number}") > 0
        ]

    def idle(self) -> list[Conflict]:
        """Weights without a function, functions without a weight, multipliers without a mask, and files not needed."""
        remarks = []
        if self.lpips_files and not self._lpips_losses():
            remarks.append(Conflict(("lpips_files", "loss_function_2"), "no loss that counts is called lpips"))
        for number in (2, 3, 4):
            name, weight = f"loss_function_{number}", f"loss_weight_{number}"
            if getattr(self, name) != "none" and getattr(self, weight) == 0:
                remarks.append(Conflict((name, weight), f"{weight} is 0, which switches this loss off"))
            if getattr(self, name) == "none" and getattr(self, weight) != 0:
                remarks.append(Conflict((weight, name), f"{name} is none, so there is nothing to weigh"))
        if not self.penalized_mask_loss:
            for name in ("eye_multiplier", "mouth_multiplier"):
                if getattr(self, name) != 1:
                    remarks.append(
                        Conflict((name, "penalized_mask_loss"), "it needs penalized_mask_loss, which is off")
                    )
        return remarks
