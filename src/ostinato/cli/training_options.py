"""Options that every command that trains takes, in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ostinato.cli.wording import check_place
from ostinato.errors import UsageError

RUN = "Run"
OPTIONS = "Options"
WATCHING = "Watching"

ModelDir = Annotated[
    Path | None,
    typer.Option(
        "-m",
        "--model-dir",
        help="The run folder, always needed to train; made if missing. A run that is there is continued.",
        rich_help_panel=RUN,
    ),
]
MaxSnapshots = Annotated[
    int, typer.Option("--max-snapshots", help="Snapshots kept at most; -1 keeps all.", rich_help_panel=RUN)
]
Grace = Annotated[
    float | None,
    typer.Option(
        "--grace",
        help="Seconds that an end by a signal may take, for clusters that kill what takes longer. Left out: any.",
        rich_help_panel=RUN,
    ),
]
ListOptions = Annotated[
    bool,
    typer.Option(
        "--list-options", help="Print all options as a commented YAML file and leave.", rich_help_panel=OPTIONS
    ),
]
NoLogs = Annotated[
    bool,
    typer.Option(
        "-n",
        "--no-logs",
        help="Write no TensorBoard events; metrics.jsonl is written anyway.",
        rich_help_panel=WATCHING,
    ),
]
LogLevel = Annotated[str, typer.Option("-L", "--loglevel", help="debug, info or warning.", rich_help_panel=WATCHING)]
LogFile = Annotated[
    Path | None,
    typer.Option("-F", "--logfile", help="Also write what is shown to this file.", rich_help_panel=WATCHING),
]


def run_folder(given: Path | None, *, is_needed: bool) -> Path:
    """The folder that the run is to live in; the current one where none was given and none is needed.

    :param is_needed: whether something is going to be trained in it.
    :raises UsageError: it was not given.
    :raises BadInputError: it is a file, or on the way to it stands one.
    """
    if given is None:
        if is_needed:
            raise UsageError(
                "-m/--model-dir was not given.",
                advice="Name the folder that the run is to live in; it is made if missing.",
            )
        return Path()
    check_place(given)
    return given
