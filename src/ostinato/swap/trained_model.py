"""A trained swap model read back from its run folder, cut down to one direction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ostinato.config import SwapOptions, resume
from ostinato.data.file_names import shown_name
from ostinato.errors import BadInputError, DamagedRunError, UsageError
from ostinato.faces.sample import CropSettings
from ostinato.runs.content import LoadedGeneration
from ostinato.runs.folder import RunFolder
from ostinato.runs.verification import read_weights
from ostinato.swap.face_folders import crop_settings
from ostinato.swap.models import InferenceModel
from ostinato.swap.training import build_swap_model, stored_sides


@dataclass(frozen=True)
class Direction:
    """Whose face is put on whose picture: ``a_to_b`` shows b's face on a's pictures."""

    source: str
    target: str

    @classmethod
    def parse(cls, text: str) -> Direction:
        """Read ``a_to_b``.

        :raises UsageError: the text is no direction.
        """
        source, separator, target = text.strip().lower().partition("_to_")
        if not separator or not source or not target:
            raise UsageError(
                f"--direction {text!r} is no direction.",
                advice="Write it like a_to_b: b's face on a's pictures.",
                value=text,
            )
        return cls(source, target)

    def __str__(self) -> str:
        return f"{self.source}_to_{self.target}"


@dataclass(frozen=True)
class TrainedModel:
    """One direction of a model, and how its faces have to be cut."""

    model: InferenceModel
    """In evaluation mode, on its device."""
    options: SwapOptions
    """As the run was trained with."""
    crop: CropSettings
    mask: str | None
    """The mask the run was trained with; None for none."""
    direction: Direction
    iteration: int


def load_trained_model(
    run_folder: Path, direction: Direction, *, generation: str | None = None, device: torch.device | str = "cpu"
) -> TrainedModel:
    """Read a model from its run. Nothing is written, and a training that runs there is not disturbed.

    Only the encoder and the decoder of the direction come into memory, and nothing of the optimizer.

    :param generation: an iteration or a generation's name; None for the newest whole one.
    :raises BadInputError: there is no such run, generation or side.
    :raises DamagedRunError: what is there cannot be read whole.
    """
    run = RunFolder(run_folder)
    if not run.generations_path.is_dir():
        raise BadInputError(
            f"{shown_name(run_folder)} is no run folder.",
            advice="Give the folder that was given to -m when the model was trained.",
            folder=str(run_folder),
        )
    decoder = f"decoder_{direction.target}."

    def read(folder: Path) -> LoadedGeneration:
        return read_weights(folder, lambda name: name.startswith(("encoder.", decoder)))

    loaded = run.load_newest(read) if generation is None else run.read(generation, read)
    if loaded is None:
        raise BadInputError(
            f"The run in {shown_name(run_folder)} has saved nothing yet.",
            advice="Train it for a while first.",
            folder=str(run_folder),
        )
    sides = stored_sides(loaded)
    for side in (direction.source, direction.target):
        if side not in sides:
            raise BadInputError(
                f"The run has no side {side}.", advice=f"Its sides are: {', '.join(sides)}.", side=side, sides=sides
            )
    options = resume(loaded.options, SwapOptions(), ()).effective
    with torch.device("meta"):
        model = build_swap_model(options, sides).inference_model(direction.target)
    try:
        weights = {name.replace(decoder, "decoder.", 1): weight for name, weight in loaded.model.items()}
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise DamagedRunError(
            f"The weights in {shown_name(run_folder)} do not fit a model of the kind {options.model.name}.",
            advice="`ostinato runs verify` tells which generation is whole.",
            folder=str(run_folder),
            damage=[],
        ) from error
    model.eval()
    model.to(device)
    crop = crop_settings(options, max(model.input_size, *model.output_sizes))
    return TrainedModel(model, options, crop, crop.face_mask, direction, loaded.iteration)
