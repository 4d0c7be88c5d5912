"""What a user asks of a recognition training: the command line's words, with no file opened yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

USUAL_SAVE_INTERVAL = 500
"""Updates between saves, unless something else is asked for."""


@dataclass(frozen=True)
class RecognitionRequest:
    """Everything :func:`ostinato.recognition.training.open_training` needs to start or continue a run.

    Options of the run (what the model is, how it learns, how long) come from ``preset``, ``config`` and ``overrides``;
    the fields here say where things are, and what this session does besides.
    """

    data: str
    """A folder of people, a record file or the folder it lies in, or the word ``synthetic``."""
    run_folder: Path
    """Where the run lives. A run that is there already is continued."""
    preset: str | None = None
    """Name of a published configuration; options of the file and single ones win over it."""
    config: Path | None = None
    """A YAML file of options."""
    overrides: tuple[str, ...] = ()
    """Single options, ``path=value``; they win over all others."""
    pairs: tuple[Path, ...] = ()
    """Pair files that are verified while training, besides ``verification.targets``."""
    load_weights: Path | None = None
    """Weights of a backbone, or a run folder, from which a *new* run starts."""
    load_centres: tuple[Path, ...] = ()
    """Class centres of a *new* run: the files of all ranks of InsightFace's training, or the folder they lie in."""
    save_interval: int | None = None
    """Updates between saves; None: :data:`USUAL_SAVE_INTERVAL`, or a tenth of a run that is short beside it."""
    snapshot_interval: int = 0
    """Updates between generations that are kept as snapshots; 0 keeps none."""
    max_snapshots: int = 5
    """Snapshots kept at most; -1 keeps all."""
    logs: bool = True
    """Write TensorBoard events."""
    device: str | None = None
    """A torch device; None takes the GPU where there is one. Of several ranks each has its own."""
    classes: int = 10_000
    """Identities of the synthetic set."""
    images: int = 100_000
    """Pictures of the synthetic set."""
    min_images: int = 1
    """People with fewer pictures are left out."""
