"""Options of what the model is told to get right: the losses."""

from __future__ import annotations

from typing import Literal

from ostinato.config.declaration import Conflict, Options, option

MainLoss = Literal["ssim", "mse", "mae"]
ExtraLoss = Literal["none", "ssim", "mse", "mae"]

_NOT_BUILT = ("ffl", "gmsd", "l_inf_norm", "laploss", "logcosh", "ms_ssim", "pixel_gradient_diff", "smooth_loss")
_NOT_BUILT_EXTRA = (*_NOT_BUILT, "flip", "lpips_alex", "lpips_squeeze", "lpips_vgg16")

_KINDS = """ssim compares structure (edges and textures) the way an eye does; mse compares pixels and punishes large
mistakes most; mae compares pixels and treats all mistakes alike."""


def _extra_function(default: str, which: str) -> ExtraLoss:
    return option(
        default,
        group="loss",
        not_built=_NOT_BUILT_EXTRA,
        help=f"""The {which} loss, added to the first. {_KINDS} Its share is set by the weight of the same number.
        Choose none to go without. Do not add losses because they are there: each one makes training slower and pulls
        the others aside.""",
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
        not_built=_NOT_BUILT,
        help=f"""How a rebuilt face is compared with the real one. {_KINDS} ssim gives the most natural faces for most
        people. Do not use mse or mae alone unless you accept soft, blurred skin.""",
    )
    loss_function_2: ExtraLoss = _extra_function("mse", "second")
    loss_weight_2: int = _extra_weight(100, "second")
    loss_function_3: ExtraLoss = _extra_function("none", "third")
    loss_weight_3: int = _extra_weight(0, "third")
    loss_function_4: ExtraLoss = _extra_function("none", "fourth")
    loss_weight_4: int = _extra_weight(0, "fourth")
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

    def idle(self) -> list[Conflict]:
        """Weights without a function, functions without a weight, and multipliers without a mask."""
        remarks = []
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
