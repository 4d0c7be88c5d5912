"""Options that every command that reads a trained recognition run takes, in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunOrWeights = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A run folder of a recognition training, or a file of weights (.pth of InsightFace).",
        show_default=False,
    ),
]
BatchSize = Annotated[int, typer.Option("-b", "--batch-size", help="Pictures in a batch. It changes only the speed.")]
Device = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, cuda:1, mps; by default the best one here.", show_default=False),
]
Generation = Annotated[
    str | None,
    typer.Option(
        "--generation", help="An iteration or a generation's name; by default the newest.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
