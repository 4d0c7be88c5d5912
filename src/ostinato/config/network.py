"""Options of the model itself: which one, how it is built and started, and how it computes."""

from __future__ import annotations

from typing import Literal

from ostinato.config.declaration import Conflict, Options, option

_NEW = "it acts while a model is built"
_SHAPE = "it decides the shape of the model"


class ModelOptions(Options):
    """Which model is trained."""

    name: Literal["original", "lightweight"] = option(
        "original",
        group="model",
        fixed=True,
        why_fixed=_SHAPE,
        replaceable=False,
        not_built=(
            "dfaker",
            "dfl_h128",
            "dfl_sae",
            "dlight",
            "iae",
            "phaze_a",
            "realface",
            "unbalanced",
            "villain",
        ),
        help="""The model to train. original: the classic of face swapping, 64 by 64 pixels, a good first choice.
        lightweight: the same idea with fewer numbers inside, for computers with little memory or no graphics card; it
        learns less detail. Do not choose lightweight if original fits.""",
    )
    lowmem: bool = option(
        False,
        group="model",
        fixed=True,
        why_fixed=_SHAPE,
        help="""Build the model original with one layer fewer and half the width in the middle, so that it needs less
        memory. The result has less detail. Use it only after a smaller batch did not help. Other models do not have
        it.""",
    )

    def conflicts(self) -> list[Conflict]:
        """``lowmem`` belongs to one model."""
        if self.lowmem and self.name != "original":
            message = f"the model {self.name} has no low-memory form; set lowmem to false, or train the model original"
            return [Conflict(("lowmem", "name"), message)]
        return []


class InitializationOptions(Options):
    """The numbers a new model starts from."""

    icnr_init: bool = option(
        False,
        group="initialization",
        fixed=True,
        why_fixed=_NEW,
        help="""Start the layers that enlarge the picture so that neighbouring pixels begin alike, which avoids a
        chequered pattern early in training. It only acts on a new model. Leave it off if you compare with runs made
        without it.""",
    )
    conv_aware_init: bool = option(
        False,
        group="initialization",
        fixed=True,
        why_fixed=_NEW,
        help="""Start the convolutions with filters that are as different from each other as possible. Training may
        get going sooner. Building the model takes noticeably longer, once. It only acts on a new model. Leave it off
        if you start from the weights of another model.""",
    )


class NetworkOptions(Options):
    """How the model computes."""

    reflect_padding: bool = option(
        False,
        group="network",
        fixed=True,
        why_fixed="the model has learned with these borders",
        help="""Continue the picture beyond its border by mirroring it, not with black. It can remove a grey frame
        around the result and costs a little speed. Leave it off unless you see such a frame.""",
    )
    mixed_precision: bool = option(
        False,
        group="network",
        before=False,
        help="""Compute with numbers of half the size where that is safe. On graphics cards with tensor cores training
        is faster and needs less memory. The result differs a little. Leave it off on a processor without support for
        it, on older cards, and when the loss has become not-a-number with it.""",
    )
    nan_protection: bool = option(
        True,
        group="network",
        help="""Stop as soon as a loss is no finite number, before it can be saved. Such a model is ruined, and
        without this the run goes on for hours for nothing. Do not switch it off outside of experiments.""",
    )


class ConvertOptions(Options):
    """Converting with a trained model."""

    convert_batchsize: int = option(
        16,
        group="convert",
        ge=1,
        le=32,
        step=1,
        help="""How many faces go through the model at once when converting. It changes the speed and the memory
        needed, never the result. Lower it when converting runs out of memory; raising it helps little beyond some
        point.""",
    )
