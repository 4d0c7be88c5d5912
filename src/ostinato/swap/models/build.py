"""From options to a swap model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ostinato.errors import ArgumentValueError
from ostinato.swap.models.blocks import Blocks
from ostinato.swap.models.initializers import initialize
from ostinato.swap.models.lightweight import build_lightweight
from ostinato.swap.models.original import build_original
from ostinato.swap.models.swap_model import SwapModel

if TYPE_CHECKING:
    from ostinato.config import InitializationOptions, ModelOptions, NetworkOptions


def model_names() -> tuple[str, ...]:
    """The models that :func:`build_model` knows."""
    return ("lightweight", "original")


def build_model(
    name: str,
    *,
    sides: Sequence[str] = ("a", "b"),
    model: ModelOptions,
    initialization: InitializationOptions,
    network: NetworkOptions,
    learn_mask: bool,
    seed: int,
    color_order: str = "rgb",
) -> SwapModel:
    """Build a new model and fill it with numbers drawn from a seed.

    :param name: one of :func:`model_names`.
    :param sides: the names of the sides, one or more, all different; letters, digits and underscores.
    :param model: ``lowmem`` is read for ``original``.
    :param initialization: how the weights are drawn.
    :param network: ``reflect_padding`` is read.
    :param learn_mask: let every decoder draw a mask as well.
    :param seed: the same seed gives the same weights; nothing is drawn from the global generators.
    :param color_order: ``rgb``, or ``bgr`` for weights that come from Faceswap.
    :returns: the model, on the CPU, in contiguous memory, which is fastest there. On a GPU move it with
        ``memory_format=torch.channels_last``; every layer follows its weights.
    :raises ArgumentValueError: the name or a side is not usable.
    """
    _check_sides(sides)
    blocks = Blocks(reflect_padding=network.reflect_padding)
    if name == "original":
        built = build_original(blocks, sides, lowmem=model.lowmem, learn_mask=learn_mask, color_order=color_order)
    elif name == "lightweight":
        built = build_lightweight(blocks, sides, learn_mask=learn_mask, color_order=color_order)
    else:
        raise ArgumentValueError(
            f"There is no model called {name!r}.", advice=f"Choose one of: {', '.join(model_names())}.", name=name
        )
    initialize(
        built,
        torch.Generator().manual_seed(seed),
        icnr_init=initialization.icnr_init,
        conv_aware_init=initialization.conv_aware_init,
    )
    return built


def _check_sides(sides: Sequence[str]) -> None:
    if not sides or len(set(sides)) != len(sides):
        raise ArgumentValueError(
            f"A swap model needs one or more sides with different names, and these were given: {list(sides)}.",
            advice="Give each side a name of its own.",
        )
    for side in sides:
        if not side.isidentifier() and not side.isalnum():
            raise ArgumentValueError(
                f"{side!r} cannot be the name of a side.", advice="Use letters, digits and underscores."
            )
