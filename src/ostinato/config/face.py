"""Options of what the model sees of a face: the crop and the mask."""

from __future__ import annotations

from typing import Literal

from ostinato.config.declaration import Options, option

_SEES = "it decides what the model has learned to see"


class FaceOptions(Options):
    """Which part of an extracted picture the model is shown."""

    centering: Literal["face", "head", "legacy"] = option(
        "face",
        group="face",
        fixed=True,
        why_fixed=_SEES,
        before="legacy",
        help="""Which point the crop is centred on. face: the middle of the face, for almost every swap. head: the
        middle of the skull, for swaps that include the hair; it needs pictures extracted with room around the head,
        and leaves fewer pixels for the face. legacy: the tip of the nose, without looking at the direction of the
        head; only for going on with a very old model. Do not choose head just to be safe: what is not swapped costs
        detail.""",
    )
    coverage: float = option(
        100.0,
        group="face",
        fixed=True,
        why_fixed=_SEES,
        before=62.5,
        ge=62.5,
        le=100.0,
        help="""How much of the extracted picture the model is shown, in percent of its side. At 62.5 the crop holds
        brows, eyes, nose and mouth and little around them; each step up adds cheeks, temples and ears, until at 100
        nothing is cut away. More lets the swap reach further out; less gives the inner face more pixels. Do not go
        below 75 without a reason: the edge of the swap then lies within the face and shows.""",
    )
    vertical_offset: int = option(
        0,
        group="face",
        fixed=True,
        why_fixed=_SEES,
        ge=-25,
        le=25,
        step=1,
        help="""Move the face up or down within the crop, in percent of the face from brows to lips: with face
        centering, 10 moves it by 5 percent of the height of the crop. Negative numbers move the face up and show more
        chin; positive numbers move it down and show more forehead. Leave it at 0 unless previews show that chin or
        forehead is cut off.""",
    )


class MaskOptions(Options):
    """What counts as face within the crop."""

    mask_type: Literal[
        "none",
        "components",
        "extended",
        "bisenet-fp_face",
        "bisenet-fp_head",
        "custom_face",
        "custom_head",
        "unet-dfl",
        "vgg-clear",
        "vgg-obstructed",
    ] = option(
        "extended",
        group="mask",
        fixed=True,
        why_fixed="the model has learned with this outline of the face",
        help="""Where the outline of the face comes from. components: drawn from the landmarks, up to the eyebrows.
        extended: the same, stretched over part of the forehead. The others must have been stored in the face pictures
        by the extraction: bisenet-fp, unet-dfl, vgg-clear, vgg-obstructed (which avoids hands and glasses), or
        custom; those ending in _head belong to head centering. none: no mask. Do not choose a stored mask before you
        know that every picture has it, and do not choose none together with learn_mask or penalized_mask_loss.""",
    )
    mask_dilation: float = option(
        0.0,
        group="mask",
        ge=-5.0,
        le=5.0,
        help="""Grow (above 0) or shrink (below 0) the mask, in percent of its size. A little growth makes sure that
        the edge of the face is learned. Leave it at 0 if the mask already fits; a large shrink cuts off jaw and
        brows.""",
    )
    mask_blur_kernel: int = option(
        3,
        group="mask",
        ge=0,
        le=9,
        step=1,
        help="""Soften the edge of the mask, in pixels of a mask of 128 pixels. Even numbers are rounded up to the
        next odd one; 0 is off. A soft edge avoids a visible ring around the face. Do not use large numbers for small
        models: the mask then fades into the face itself.""",
    )
    mask_threshold: int = option(
        4,
        group="mask",
        ge=0,
        le=50,
        step=1,
        help="""Make almost white pixels of a stored mask white and almost black ones black; the number is how near,
        in percent. 0 is off. It cleans up masks that a network has drawn. Masks drawn from landmarks have nothing to
        clean. Do not use large numbers: they undo the soft edge.""",
    )
    learn_mask: bool = option(
        False,
        group="mask",
        fixed=True,
        why_fixed="the model was built with or without an output for the mask",
        help="""Teach the model to draw a mask of the face as well, which can be used when converting. It makes the
        model larger and training slower. Leave it off if the masks stored in the pictures are good enough, which is
        mostly so.""",
    )
