"""A run folder as a recognition training leaves it, without training."""

from __future__ import annotations

from pathlib import Path

import torch

from ostinato.config import RecognitionOptions, to_record
from ostinato.recognition.backbones import Backbone
from ostinato.runs.content import GenerationContent
from ostinato.runs.folder import RunFolder


def write_trained_run(
    folder: Path, backbone: Backbone, *, iteration: int = 12, reasons: tuple[str, ...] = ("latest",)
) -> Path:
    """Write a run with one generation that holds ``backbone``.

    :param backbone: one that the factory builds by name.
    :param reasons: why the generation is kept.
    """
    options = RecognitionOptions()
    options = options.model_copy(
        update={
            "model": options.model.model_copy(
                update={"backbone": backbone.name, "embedding_size": backbone.embedding_size}
            ),
            "seed": 1,
        }
    )
    with RunFolder(folder).open(recipe="recognition") as run:
        run.begin_session(start_iteration=0, batch_size=8, config=to_record(options))
        model = {name: value.detach().clone() for name, value in backbone.state_dict().items()}
        run.commit(run.pack(GenerationContent(iteration, model, state={"seed": torch.tensor(1)}, reasons=reasons)))
    return folder
