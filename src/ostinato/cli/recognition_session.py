"""What ``ostinato recognition train`` shows and how it ends; the training itself is
:mod:`ostinato.recognition.training`."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ostinato.cli.training_console import Tell, open_console, telling_of_saves, train_to_the_end
from ostinato.config import render_yaml
from ostinato.config.recognition_presets import PUBLISHED_SETS, RECOGNITION_PRESETS
from ostinato.dist import Alone, Group, detect_placement, open_group
from ostinato.dist.meeting import meeting_file
from ostinato.loop import Extension, TrainerView
from ostinato.recognition.progress import RecognitionProgress
from ostinato.recognition.request import RecognitionRequest
from ostinato.recognition.run_options import asked_options
from ostinato.recognition.speed_test import measure_speed
from ostinato.recognition.training import RecognitionTraining, open_training

_TABLE_WIDTH = 150


def print_options(config: Path | None, preset: str | None, overrides: list[str]) -> None:
    """Print all options with their values, commented, as a YAML file that ``--config`` takes."""
    request = RecognitionRequest("", Path(), preset=preset, config=config, overrides=tuple(overrides))
    options = asked_options(request, lambda _: None).options
    Console(highlight=False, soft_wrap=True, markup=False).print(render_yaml(options), end="")


def print_presets() -> None:
    """Print the published configurations."""
    table = Table(box=None, pad_edge=False)
    for heading in ("preset", "network", "margin", "classes sampled", "batch", "rate", "passes", "data", "people"):
        numbers = heading in ("batch", "rate", "passes", "people")
        table.add_column(heading, justify="right" if numbers else "left", no_wrap=True)
    for name, preset in RECOGNITION_PRESETS.items():
        margin = "CosFace 0.4" if preset.margin[2] else "ArcFace 0.5"
        table.add_row(
            name,
            preset.backbone,
            margin,
            f"{preset.sampling_rate:g}",
            f"{preset.total_batch:,}",
            f"{preset.learning_rate:g}",
            str(preset.epochs),
            preset.data,
            f"{PUBLISHED_SETS[preset.data].classes:,}",
        )
    width = max(Console().width, _TABLE_WIDTH)  # a terminal folds long lines; cut names would be of no use
    Console(highlight=False, markup=False, width=width).print(table)


def print_speed(request: RecognitionRequest, *, updates: int, timeout: float) -> None:
    """Measure where the time of an update goes, and print it."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    with _open_ranks(request.device, timeout) as group:
        tell: Tell = console.print if group.rank == 0 else _say_nothing
        report = measure_speed(request, updates=updates, tell=tell, group=group)
        for line in report.lines():
            tell(line)


def train(
    request: RecognitionRequest, *, log_level: str, log_file: Path | None, grace: float | None, timeout: float
) -> int:
    """Train, showing how it goes. Returns the exit status: 0, or 128 and the number of the signal that ended it."""
    with open_console(log_level, log_file) as (console, tell_here), _open_ranks(request.device, timeout) as group:
        tell: Tell = tell_here if group.rank == 0 else _say_nothing
        with open_training(request, tell=tell, group=group, on_save=telling_of_saves(tell)) as training:
            return 0 if training is None else _run(training, group, console, tell, grace)


def _run(training: RecognitionTraining, group: Group, console: Console, tell: Tell, grace: float | None) -> int:
    trainer = training.trainer
    trainer.extend(RecognitionProgress(tell, console=console, epoch_length=training.epoch_length), ranks=0)
    trainer.extend(_VerificationLines(tell), ranks=0)
    if training.device.type != "cpu":
        tell(f"training on {training.device}")
    return train_to_the_end(
        trainer,
        training.snapshot,
        console,
        tell,
        keys={"s": training.snapshot.request_save} if group.rank == 0 else None,
        keys_help="keys: Enter save and quit, S save; Ctrl-C saves and quits",
        grace=grace,
        on_leaving=group.abort,
    )


class _VerificationLines(Extension):
    """Tells what verification has found, one line for each set of pairs."""

    name = "verification_lines"

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def __call__(self, trainer: TrainerView) -> None:
        seen = trainer.observation
        for key in seen:
            if key.startswith("verification/") and key.endswith("/accuracy"):
                found = {name: float(seen[f"{key}{name}"]) for name in ("", "_std") if f"{key}{name}" in seen}
                place = key.removesuffix("accuracy")
                best = float(seen.get(f"{place}highest_accuracy", found[""]))
                self._tell(
                    f"{place.split('/')[1]} at iteration {trainer.updater.state.iteration:,}: accuracy "
                    f"{100 * found['']:.2f} % ± {100 * found.get('_std', 0.0):.2f}, XNorm "
                    f"{float(seen[f'{place}xnorm']):.3f}, highest {100 * best:.2f} %"
                )


@contextlib.contextmanager
def _open_ranks(device: str | None, timeout: float) -> Generator[Group]:
    """The ranks that a launcher has started; one alone without."""
    placement = detect_placement()
    if placement is None or placement.size == 1:
        yield Alone()
        return
    backend = "gloo" if device == "cpu" else None
    with open_group(backend=backend, timeout=timeout, placement=placement, rendezvous=meeting_file(placement)) as group:
        yield group


def _say_nothing(_: str) -> None:
    """Another rank says it."""
