"""``ostinato recognition train``: the words of the command line; what is done is in the modules it calls."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from ostinato.cli.training_options import (
    OPTIONS,
    RUN,
    WATCHING,
    Grace,
    ListOptions,
    LogFile,
    LogLevel,
    MaxSnapshots,
    ModelDir,
    NoLogs,
    run_folder,
)
from ostinato.cli.wording import check_range, check_seconds, check_snapshots
from ostinato.errors import UsageError

_DATA = "Data"


def train(
    data: Annotated[
        str | None,
        typer.Option(
            "-d",
            "--data",
            help="The faces: a folder with one sub-folder per person, a .rec file or its folder, or: synthetic.",
            show_default=False,
            rich_help_panel=_DATA,
        ),
    ] = None,
    model_dir: ModelDir = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "-b",
            "--batch-size",
            help="Images looked at together, over all processes. Left out: as the options say.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(
            "-e",
            "--epochs",
            help="Length of the run in passes over the data, all sessions together. Left out: as the options say.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option("-i", "--iterations", help="The same in updates.", show_default=False, rich_help_panel=RUN),
    ] = None,
    save_interval: Annotated[
        int | None,
        typer.Option(
            "-s",
            "--save-interval",
            help="Updates between saves. Left out: 500, or a tenth of a run that is shorter than 5,000.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None,
    snapshot_interval: Annotated[
        int,
        typer.Option(
            "-I",
            "--snapshot-interval",
            help="Updates between states that are kept as snapshots; 0 keeps none.",
            rich_help_panel=RUN,
        ),
    ] = 0,
    max_snapshots: MaxSnapshots = 5,
    load_weights: Annotated[
        Path | None,
        typer.Option(
            "--load-weights",
            help="Weights from which a new run's network starts: a .pth of InsightFace, or a run folder.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None,
    load_centres: Annotated[
        list[Path] | None,
        typer.Option(
            "--load-centres",
            help="Class centres from which a new run starts: InsightFace's files of all ranks, or their folder.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            help="cpu, cuda, cuda:1, mps. Left out: the GPU where there is one; of several ranks each has its own.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None,
    grace: Grace = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", help="Seconds after which a rank gives up waiting for the others.", rich_help_panel=RUN
        ),
    ] = 600.0,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            help="A published configuration, such as ms1mv3_r50; a file and --set win over it.",
            show_default=False,
            rich_help_panel=OPTIONS,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("-C", "--config", help="A YAML file of options.", show_default=False, rich_help_panel=OPTIONS),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="One option, such as head.sampling_rate=0.1; wins over the file. May be repeated.",
            show_default=False,
            rich_help_panel=OPTIONS,
        ),
    ] = None,
    list_options: ListOptions = False,
    list_presets: Annotated[
        bool, typer.Option("--list-presets", help="Print the presets and leave.", rich_help_panel=OPTIONS)
    ] = False,
    classes: Annotated[
        int, typer.Option("--classes", help="People of the synthetic data.", rich_help_panel=_DATA)
    ] = 10_000,
    images: Annotated[
        int | None,
        typer.Option(
            "--images",
            help="Pictures of the synthetic data. Left out: ten of each person.",
            show_default=False,
            rich_help_panel=_DATA,
        ),
    ] = None,
    min_images: Annotated[
        int,
        typer.Option("--min-images", help="Leave out people with fewer pictures than this.", rich_help_panel=_DATA),
    ] = 1,
    pairs: Annotated[
        list[Path] | None,
        typer.Option(
            "--pairs",
            help="Pairs to verify while training: a .bin file, a list of pairs, a folder of people. May be repeated.",
            show_default=False,
            rich_help_panel=WATCHING,
        ),
    ] = None,
    debug_speed: Annotated[
        bool,
        typer.Option(
            "--debug-speed",
            help="Train a throw-away model, print where the time goes, and leave. Without -d nothing is read.",
            rich_help_panel=WATCHING,
        ),
    ] = False,
    no_logs: NoLogs = False,
    log_level: LogLevel = "info",
    log_file: LogFile = None,
) -> None:
    """Train a model that recognises faces, or go on with one.

    The same command starts, continues and finishes a run, on one device and, behind a launcher, on many: ostinato
    launch -np 8 -- recognition train ..., torchrun, mpirun or srun. A run goes on with any number of processes.

    Keys while it trains: Enter saves and quits, S saves. Ctrl-C finishes the update, saves and leaves; twice leaves at
    once. A closed terminal, SIGTERM and SIGUSR1 save and leave, too.

    Exit status: 0 finished, or left with Enter; 128 and the number of the signal that ended it.
    """
    if epochs is not None and iterations is not None:
        raise UsageError("-e/--epochs and -i/--iterations both say how long the run is.", advice="Give one of them.")
    if epochs is not None and not 0 < epochs < math.inf:
        raise UsageError(f"-e/--epochs is {epochs:g}.", advice="Give a number above 0.", value=epochs)
    if iterations is not None:
        check_range("-i/--iterations", iterations, 1, None)
    if batch_size is not None:
        check_range("-b/--batch-size", batch_size, 2, None)
    if save_interval is not None:
        check_range("-s/--save-interval", save_interval, 1, None)
    check_range("-I/--snapshot-interval", snapshot_interval, 0, None)
    check_snapshots(max_snapshots)
    check_range("--classes", classes, 2, None)
    if images is not None:
        check_range("--images", images, classes, None)
    check_range("--min-images", min_images, 1, None)
    check_seconds("--grace", grace)
    check_seconds("--timeout", timeout)
    from ostinato.cli import recognition_session

    if list_presets:
        recognition_session.print_presets()
        return
    asked = _as_options(batch_size, epochs, iterations)
    if list_options:
        recognition_session.print_options(config, preset, [*(overrides or ()), *asked])
        return
    if data is None and not debug_speed:
        raise UsageError(
            "-d/--data was not given.", advice="Name a folder with one sub-folder of pictures for each person."
        )
    folder = run_folder(model_dir, is_needed=not debug_speed)
    from ostinato.recognition.request import RecognitionRequest

    request = RecognitionRequest(
        data=data or "synthetic",
        run_folder=folder,
        preset=preset,
        config=config,
        overrides=(*(overrides or ()), *asked),
        pairs=tuple(pairs or ()),
        load_weights=load_weights,
        load_centres=tuple(load_centres or ()),
        save_interval=save_interval,
        snapshot_interval=snapshot_interval,
        max_snapshots=max_snapshots,
        logs=not no_logs,
        device=device,
        classes=classes,
        images=10 * classes if images is None else images,
        min_images=min_images,
    )
    if debug_speed:
        recognition_session.print_speed(request, updates=iterations or 20, timeout=timeout)
        return
    status = recognition_session.train(request, log_level=log_level, log_file=log_file, grace=grace, timeout=timeout)
    if status:
        sys.exit(status)


def _as_options(batch_size: int | None, epochs: float | None, iterations: int | None) -> list[str]:
    """What the short options stand for."""
    asked = [] if batch_size is None else [f"batch_size={batch_size}"]
    if epochs is not None:
        asked += [f"epochs={epochs!r}", "iterations=0"]  # a number of iterations would win over epochs
    if iterations is not None:
        asked.append(f"iterations={iterations}")
    return asked
