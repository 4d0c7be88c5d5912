"""What ``ostinato swap train`` shows and how it ends; the training itself is :mod:`ostinato.swap.training`."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ostinato.cli.training_console import Tell, open_console, telling_of_saves, train_to_the_end
from ostinato.config import SwapOptions, read_options, render_yaml
from ostinato.data.file_names import shown_name
from ostinato.errors import NonFiniteError
from ostinato.extensions import Progress
from ostinato.swap.request import TrainingRequest
from ostinato.swap.training import SwapTraining, build_swap_model, open_training, summary_options
from ostinato.swap.watching import LATEST, saves_and_previews


def print_options(config: Path | None, overrides: list[str]) -> None:
    """Print all options with their values, commented, as a YAML file that ``--config`` takes."""
    options = read_options(SwapOptions, config, overrides).options
    Console(highlight=False, soft_wrap=True, markup=False).print(render_yaml(options), end="")


def print_summary(request: TrainingRequest) -> None:
    """Print the layers of the model of a run that is there, or that a new run would have. Touches no folder."""
    console = Console(highlight=False, markup=False)
    options, sides = summary_options(request, console.print)
    model = build_swap_model(options, sides)
    table = Table(title=f"{model.name}: {model.input_size} pixels in, {', '.join(map(str, model.output_sizes))} out")
    for heading in ("part", "layer", "weights"):
        table.add_column(heading)
    table.add_column("parameters", justify="right")
    total = 0
    for part_name, part in model.named_children():
        for layer_name, layer in part.named_children():
            shapes = [tuple(parameter.shape) for parameter in layer.parameters()]
            count = sum(parameter.numel() for parameter in layer.parameters())
            if count:
                table.add_row(part_name, layer_name, " ".join("x".join(map(str, s)) for s in shapes), f"{count:,}")
        part_count = sum(parameter.numel() for parameter in part.parameters())
        table.add_row(part_name, "all", "", f"{part_count:,}", style="bold", end_section=True)
        total += part_count
    console.print(table)
    console.print(f"{total:,} parameters: {total * 4 / 2**20:,.0f} MiB of weights, four times that while training.")


def train(
    request: TrainingRequest, *, log_level: str = "info", log_file: Path | None = None, grace: float | None = None
) -> int:
    """Train, showing how it goes. Returns the exit status: 0, or 128 and the number of the signal that ended it."""
    with open_console(log_level, log_file) as (console, tell):
        while True:
            status = _train_until_failure(request, console, tell, grace)
            if status is not None:
                return status
            gc.collect()  # the model that failed is held by cycles, and the next one needs its memory
            request = replace(request, recover=True, find_rate="never")


def _train_until_failure(request: TrainingRequest, console: Console, tell: Tell, grace: float | None) -> int | None:
    """One session. The exit status; None when a number was not finite and the run is to recover by itself."""
    training = None
    try:
        with open_training(request, tell=tell, on_save=telling_of_saves(tell)) as training:
            if training is None:
                return 0
            return _run(training, console, tell, request.batch_size * len(training.model.sides), grace)
    except NonFiniteError as error:
        # Without a training, recovering itself was refused; and whoever has asked for the end gets it.
        if training is None or not training.recovers or training.trainer.stop_reason is not None:
            raise
        tell(error.what)
    return None


def _run(training: SwapTraining, console: Console, tell: Tell, faces: int, grace: float | None) -> int:
    trainer = training.trainer
    trainer.extend(Progress(tell, console=console, faces_per_iteration=faces), ranks=0)
    if training.device.type != "cpu":
        tell(f"training on {training.device}")
    status = train_to_the_end(
        trainer,
        training.snapshot,
        console,
        tell,
        keys={
            "s": saves_and_previews(training.snapshot, training.preview),
            "r": training.preview.request,
            "m": training.preview.toggle_mask,
        },
        keys_help="keys: Enter save and quit, S save, R new preview, M mask in the preview; Ctrl-C saves and quits",
        grace=grace,
    )
    preview = training.preview.folder / LATEST
    if preview.exists():
        tell(f"preview: {shown_name(preview)}")
    return status
