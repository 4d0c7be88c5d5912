"""What a user asks of a swap training: the command line's words, with no file opened yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class TrainingRequest:
    """Everything :func:`ostinato.swap.training.open_training` needs to start or continue a run.

    Options of the run (what the model is, how it learns) come from ``config`` and ``overrides``; the fields here say
    where things are and how long this session goes on.
    """

    folders: Mapping[str, Path]
    """A folder of extracted faces for each side, by the side's name; one or more."""
    run_folder: Path
    """Where the run lives. A run that is there already is continued."""
    model: str | None = None
    """The kind of model; None continues what is there, and starts ``original`` where there is nothing."""
    batch_size: int = 16
    """Faces of each side in an iteration."""
    iterations: int = 1_000_000
    """Total iterations of the run, all sessions together."""
    save_interval: int = 250
    """Iterations between saves."""
    snapshot_interval: int = 25_000
    """Iterations between generations that are kept as snapshots; 0 keeps none."""
    max_snapshots: int = 5
    """Snapshots kept at most; -1 keeps all."""
    config: Path | None = None
    """A YAML file of options, or a Faceswap ini."""
    overrides: tuple[str, ...] = ()
    """Single options, ``path=value``; they win over the file."""
    overrides_of: str = "command line"
    """Who gives them, for remarks."""
    warm_up: int = 0
    """Updates over which the learning rate rises to its full value at the beginning of the run; with gradient
    accumulation, each of them is several iterations."""
    find_rate: Literal["never", "new", "again"] = "never"
    """Search for the learning rate before the first update: not at all, for a new run, or for any run."""
    recover: bool = False
    """Go back to the last good state with a lower learning rate, if a number was not finite since."""
    freeze_encoder: bool = False
    """Train the decoders only."""
    load_weights: Path | None = None
    """A run folder whose encoder a *new* run starts from."""
    augment_color: bool = True
    """Vary the colours of faces."""
    flip: bool = True
    """Mirror some faces."""
    warp: bool = True
    """Warp what the model sees."""
    warp_to_landmarks: bool = False
    """Warp towards similar faces of another side, in place of at random."""
    timelapse: Mapping[str, Path] = field(default_factory=dict)
    """A folder of faces for each side, drawn again at every save; empty for none."""
    timelapse_output: Path | None = None
    """Where those pictures go; None: ``previews/timelapse`` in the run folder."""
    keep_previews: bool = False
    """Keep the preview of every save, not only the latest."""
    logs: bool = True
    """Write TensorBoard events."""
    skip_bad_faces: bool = False
    """Leave unusable pictures out instead of stopping."""
    device: str | None = None
    """A torch device; None takes the GPU where there is one."""
    cache: Path | None = None
    """Where prepared faces are kept; None: a folder of the user's cache."""
    cache_gib: float = 20.0
    """How much of the disk they may take, in GiB; 0 keeps none."""
