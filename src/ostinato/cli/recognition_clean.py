"""``ostinato recognition clean``: a set of training pictures without those that are probably mislabelled."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ostinato.cli.progress_bar import progress_bar
from ostinato.cli.trained_run_options import BatchSize, Device, Generation
from ostinato.cli.wording import check_range
from ostinato.errors import BadInputError, UsageError

_NAMED_AT_MOST = 10
_DOUBTFUL = 40.0  # percent; a run that has hardly learned drops more than this from a clean set


def clean(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The run folder of a recognition training.", show_default=False)
    ],
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="The set it was trained on: a .rec file, a folder with train.rec, or a folder of people.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT.rec", help="The file to write.", show_default=False)],
    degrees: Annotated[
        float, typer.Option("--degrees", help="A picture stays if its angle to the dominant sub-centre is below this.")
    ] = 75.0,
    min_images: Annotated[
        int, typer.Option("--min-images", help="People with fewer pictures were left out in training.")
    ] = 1,
    batch_size: BatchSize = 64,
    device: Device = None,
    generation: Generation = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
    max_bad_records: Annotated[
        int, typer.Option("--max-bad-records", help="Damaged pictures that are left out before giving up.")
    ] = 100,
) -> None:
    """Write a training set again without the pictures that a run takes for mislabelled.

    Train the run with several centres for each person (--set head.sub_centres=3): the clean pictures of a person gather
    around one of them, and what is far from it is dropped. Then train a plain run on what is left. Pictures are stored
    byte for byte as they were, and people are numbered anew without gaps.
    """
    if not 0 < degrees <= 180:
        raise UsageError(f"--degrees is {degrees:g}.", advice="Give more than 0 and at most 180.")
    check_range("--min-images", min_images, 1, None)
    check_range("-b/--batch-size", batch_size, 1, 65536)
    check_range("--max-bad-records", max_bad_records, 0, None)

    from ostinato.data.file_names import shown_name
    from ostinato.dist import Alone
    from ostinato.dist.devices import choose_device
    from ostinato.recognition.set_cleaning import clean_set, read_run_centres
    from ostinato.recognition.trained_run import read_trained_run

    trained = read_trained_run(run, generation=generation, device=choose_device(device, Alone()), whole=True)
    if trained.iteration is None:
        raise BadInputError(
            f"{shown_name(run)} is a file of weights, and holds no class centres.",
            advice="Give the run folder of a recognition training.",
        )
    for notice in trained.notices:
        typer.echo(notice)
    centres = read_run_centres(run, trained.iteration if generation is None else generation)
    each = "1 centre" if centres.sub_centres == 1 else f"{centres.sub_centres} centres"
    typer.echo(f"{trained.title}: {centres.classes:,} people, {each} each")
    if centres.sub_centres == 1:
        typer.echo(
            "With one centre each, mislabelled pictures pull at it too; a run with head.sub_centres=3 finds more."
        )
    with progress_bar("embedding") as progress:
        cleaned = clean_set(
            trained,
            centres,
            data,
            out,
            degrees=degrees,
            batch_size=batch_size,
            min_images=min_images,
            max_bad_records=max_bad_records,
            overwrite=overwrite,
            progress=progress,
        )
    if cleaned.unusable:
        typer.echo(f"damaged and left out: {cleaned.unusable:,}")
    share = 100 * len(cleaned.dropped) / cleaned.images
    typer.echo(
        f"dropped: {len(cleaned.dropped):,} of {cleaned.images:,} pictures ({share:.1f} %), {degrees:g} degrees or "
        "more from the dominant centre of their person"
    )
    for one in cleaned.dropped[:_NAMED_AT_MOST]:
        typer.echo(f"  {one.degrees:5.1f} degrees  class {one.label}  {one.place}")
    if len(cleaned.dropped) > _NAMED_AT_MOST:
        typer.echo(f"  and {len(cleaned.dropped) - _NAMED_AT_MOST:,} more")
    if share > _DOUBTFUL:
        typer.echo(
            "So many are more likely a sign that the run has not learned its people yet: train it for longer, or give "
            "more --degrees."
        )
    if cleaned.people_gone:
        named = ", ".join(shown_name(name) for name in cleaned.people_gone[:_NAMED_AT_MOST])
        more = ", ..." if len(cleaned.people_gone) > _NAMED_AT_MOST else ""
        typer.echo(f"people without a picture now: {len(cleaned.people_gone):,} of {cleaned.people:,} ({named}{more})")
    typer.echo(
        f"wrote {shown_name(out)}: {cleaned.packed.images:,} pictures of {cleaned.packed.identities:,} people, "
        f"{cleaned.packed.bytes:,} bytes"
    )
