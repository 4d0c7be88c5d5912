"""A trained backbone read back from its run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ostinato.config import RecognitionOptions, resume
from ostinato.errors import BadInputError, DamagedRunError, ModelMismatchError
from ostinato.data.file_names import shown_name
from ostinato.recognition.backbones import build_backbone
from ostinato.recognition.backbones.backbone import Backbone
from ostinato.runs.content import LoadedGeneration
from ostinato.runs.folder import RunFolder

RECIPE = "recognition"


@dataclass(frozen=True)
class TrainedRun:
    """What verification and export need of a run.

    :param model: in evaluation mode, float32, on the device asked for.
    :param options: as the run was trained with.
    :param iteration: completed updates of the generation that was read.
    :param notices: what was found on the way, in sentences: a damaged generation that was passed over.
    """

    model: Backbone
    options: RecognitionOptions
    iteration: int
    notices: tuple[str, ...] = ()


def load_backbone(
    run_folder: Path | str, *, generation: int | str | None = None, device: torch.device | str = "cpu"
) -> tuple[Backbone, RecognitionOptions]:
    """The backbone of a run, in evaluation mode, and the options it was trained with; see :func:`read_trained_run`."""
    trained = read_trained_run(run_folder, generation=generation, device=device)
    return trained.model, trained.options


def read_trained_run(
    run_folder: Path | str, *, generation: int | str | None = None, device: torch.device | str = "cpu"
) -> TrainedRun:
    """Read the backbone of a run. Nothing is written, and a training that runs there is not disturbed.

    :param generation: an iteration or a generation's name; None for the newest whole one.
    :param device: where the model goes.
    :raises BadInputError: there is no such run or generation, or it has saved nothing yet.
    :raises ModelMismatchError: it is a run of another recipe.
    :raises DamagedRunError: what is there cannot be read whole, or does not fit the network its options name.
    """
    run = RunFolder(Path(run_folder))
    shown = shown_name(run_folder)
    if not run.generations_path.is_dir():
        what = "is a file, not a run folder" if run.path.is_file() else "is no run folder"
        raise BadInputError(
            f"{shown} {what}.",
            advice="Give the folder in which `ostinato recognition train` keeps its run.",
            folder=str(run_folder),
        )
    loaded = run.load_newest() if generation is None else run.read(generation)
    if loaded is None:
        raise BadInputError(
            f"The run in {shown} has saved nothing yet.", advice="Train it for a while first.", folder=str(run_folder)
        )
    _refuse_other_recipe(loaded, shown)
    options = resume(loaded.options, RecognitionOptions(), ()).effective
    model = build_backbone(options.model.backbone, embedding_size=options.model.embedding_size, seed=0)
    try:
        model.load_state_dict(dict(loaded.model))
    except RuntimeError as error:
        raise DamagedRunError(
            f"The weights in {shown} do not fit the network {options.model.backbone}.",
            advice="`ostinato runs verify` tells which generation is whole.",
            folder=str(run_folder),
            damage=[],
        ) from error
    model.eval()
    model.to(device)
    return TrainedRun(model, options, loaded.iteration, tuple(run.notices))


def _refuse_other_recipe(loaded: LoadedGeneration, shown: str) -> None:
    recipe = loaded.manifest.run.get("recipe", "")
    if recipe.partition("/")[0] != RECIPE:
        raise ModelMismatchError(
            f"The run in {shown} was made by the recipe {shown_name(recipe) or 'of another program'}, not {RECIPE}.",
            advice="Give the run folder of a recognition training.",
            found=recipe,
            asked=RECIPE,
        )
