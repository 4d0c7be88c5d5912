"""``ostinato demo``: a whole swap in minutes, on two drawn people, judged against the true swap."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ostinato.cli.wording import check_place, check_range

FACES = 300
FACE_SIZE = 160
UNSEEN = 24
SHOWN = 8
BATCH_SIZE = 4
ITERATIONS = 300
SAVE_INTERVAL = 50


def demo(
    folder: Annotated[
        Path, typer.Argument(help="Where everything goes: faces, the run, swapped faces.", show_default=True)
    ] = Path("demo"),
    iterations: Annotated[
        int, typer.Option("-i", "--iterations", help="How long to train; more makes sharper faces.")
    ] = ITERATIONS,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu, cuda, cuda:1, mps. Left out: the GPU where there is one.")
    ] = None,
) -> None:
    """Draw two people, train a swap for a few minutes, and show how near it comes to the true swap.

    Kill it whenever you like and start it again: it goes on where it was.
    """
    check_range("-i/--iterations", iterations, 1, None)
    check_place(folder)
    status = run_demo(folder, iterations, device)
    if status:
        sys.exit(status)


def run_demo(folder: Path, iterations: int, device: str | None = None) -> int:
    """Draw, train, convert, compare; prints what a person should know. Returns the exit status."""
    from rich.console import Console

    from ostinato.cli import swap_convert, swap_train
    from ostinato.swap.drawn_task import (
        comparison_sheet,
        swapped,
        unseen_faces,
        write_training_folders,
        write_unseen_folder,
    )
    from ostinato.swap.preview import write_picture
    from ostinato.swap.request import TrainingRequest
    from ostinato.swap.trained_model import Direction, load_trained_model
    from ostinato.swap.training import build_swap_model

    console = Console(highlight=False, markup=False, soft_wrap=True)
    folders = write_training_folders(folder / "faces", FACES, FACE_SIZE, console.print)
    request = TrainingRequest(
        folders=folders,
        run_folder=folder / "run",
        model="lightweight",
        batch_size=BATCH_SIZE,
        iterations=iterations,
        save_interval=SAVE_INTERVAL,
        snapshot_interval=0,
        # A real run takes days, with small steps and every face a little different each time. This one has minutes:
        # large steps, and faces as they are; the drawn ones vary enough in pose and light.
        overrides=(
            "seed=1",
            "optimizer.learning_rate=0.0003",
            "augmentation.preview_images=8",
            "loader.num_processes=1",
        ),
        overrides_of="demo",
        augment_color=False,
        flip=False,
        warp=False,
        device=device,
        cache=folder / "cache",
        cache_gib=1,
    )
    console.print(
        f"training a {request.model} model for {iterations:,} iterations, with larger steps than usual since it "
        "has minutes and not days; Ctrl-C saves and leaves"
    )
    status = swap_train.train(request)
    if status:
        return status
    trained = load_trained_model(folder / "run", Direction("a", "b"))
    # The seed is an option, so the first weights can be had again at any time.
    untrained = build_swap_model(trained.options, tuple(folders)).inference_model("b")
    untrained.eval()
    unseen = unseen_faces(UNSEEN, trained.model.input_size)
    result = swapped(trained.model, unseen)
    console.print(f"\nLikeness of {UNSEEN} unseen pictures of a to the true swaps, inside the face:\n")
    console.print(f"{'':28}{'SSIM':>8}{'PSNR':>10}")
    for name, pictures in (
        ("not swapped: a's own face", unseen.sources),
        ("swapped before training", swapped(untrained, unseen)),
        ("swapped after training", result),
    ):
        likeness = unseen.similarity(pictures)
        console.print(f"{name:28}{likeness.ssim:8.3f}{likeness.psnr:7.2f} dB")
    console.print()
    sheet = write_picture(folder / "comparison.png", comparison_sheet(unseen, result, SHOWN))
    swap_convert.convert(
        folder / "run",
        write_unseen_folder(folder / "unseen", UNSEEN, FACE_SIZE),
        folder / "swapped",
        direction="a_to_b",
        device=device,
    )
    console.print("\nLook at:")
    for path, what in (
        (sheet, "unseen pictures of a, their swaps, and the true swaps"),
        (folder / "run" / "previews" / "latest.png", "the preview sheet"),
        (folder / "swapped", "swapped faces"),
        (folder / "run" / "logs", "losses, for TensorBoard and as metrics.jsonl"),
    ):
        console.print(f"  {path}: {what}")
    return 0
