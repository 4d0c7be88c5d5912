"""``ostinato swap``: train a face-swap model, and swap faces with it."""

from __future__ import annotations

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

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})

_FOLDERS = "Faces"
_AUGMENTATION = "Augmentation"


@app.command()
def train(
    model_dir: ModelDir = None,
    input_a: Annotated[
        Path | None,
        typer.Option("-A", "--input-A", help="Faces of side a: the face to be replaced.", rich_help_panel=_FOLDERS),
    ] = None,
    input_b: Annotated[
        Path | None,
        typer.Option(
            "-B", "--input-B", help="Faces of side b: the face to put in its place.", rich_help_panel=_FOLDERS
        ),
    ] = None,
    side: Annotated[
        list[str] | None,
        typer.Option(
            "--side",
            metavar="NAME=FOLDER",
            help="A further side, such as c=faces/carol. May be repeated.",
            rich_help_panel=_FOLDERS,
        ),
    ] = None,
    skip_bad_faces: Annotated[
        bool,
        typer.Option(
            "--skip-bad-faces",
            help="Leave pictures out that cannot be used, instead of stopping.",
            rich_help_panel=_FOLDERS,
        ),
    ] = False,
    trainer: Annotated[
        str | None,
        typer.Option(
            "-t",
            "--trainer",
            help="The model: original or lightweight. Left out: what the run has; original for a new one.",
            rich_help_panel=RUN,
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("-b", "--batch-size", help="Faces of each side in an iteration.", rich_help_panel=RUN)
    ] = 16,
    iterations: Annotated[
        int,
        typer.Option(
            "-i",
            "--iterations",
            help="Total iterations of the run, all sessions together: the same command continues and finishes it.",
            rich_help_panel=RUN,
        ),
    ] = 1_000_000,
    save_interval: Annotated[
        int, typer.Option("-s", "--save-interval", help="Iterations between saves.", rich_help_panel=RUN)
    ] = 250,
    snapshot_interval: Annotated[
        int,
        typer.Option(
            "-I",
            "--snapshot-interval",
            help="Iterations between states that are kept as snapshots; 0 keeps none.",
            rich_help_panel=RUN,
        ),
    ] = 25_000,
    max_snapshots: MaxSnapshots = 5,
    warmup: Annotated[
        int,
        typer.Option(
            "-a",
            "--warmup",
            help="Updates over which the learning rate rises at the beginning of the run.",
            rich_help_panel=RUN,
        ),
    ] = 0,
    use_lr_finder: Annotated[
        bool,
        typer.Option(
            "-r",
            "--use-lr-finder",
            help="Search for the learning rate before a new run trains. The options rate_finder.* say how.",
            rich_help_panel=RUN,
        ),
    ] = False,
    find_lr_again: Annotated[
        bool,
        typer.Option(
            "--find-lr-again",
            help="Search for the learning rate although the run has been trained or has found one already.",
            rich_help_panel=RUN,
        ),
    ] = False,
    recover: Annotated[
        bool,
        typer.Option(
            "--recover",
            help="After a loss that was not a number: go back to the last good state and lower the learning rate. "
            "The options recovery.* say by how much, how often, and whether to do it without being asked.",
            rich_help_panel=RUN,
        ),
    ] = False,
    load_weights: Annotated[
        Path | None,
        typer.Option(
            "-l",
            "--load-weights",
            help="A run folder whose encoder a new run starts from; not used when continuing.",
            rich_help_panel=RUN,
        ),
    ] = None,
    freeze_weights: Annotated[
        bool, typer.Option("-f", "--freeze-weights", help="Train the decoders only.", rich_help_panel=RUN)
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", help="cpu, cuda, cuda:1, mps. Left out: the GPU where there is one.", rich_help_panel=RUN
        ),
    ] = None,
    grace: Grace = None,
    summary: Annotated[
        bool, typer.Option("-u", "--summary", help="Show the model and leave.", rich_help_panel=RUN)
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "-C",
            "--config",
            "--configfile",
            help="A YAML file of options, or a Faceswap ini.",
            rich_help_panel=OPTIONS,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="One option, such as loss.eye_multiplier=2; wins over the file. May be repeated.",
            rich_help_panel=OPTIONS,
        ),
    ] = None,
    list_options: ListOptions = False,
    warp_to_landmarks: Annotated[
        bool,
        typer.Option(
            "-M",
            "--warp-to-landmarks",
            help="Warp faces towards similar ones of another side, instead of at random.",
            rich_help_panel=_AUGMENTATION,
        ),
    ] = False,
    no_flip: Annotated[
        bool, typer.Option("-P", "--no-flip", help="Mirror no faces.", rich_help_panel=_AUGMENTATION)
    ] = False,
    no_augment_color: Annotated[
        bool, typer.Option("-c", "--no-augment-color", help="Leave colours alone.", rich_help_panel=_AUGMENTATION)
    ] = False,
    no_warp: Annotated[
        bool,
        typer.Option("-W", "--no-warp", help="Warp no faces; for the end of a run.", rich_help_panel=_AUGMENTATION),
    ] = False,
    timelapse_input_a: Annotated[
        Path | None,
        typer.Option(
            "-x", "--timelapse-input-A", help="Faces of a to draw again at every save.", rich_help_panel=WATCHING
        ),
    ] = None,
    timelapse_input_b: Annotated[
        Path | None, typer.Option("-y", "--timelapse-input-B", help="The same for b.", rich_help_panel=WATCHING)
    ] = None,
    timelapse_side: Annotated[
        list[str] | None,
        typer.Option(
            "--timelapse-side",
            metavar="NAME=FOLDER",
            help="The same for a further side. May be repeated.",
            rich_help_panel=WATCHING,
        ),
    ] = None,
    timelapse_output: Annotated[
        Path | None,
        typer.Option(
            "-z",
            "--timelapse-output",
            help="Where these pictures go. Left out: previews/timelapse in the run folder.",
            rich_help_panel=WATCHING,
        ),
    ] = None,
    write_image: Annotated[
        bool,
        typer.Option(
            "-w",
            "--write-image",
            help="Keep the preview of every save, by iteration; previews/latest.png is written anyway.",
            rich_help_panel=WATCHING,
        ),
    ] = False,
    no_logs: NoLogs = False,
    log_level: LogLevel = "info",
    log_file: LogFile = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache", help="Where prepared faces are kept. Left out: your cache folder.", rich_help_panel=_FOLDERS
        ),
    ] = None,
    cache_size: Annotated[
        float,
        typer.Option("--cache-size", help="How large that may grow, GiB; 0 keeps none.", rich_help_panel=_FOLDERS),
    ] = 20.0,
    preview: Annotated[bool, typer.Option("-p", "--preview", hidden=True)] = False,
    distributed: Annotated[bool, typer.Option("-d", "--distributed", hidden=True)] = False,
    exclude_gpus: Annotated[str | None, typer.Option("-X", "--exclude-gpus", hidden=True)] = None,
) -> None:
    """Train a swap model from folders of extracted faces, or go on with one.

    The same command starts, continues and finishes a run. Keys while it trains: Enter saves and quits, S saves, R
    draws a new preview, M shows or hides the mask in it. Ctrl-C finishes the iteration, saves and leaves; twice leaves
    at once. A closed terminal, SIGTERM and SIGUSR1 save and leave, too.

    Exit status: 0 finished, or left with Enter; 128 and the number of the signal that ended it.
    """
    check_range("-b/--batch-size", batch_size, 1, 4096)
    check_range("-i/--iterations", iterations, 0, None)
    check_range("-s/--save-interval", save_interval, 1, None)
    check_range("-I/--snapshot-interval", snapshot_interval, 0, None)
    check_snapshots(max_snapshots)
    check_range("-a/--warmup", warmup, 0, None)
    check_range("--cache-size", cache_size, 0, None)
    check_seconds("--grace", grace)
    _refuse_faceswap_options(preview, distributed, exclude_gpus)
    from ostinato.cli import swap_train

    if list_options:
        swap_train.print_options(config, overrides or [])
        return
    folder = run_folder(model_dir, is_needed=not summary)
    from ostinato.swap.request import TrainingRequest

    request = TrainingRequest(
        folders=_folders(input_a, input_b, side or [], "--side", required=not summary),
        run_folder=folder,
        model=trainer,
        batch_size=batch_size,
        iterations=iterations,
        save_interval=save_interval,
        snapshot_interval=snapshot_interval,
        max_snapshots=max_snapshots,
        config=config,
        overrides=tuple(overrides or ()),
        warm_up=warmup,
        find_rate="again" if find_lr_again else "new" if use_lr_finder else "never",
        recover=recover,
        freeze_encoder=freeze_weights,
        load_weights=load_weights,
        augment_color=not no_augment_color,
        flip=not no_flip,
        warp=not no_warp,
        warp_to_landmarks=warp_to_landmarks,
        timelapse=_timelapse(timelapse_input_a, timelapse_input_b, timelapse_side or [], timelapse_output),
        timelapse_output=timelapse_output,
        keep_previews=write_image,
        logs=not no_logs,
        skip_bad_faces=skip_bad_faces,
        device=device,
        cache=cache,
        cache_gib=cache_size,
    )
    if summary:
        swap_train.print_summary(request)
        return
    status = swap_train.train(request, log_level=log_level, log_file=log_file, grace=grace)
    if status:
        sys.exit(status)


