"""Options of how faces are read, varied and shown. All of them may change between sessions."""

from __future__ import annotations

from ostinato.config.declaration import Options, option


class LoaderOptions(Options):
    """Reading faces from the disk."""

    num_processes: int = option(
        4,
        group="data loading",
        ge=0,
        le=32,
        step=1,
        help="""How many helpers (threads) read and prepare faces; 0 leaves it to the training itself. It changes the
        speed, never the faces that training sees. Do not set it above the number of processor cores.""",
    )
    pre_fetch: int = option(
        2,
        group="data loading",
        ge=1,
        le=10,
        step=1,
        help="""How many batches each helper prepares ahead. More evens out a slow disk and needs more memory. Leave
        it at 2 unless training waits for faces.""",
    )


class AugmentationOptions(Options):
    """Small random changes that show the model each face a little differently every time, and the preview."""

    preview_images: int = option(
        14,
        group="evaluation",
        ge=2,
        le=16,
        step=2,
        help="""How many faces of each side the preview sheet shows. More take a little longer to draw, and make a
        larger picture. It does not change training.""",
    )
    mask_opacity: int = option(
        30,
        group="evaluation",
        ge=0,
        le=100,
        step=2,
        help="""How strongly the area outside the mask is tinted in the preview, in percent. 0 shows no tint. It does
        not change training.""",
    )
    mask_color: str = option(
        "#ff0000",
        group="evaluation",
        pattern=r"#[0-9a-fA-F]{6}",
        expects="a colour written as # and six hexadecimal digits, such as #ff0000 for red",
        help="""The colour of that tint, as # and six hexadecimal digits: two each for red, green and blue. It does
        not change training.""",
    )
    zoom_amount: int = option(
        5,
        group="image augmentation",
        ge=0,
        le=25,
        step=1,
        help="""Enlarge or shrink each face by up to this much, in percent, at random. It keeps the model from relying
        on the exact size of faces. 0 is off. Do not use much more than 10: the edges get smeared.""",
    )
    rotation_range: int = option(
        10,
        group="image augmentation",
        ge=0,
        le=25,
        step=1,
        help="""Turn each face by up to this many degrees either way, at random. Extracted faces stand upright, so a
        little is enough. 0 is off.""",
    )
    shift_range: int = option(
        5,
        group="image augmentation",
        ge=0,
        le=25,
        step=1,
        help="""Move each face by up to this much of its size, in percent, at random. It makes up for faces that were
        not found in quite the same place. 0 is off. Large values push parts of the face out of the picture.""",
    )
    flip_chance: int = option(
        50,
        group="image augmentation",
        ge=0,
        le=75,
        step=1,
        help="""The chance that a face is mirrored, in percent. It doubles what the model gets to see. Set it to
        0 for a face whose two halves differ, by a scar or a parting of the hair, and both sides of it are in
        your pictures.""",
    )
    color_lightness: int = option(
        30,
        group="color augmentation",
        ge=0,
        le=75,
        step=1,
        help="""Make each face lighter or darker by up to this much, in percent, at random. It prepares the model for
        other light. 0 is off. Lower it if both sides were filmed in the same light.""",
    )
    color_ab: int = option(
        8,
        group="color augmentation",
        ge=0,
        le=50,
        step=1,
        help="""Shift the colours of each face by up to this much, in percent, at random. It prepares the model for
        other lamps. 0 is off. Large values teach the model skin that nobody has.""",
    )
    color_clahe_chance: int = option(
        50,
        group="color augmentation",
        ge=0,
        le=75,
        step=1,
        help="""The chance that the contrast of a face is raised piece by piece, in percent. It brings out detail in
        dark and bright areas. Lower it, or set it to 0, late in a run, so that skin gets its natural contrast.""",
    )
    color_clahe_max_size: int = option(
        4,
        group="color augmentation",
        ge=1,
        le=8,
        step=1,
        help="""How fine the pieces for that contrast may be. Higher numbers act more locally and look harsher. Leave
        it alone unless previews show blotches.""",
    )
