"""What a new run starts with in the place of random numbers: weights of a network, and class centres."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ostinato.data.file_names import shown_name
from ostinato.errors import BadInputError, ModelMismatchError
from ostinato.recognition.backbones import Backbone
from ostinato.recognition.insightface import load_backbone_weights, read_backbone_weights, read_centres
from ostinato.recognition.partial_fc import PartialFC
from ostinato.recognition.run_options import Tell
from ostinato.recognition.trained_run import RECIPE
from ostinato.runs.recipe_folder import RecipeFolder
from ostinato.runs.row_cut import RowCut


def take_weights(backbone: Backbone, source: Path, tell: Tell) -> None:
    """Give a network the weights of ``--load-weights``.

    :param source: a run folder, or a file of weights.
    :raises BadInputError: there are none, or they cannot be read.
    :raises ModelMismatchError: they are of another network.
    """
    if source.is_dir():
        loaded = RecipeFolder(source, recipe=RECIPE).load_newest()
        if loaded is None:
            raise BadInputError(
                f"--load-weights: {shown_name(source)} holds no saved run.",
                advice="Give the run folder of a recognition training, or a file of weights.",
                folder=str(source),
            )
        weights: Mapping[str, torch.Tensor] = loaded.model
    else:
        weights = read_backbone_weights(source)
    load_backbone_weights(backbone, weights, source=f"--load-weights {shown_name(source)}")
    tell(f"the network starts with the weights of {shown_name(source)}")


def take_centres(head: PartialFC, paths: tuple[Path, ...], tell: Tell) -> None:
    """Give a head the class centres of ``--load-centres``, each rank its own.

    :param paths: the files of InsightFace's ranks, or one of all classes.
    :raises BadInputError: they cannot be read, or the head has several centres for each class.
    :raises ModelMismatchError: they are of other embeddings.
    """
    rows, momentum = read_centres(
        paths if len(paths) > 1 else paths[0], classes=head.classes, first=head.first_class, last=head.last_class
    )
    if head.sub_centres > 1:
        raise BadInputError(
            f"--load-centres: each class of this run has {head.sub_centres} centres, and the files have one.",
            advice="Leave head.sub_centres at 1, or start without these centres.",
            found=1,
            asked=head.sub_centres,
        )
    if rows.shape[1] != head.embedding_size:
        raise ModelMismatchError(
            f"--load-centres: the class centres have {rows.shape[1]} numbers, and embeddings {head.embedding_size}.",
            advice=f"Start with --set model.embedding_size={rows.shape[1]}, or give other centres.",
            found=rows.shape[1],
            asked=head.embedding_size,
        )
    state: dict[str, Any] = {
        "format": 1,
        "classes": head.classes,
        "embedding_size": head.embedding_size,
        "sub_centres": head.sub_centres,
        "weight": RowCut(rows, head.first_class, head.classes),
    }
    if momentum is not None:
        state["rule"] = "sgd, momentum plain"
        state["tables"] = {"momentum": RowCut(momentum, head.first_class, head.classes)}
    head.load_state_dict(state)
    tell(f"{head.classes:,} class centres are taken from {shown_name(paths[0])}")