def _refuse_faceswap_options(preview: bool, distributed: bool, exclude_gpus: str | None) -> None:
    """Options that people know from Faceswap's command and that are not here; each says what to do instead.

    :raises UsageError: one of them was given.
    """
    for given, option, instead in (
        (preview, "-p/--preview", "There is no window: previews/latest.png in the run folder is drawn at every save."),
        (distributed, "-d/--distributed", "A run trains on one device; choose it with --device."),
        (exclude_gpus is not None, "-X/--exclude-gpus", "Name the one device to use instead, such as --device cuda:1."),
    ):
        if given:
            raise UsageError(f"{option} does not exist here.", advice=instead, option=option)


def _folders(
    a: Path | None, b: Path | None, further: list[str], option: str, *, required: bool = False
) -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for name, folder in (("a", a), ("b", b)):
        if folder is not None:
            folders[name] = folder
    for text in further:
        name, separator, folder_text = text.partition("=")
        name = name.strip().lower()
        if not separator or not folder_text or not name.isalnum():
            raise UsageError(
                f"{option} {text!r} is not a name and a folder.",
                advice=f"Write it like {option} c=faces/carol.",
                value=text,
            )
        if name in folders:
            raise UsageError(f"Side {name} is given twice.", advice=f"Give each {option} a name of its own.", side=name)
        folders[name] = Path(folder_text)
    if required and not folders:
        raise UsageError(
            "No folder of faces was given.",
            advice="Name two: -A with the face to be replaced, -B with the face to put in its place.",
        )
    return folders


