"""``ostinato recognition plan``: what a head with so many classes needs of each rank."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from ostinato.cli.wording import check_range
from ostinato.errors import UsageError

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9}
_USUAL = ["100k", "1M", "10M", "100M", "1G"]


def plan(
    classes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CLASSES]...",
            help="Numbers of identities: 85742, 360k, 10M, 1G. Left out: 100k to 1G.",
            show_default=False,
        ),
    ] = None,
    ranks: Annotated[int, typer.Option("-np", "--ranks", help="Processes, one for each device.")] = 8,
    batch_size: Annotated[int, typer.Option("-b", "--batch-size", help="Samples of each rank in a step.")] = 128,
    embedding_size: Annotated[int, typer.Option("--embedding-size", help="Numbers in an embedding.")] = 512,
    sampling_rate: Annotated[
        float, typer.Option("-r", "--sampling-rate", help="The share of the classes that takes part in a step.")
    ] = 0.1,
    optimizer: Annotated[Literal["sgd", "adamw"], typer.Option("--optimizer", help="Of the class centres.")] = "sgd",
) -> None:
    """Show what the class centres of a training will need of each rank: memory, work and traffic of a step.

    Nothing is started and nothing is allocated. The backbone needs its memory too, whatever the number of identities.
    """
    check_range("-np/--ranks", ranks, 1, None)
    check_range("-b/--batch-size", batch_size, 1, None)
    check_range("--embedding-size", embedding_size, 1, None)
    check_range("-r/--sampling-rate", sampling_rate, 0, 1)
    numbers = [_number(text) for text in classes or _USUAL]
    from ostinato.recognition.planning import HeadPlan

    print(
        f"The head on each of {ranks:,} rank{'s' if ranks > 1 else ''}: {batch_size:,} samples a rank, embeddings of "
        f"{embedding_size:,}, sampling rate {sampling_rate:g}, {optimizer}, float32"
    )
    print()
    head = ("identities", "take part", "centres", "step", "together", "operations", "sent", "layer", "sent")
    lines = [head]
    for number in numbers:
        made = HeadPlan(number, embedding_size, batch_size, ranks, sampling_rate, optimizer)
        lines.append(
            (
                f"{number:,}",
                f"{made.taking_part:,}",
                _bytes(made.centres),
                _bytes(made.logits + made.features),
                _bytes(made.memory),
                _operations(made.operations),
                _bytes(made.sent),
                _bytes(made.dense_memory),
                _bytes(made.dense_sent),
            )
        )
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    print()
    print(
        "take part: identities of the rank in one step. centres: with the optimizer's tables; also what a save holds."
    )
    print("step: logits and embeddings, while a step runs. sent: in one step. layer, and sent behind it: memory and")
    print("traffic of an ordinary layer that every rank has whole.")
    sys.stdout.flush()


def _number(text: str) -> int:
    shown = text.strip().lower().replace(",", "").replace("_", "")
    factor = _SUFFIXES.get(shown[-1:], 1)
    digits = shown[:-1] if factor > 1 else shown
    try:
        number = float(digits) * factor
        if not 1 <= number <= 2**40 or number != int(number):
            raise ValueError
    except ValueError:
        raise UsageError(
            f"{text!r} is no number of identities.",
            advice="Give whole numbers such as 85742, 360k, 10M or 1G.",
            value=text,
        ) from None
    return int(number)


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.3g} {unit}"


def _operations(count: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if count < 1000 or unit == "T":
            break
        count /= 1000
    return f"{count:.3g} {unit}"
