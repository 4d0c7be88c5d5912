"""What ``ostinato swap convert`` shows; the work is done by :mod:`ostinato.swap.convert`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ostinato.data.file_names import shown_name
from ostinato.dist.devices import choose_device
from ostinato.swap.convert import FRAMES_FOLDER, convert_faces
from ostinato.swap.trained_model import Direction, load_trained_model

_NAMED_AT_MOST = 20

PARTLY = 1
"""Exit status when something was left out."""


def convert(
    run: Path,
    faces: Path,
    out: Path,
    *,
    direction: str,
    frames: Path | None = None,
    generation: str | None = None,
    batch_size: int | None = None,
    device: str | None = None,
) -> int:
    """Swap a folder of faces and say what was done. Returns the exit status."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    where = choose_device(device)
    trained = load_trained_model(run, Direction.parse(direction), generation=generation, device=where)
    console.print(
        f"{trained.options.model.name} at iteration {trained.iteration:,}: {trained.direction.target}'s face on "
        f"{trained.direction.source}'s pictures"
    )
    columns = (TextColumn("swapping"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("swapping", total=None)
        result = convert_faces(
            trained.model,
            faces,
            out,
            crop=trained.crop,
            mask=trained.mask,
            direction=str(trained.direction),
            batch_size=batch_size or trained.options.convert.convert_batchsize,
            frames=frames,
            device=where,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    for note in result.notes:
        console.print(note)
    for skipped in result.skipped[:_NAMED_AT_MOST]:
        console.print(f"left out: {shown_name(skipped.name)}: {skipped.reason}")
    if len(result.skipped) > _NAMED_AT_MOST:
        console.print(f"left out: {len(result.skipped) - _NAMED_AT_MOST} more")
    console.print(f"{result.faces_written:,} swapped faces are in {shown_name(out)}, marked as synthetic")
    if frames is not None:
        console.print(f"{result.frames_written:,} swapped frames are in {shown_name(out / FRAMES_FOLDER)}")
    return 0 if result.is_complete else PARTLY