def _timelapse(a: Path | None, b: Path | None, further: list[str], output: Path | None) -> dict[str, Path]:
    folders = _folders(a, b, further, "--timelapse-side")
    if output is not None and not folders:
        raise UsageError(
            "-z/--timelapse-output was given without faces to draw.", advice="Give -x, -y or both as well."
        )
    return folders


@app.command()
def convert(
    run: Annotated[Path, typer.Argument(help="The run folder of the trained model.", show_default=False)],
    faces: Annotated[Path, typer.Argument(help="A folder of extracted faces to swap.", show_default=False)],
    out: Annotated[Path, typer.Argument(help="Where the swapped faces go; made if missing.", show_default=False)],
    direction: Annotated[
        str, typer.Option("-d", "--direction", help="a_to_b puts b's face on a's pictures.")
    ] = "a_to_b",
    frames: Annotated[
        Path | None,
        typer.Option("--frames", help="The frames the faces were taken from; swapped frames go to OUT/frames."),
    ] = None,
    generation: Annotated[
        str | None, typer.Option("--generation", help="Use this saved state (an iteration) instead of the newest.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("-b", "--batch-size", help="Faces at once. Left out: as the run's options say.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu, cuda, cuda:1, mps. Left out: the GPU where there is one.")
    ] = None,
) -> None:
    """Swap the faces of a folder with a trained model, and paste them into their frames.

    Every picture written says in its metadata that it is synthetic. Use it for people who agree.

    Exit status: 0 all done, 1 some faces or frames were left out, and they are named.
    """
    if batch_size is not None:
        check_range("-b/--batch-size", batch_size, 1, 4096)
    from ostinato.cli import swap_convert

    status = swap_convert.convert(
        run, faces, out, direction=direction, frames=frames, generation=generation, batch_size=batch_size, device=device
    )
    if status:
        sys.exit(status)
