"""``ostinato recognition verify``, ``embed`` and ``pairs``: what a trained model knows of people it has never seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostinato.cli.trained_run_options import AsJson, BatchSize, Device, Generation, RunOrWeights
from ostinato.cli.wording import check_range
from ostinato.errors import BadInputError, UsageError

if TYPE_CHECKING:
    from ostinato.dist import Group
    from ostinato.recognition.trained_run import TrainedRun
    from ostinato.recognition.verification import VerificationResult

PARTLY = 1
"""Exit status when something was left out."""

_NAMED_AT_MOST = 20


def verify(
    run: RunOrWeights,
    pairs: Annotated[
        list[Path],
        typer.Argument(
            metavar="PAIRS...",
            help="A .bin file, a list that `pairs` has written, a folder with a sub-folder per person, or one that is "
            "laid out as IJB-C (meta, loose_crop); or several.",
            show_default=False,
        ),
    ],
    far: Annotated[
        list[float] | None,
        typer.Option(
            "--far", help="Tell true accepts at this rate of false accepts; again for more. [0.1, 0.01, 0.001]"
        ),
    ] = None,
    roc: Annotated[
        Path | None, typer.Option("--roc", metavar="PICTURE.png", help="Draw the curves.", show_default=False)
    ] = None,
    batch_size: BatchSize = 64,
    device: Device = None,
    generation: Generation = None,
    as_json: AsJson = False,
) -> None:
    """Tell how well a trained model knows whether two pictures show the same person.

    Every picture is embedded plain and mirrored. Accuracy is measured by folds: the best threshold on the other folds
    decides on each. TAR at FAR is the share of pairs of the same person that are accepted at a threshold at which that
    share of pairs of different people is. Several processes, started by a launcher, share the work, but for templates.
    """
    check_range("--batch-size", batch_size, 1, 65536)
    for rate in far or ():
        if not 0 < rate < 1:
            raise UsageError(f"--far {rate:g} is no rate of false accepts.", advice="Give one between 0 and 1.")
    _check_picture_name(roc)

    from ostinato.cli.verification_text import template_lines, verification_lines
    from ostinato.data.file_names import shown_name
    from ostinato.dist import open_group
    from ostinato.recognition.verification import verify_pairs
    from ostinato.recognition.verification.pair_sources import open_pairs
    from ostinato.recognition.verification.result import FAR_TARGETS
    from ostinato.recognition.verification.template_folder import (
        is_template_folder,
        read_template_folder,
        verify_templates,
    )
    from ostinato.recognition.verification.templates import FAR_TARGETS as TEMPLATE_FAR_TARGETS

    with open_group() as group:
        tells = group.rank == 0
        say = typer.echo if tells and not as_json else _say_nothing
        if roc is not None and all(is_template_folder(path) for path in pairs):
            raise UsageError("--roc draws curves of pairs, and there are only templates.", advice="Leave it out.")
        template_sets = [(path, read_template_folder(path)) for path in pairs if is_template_folder(path)]
        sets = [(path, open_pairs(path, tell=say)) for path in pairs if not is_template_folder(path)]
        trained = _read_run(run, generation, device, group, say)
        found = []
        for path, opened in sets:
            with _progress(opened.name, tells and not as_json) as progress:
                verification = verify_pairs(
                    trained.model,
                    opened,
                    batch_size=batch_size,
                    device=_device_of(trained),
                    far_targets=tuple(far or FAR_TARGETS),
                    group=group,
                    progress=progress,
                )
            found.append((path, opened, verification))
            say("")
            for line in verification_lines(opened, verification):
                say(line)
        if not tells:
            return
    curves = []
    for path, templates in template_sets:
        with _progress(templates.name, not as_json) as progress:
            curve = verify_templates(
                trained.model, templates, batch_size=batch_size, device=_device_of(trained), progress=progress
            )
        rates = curve.at(tuple(far) if far else TEMPLATE_FAR_TARGETS)
        curves.append((path, templates, rates))
        say("")
        for line in template_lines(templates, rates):
            say(line)
    if roc is not None:
        _draw(roc, [(opened.name, verification.result) for _, opened, verification in found], trained.title)
        say(f"\nThe curves are in {shown_name(roc)}")
    if as_json:
        content = {
            "run": str(run),
            "iteration": trained.iteration,
            "backbone": trained.options.model.backbone,
            "sets": [
                {
                    "path": str(path),
                    "name": opened.name,
                    "pictures": verification.pictures,
                    "seconds": verification.seconds,
                    "notes": list(opened.notes),
                    **verification.result.to_dict(),
                }
                for path, opened, verification in found
            ],
            "template_sets": [
                {
                    "path": str(path),
                    "name": templates.name,
                    "pictures": len(templates.pictures),
                    "pairs": len(templates.same),
                    "same_pairs": int(templates.same.sum()),
                    "tar_at_far": [{"far_target": target, "tar": tar, "far": near} for target, tar, near in rates],
                }
                for path, templates, rates in curves
            ],
        }
        typer.echo(json.dumps(content, indent=2))


def embed(
    run: RunOrWeights,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="A folder with one sub-folder of pictures per person, or with pictures side by side.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT.npz", help="Where the embeddings go.", show_default=False)],
    normalise: Annotated[
        bool, typer.Option("--normalise/--raw", help="Bring embeddings to length 1, or leave them as they are.")
    ] = True,
    batch_size: BatchSize = 64,
    device: Device = None,
    generation: Generation = None,
    as_json: AsJson = False,
) -> None:
    """Write the embeddings of all pictures of a folder.

    The file holds: names (paths relative to the folder), labels (the number of the person, -1 for pictures that lie
    side by side), people (their names), embeddings (float32; the plain and the mirrored picture's added) and normalised
    (true or false). NumPy reads it without pickle. Pictures that cannot be used are named and left out, and the exit
    status is then 1.
    """
    check_range("--batch-size", batch_size, 1, 65536)
    if out.suffix != ".npz":
        raise UsageError(f"{out} should end in .npz.", advice="That is what the file is: several NumPy arrays in one.")

    from ostinato.data.file_names import shown_name
    from ostinato.dist import Alone
    from ostinato.recognition.verification.folder_embeddings import embed_folder

    say = _say_nothing if as_json else typer.echo
    trained = _read_run(run, generation, device, Alone(), say)
    with _progress("embedding", not as_json) as progress:
        result = embed_folder(
            trained.model,
            folder,
            normalise=normalise,
            batch_size=batch_size,
            device=_device_of(trained),
            progress=progress,
        )
    result.write(out)
    for note in result.notes:
        say(note)
    for reason in result.left_out[:_NAMED_AT_MOST]:
        say(f"left out: {reason}")
    if len(result.left_out) > _NAMED_AT_MOST:
        say(f"left out: {len(result.left_out) - _NAMED_AT_MOST:,} more")
    kind = "of length 1" if normalise else "as they are"
    say(
        f"{len(result.names):,} embeddings of {len(result.people):,} people, {result.embeddings.shape[1]} numbers "
        f"each, {kind}, are in {shown_name(out)}"
    )
    if as_json:
        content = {
            "out": str(out),
            "iteration": trained.iteration,
            "embeddings": len(result.names),
            "people": len(result.people),
            "embedding_size": result.embeddings.shape[1],
            "normalised": normalise,
            "left_out": list(result.left_out),
        }
        typer.echo(json.dumps(content, indent=2))
    if result.left_out:
        raise typer.Exit(PARTLY)


def pairs(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="A folder with one sub-folder of pictures per person.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT.txt", help="Where the list goes.", show_default=False)],
    pair_count: Annotated[int, typer.Option("-n", "--pairs", help="How many pairs at most; half of them same.")] = 6000,
    folds: Annotated[int, typer.Option("--folds", help="Into how many folds they are cut.")] = 10,
    seed: Annotated[int, typer.Option("--seed", help="Another seed draws other pairs.")] = 1,
    bin_file: Annotated[
        Path | None,
        typer.Option(
            "--bin", metavar="OUT.bin", help="Write the pictures too, as the .bin file others read.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a list of pairs of a folder of people, to verify models with.

    Take people whom the model was not trained on. Half of the pairs show one person and half two, in every fold, and
    the folds share no people where there are enough of them (20 for 10 folds). The same seed and pictures give the same
    list.
    """
    check_range("--folds", folds, 1, 1000)
    check_range("--pairs", pair_count, 2 * folds, 10_000_000)
    check_range("--seed", seed, 0, 2**63)
    if out.suffix == ".bin":
        raise UsageError(
            f"{out} should be a list, which is text.", advice=f"Write: pairs {folder} pairs.txt --bin {out}"
        )

    from ostinato.data.file_names import shown_name
    from ostinato.recognition.verification import write_pair_file
    from ostinato.recognition.verification.pair_list import describe_pair_list, make_pair_list, write_pair_list

    say = _say_nothing if as_json else typer.echo
    made = make_pair_list(folder, pairs=pair_count, folds=folds, seed=seed, tell=say)
    write_pair_list(out, made)
    say(f"{describe_pair_list(made)}: {shown_name(out)}")
    if bin_file is not None:
        with _progress("packing", not as_json) as progress:
            write_pair_file(bin_file, made.pair_set(out.stem), progress=progress)
        say(f"the same with its pictures, 112 pixels a side: {shown_name(bin_file)}")
    if as_json:
        content: dict[str, Any] = {
            "out": str(out),
            "bin": None if bin_file is None else str(bin_file),
            "pairs": len(made.same),
            "same_pairs": int(made.same.sum()),
            "pictures": len(made.files),
            "folds": made.folds,
            "folds_are_disjoint": made.folds_are_disjoint,
            "seed": seed,
        }
        typer.echo(json.dumps(content, indent=2))


def _read_run(
    run: Path, generation: str | None, device: str | None, group: Group, say: Callable[[str], object]
) -> TrainedRun:
    from ostinato.dist.devices import choose_device
    from ostinato.recognition.trained_run import read_trained_run

    where = choose_device(device, group)
    trained = read_trained_run(run, generation=generation, device=where)
    for notice in trained.notices:
        say(notice)
    say(f"{trained.title}, {trained.options.model.embedding_size} numbers a face, on {where}")
    return trained


def _device_of(trained: TrainedRun) -> Any:
    return next(trained.model.parameters()).device


def _check_picture_name(roc: Path | None) -> None:
    if roc is not None and roc.suffix.lower() != ".png":
        raise UsageError(f"--roc {roc} should end in .png.", advice="Curves are drawn as PNG pictures.")


def _draw(path: Path, results: list[tuple[str, VerificationResult]], title: str) -> None:
    from ostinato.data.pictures import encode_png
    from ostinato.recognition.verification.roc_picture import draw_roc
    from ostinato.runs.atomic import Files

    if path.is_dir():
        raise BadInputError(f"{path} is a folder.", advice="Name a picture in it.", path=str(path))
    Files().make_folder(path.parent)
    Files().replace(path, encode_png(draw_roc(results, title)))


@contextmanager
def _progress(what: str, wanted: bool) -> Generator[Callable[[int, int], None]]:
    """A bar on a terminal, and nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False, markup=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (wanted and console.is_terminal)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _say_nothing(_text: str) -> None:
    """For --json, and for ranks other than 0."""
