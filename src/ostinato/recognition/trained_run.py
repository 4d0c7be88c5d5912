"""A trained backbone, read back from its run folder or from a file of weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ostinato.config import RecognitionOptions, resume
from ostinato.data.file_names import shown_name
from ostinato.errors import BadInputError, DamagedRunError, ModelMismatchError
from ostinato.recognition.backbones import build_backbone
from ostinato.recognition.backbones.backbone import Backbone
from ostinato.recognition.insightface import backbones_that_fit, load_backbone_weights, read_backbone_weights
from ostinato.recognition.insightface.backbone_weights import embedding_size_of
from ostinato.runs.content import LoadedGeneration
from ostinato.runs.folder import RunFolder
from ostinato.runs.verification import read_generation, read_weights

RECIPE = "recognition"

_WHAT_TO_GIVE = "Give the folder in which `ostinato recognition train` keeps its run, or a file of weights (.pth)."


@dataclass(frozen=True)
class TrainedRun:
    """What verification and export need of a run, or of a file of weights.

    :param model: in evaluation mode, float32, on the device asked for.
    :param options: as the run was trained with; of a file of weights the network and the embedding size are known, and
        all else is the default.
    :param iteration: completed updates of the generation that was read; None for a file of weights, which does not say.
    :param source: the name of the run folder or the file, fit to be shown.
    :param notices: what was found on the way, in sentences: a damaged generation that was passed over.
    """

    model: Backbone
    options: RecognitionOptions
    iteration: int | None
    source: str
    notices: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The network, and which state of it: ``r50 at iteration 4,000`` or ``r50 of backbone.pth``."""
        which = f"of {self.source}" if self.iteration is None else f"at iteration {self.iteration:,}"
        return f"{self.options.model.backbone} {which}"


def load_backbone(
    run_folder: Path | str, *, generation: int | str | None = None, device: torch.device | str = "cpu"
) -> tuple[Backbone, RecognitionOptions]:
    """A trained backbone in evaluation mode, and the options it was trained with; see :func:`read_trained_run`."""
    trained = read_trained_run(run_folder, generation=generation, device=device)
    return trained.model, trained.options


def read_trained_run(
    run_folder: Path | str,
    *,
    generation: int | str | None = None,
    device: torch.device | str = "cpu",
    whole: bool = False,
) -> TrainedRun:
    """Read a trained backbone. Nothing is written, and a training that runs there is not disturbed.

    Neither the class centres nor the optimizer are read or verified, unless ``whole``: with millions of people they
    are gigabytes.

    :param run_folder: the folder of a run, or a file of weights that
        :func:`~ostinato.recognition.insightface.read_backbone_weights` reads; which network it holds is found from the
        names and shapes.
    :param generation: an iteration or a generation's name; None for the newest whole one.
    :param device: where the model goes.
    :param whole: choose a generation of which everything is whole, because its class centres will be read as well.
    :raises BadInputError: there is no such run or generation, it has saved nothing yet, or the file holds no weights.
    :raises ModelMismatchError: it is a run of another recipe, or the weights are those of another network than ours.
    :raises DamagedRunError: what is there cannot be read whole, or does not fit the network its options name.
    """
    path = Path(run_folder)
    shown = shown_name(run_folder)
    if path.is_file():
        return _read_weights(path, generation, device)
    if not path.is_dir():
        raise BadInputError(f"There is no {shown}.", advice=_WHAT_TO_GIVE, folder=str(run_folder))
    run = RunFolder(path)
    if not run.generations_path.is_dir():
        raise BadInputError(f"{shown} is no run folder.", advice=_WHAT_TO_GIVE, folder=str(run_folder))
    read = read_generation if whole else _backbone_of
    loaded = run.load_newest(read) if generation is None else run.read(generation, read)
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
    return TrainedRun(_ready(model, device), options, loaded.iteration, shown, tuple(run.notices))


def _backbone_of(folder: Path) -> LoadedGeneration:
    return read_weights(folder, lambda name: True)


def _read_weights(path: Path, generation: int | str | None, device: torch.device | str) -> TrainedRun:
    shown = shown_name(path)
    if generation is not None:
        raise BadInputError(
            f"{shown} is one file of weights, and has no generation {generation}.",
            advice="Ask for generations of run folders only.",
            path=str(path),
        )
    weights = read_backbone_weights(path)
    network, embedding_size = backbones_that_fit(weights)[0], embedding_size_of(weights)
    model = build_backbone(network, embedding_size=embedding_size, seed=0)
    load_backbone_weights(model, weights, source=shown)
    options = RecognitionOptions()
    described = options.model.model_copy(update={"backbone": network, "embedding_size": embedding_size})
    return TrainedRun(_ready(model, device), options.model_copy(update={"model": described}), None, shown)


def _ready(model: Backbone, device: torch.device | str) -> Backbone:
    model.eval()
    model.to(device)
    return model


def _refuse_other_recipe(loaded: LoadedGeneration, shown: str) -> None:
    recipe = loaded.manifest.run.get("recipe", "")
    if recipe.partition("/")[0] != RECIPE:
        raise ModelMismatchError(
            f"The run in {shown} was made by the recipe {shown_name(recipe) or 'of another program'}, not {RECIPE}.",
            advice="Give the run folder of a recognition training.",
            found=recipe,
            asked=RECIPE,
        )
