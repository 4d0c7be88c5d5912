"""``ostinato runs``: look at run folders, check them, go back, compare."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ostinato.data.file_names import shown_name
from ostinato.errors import BadInputError, DamagedRunError, RunError, UsageError
from ostinato.runs.atomic import ChecksumMismatchError
from ostinato.runs.generation_files import STATE_FILE, DamagedGenerationError, using
from ostinato.runs.identity import RUN_FILE, read_identity
from ostinato.runs.journal import JOURNAL_FILE, Journal
from ostinato.runs.lock import current_holder
from ostinato.runs.manifest import Manifest
from ostinato.runs.moves import INTENT_FILE, pending_moves
from ostinato.runs.retention import policy_of, why_kept
from ostinato.runs.sessions import Session
from ostinato.runs.view import GENERATIONS, RunView

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Look at run folders: list, show, verify, restore, compare.",
)

_DEPTH = 3
_RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]


@app.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(help="Where to look; folders inside are searched too.")] = Path("."),
) -> None:
    """Show the runs below a folder: how far they are, their last loss, their size."""
    if not folder.is_dir():
        raise BadInputError(f"There is no folder {folder}.")
    rows = []
    for path in _find_runs(folder, _DEPTH):
        try:
            scan = RunView(path).scan()
        except RunError:  # of a newer format; the others can be shown
            rows.append([_name(path, folder), "", "", "", _size(_folder_bytes(path)), "", "made by a newer Ostinato"])
            continue
        regular = [m for m in scan.manifests if not m.name.error]
        newest = regular[-1] if regular else None
        is_damaged = bool(scan.damage) or (newest is None and bool(RunView(path).lost_state()))
        rows.append(
            [
                _name(path, folder),
                newest.run.get("recipe", "") if newest else "",
                f"{newest.iteration:,}" if newest else ("none left" if is_damaged else "not saved yet"),
                _loss(newest.average_loss) if newest else "",
                _size(_folder_bytes(path)),
                _time(newest.time) if newest else "",
                "training" if current_holder(path) else ("damaged" if is_damaged else ""),
            ]
        )
    if not rows:
        typer.echo(f"No runs in {folder}.")
        return
    _table(["run", "recipe", "iteration", "loss", "size", "last saved (UTC)", ""], rows, right={2, 3, 4})


@app.command()
def show(run: _RunArgument) -> None:
    """Show one run: its generations and why they are kept, and its sessions."""
    view = _view(run)
    scan = view.scan()
    try:
        identity = read_identity(run)
        begun = shown_name(_time(identity.created))
        typer.echo(f"{shown_name(run)}  {shown_name(identity.recipe) or 'run'}, begun {begun} UTC")
    except ChecksumMismatchError as error:
        typer.echo(f"{shown_name(run)}  {RUN_FILE} {error}; nothing is lost, it is written anew at the next start")
    holder = current_holder(run)
    if holder is not None:
        typer.echo(f"trained now by {shown_name(str(holder))}")
    _tell_pending(run)
    kept = why_kept(scan.manifests, policy_of(scan.manifests))
    typer.echo("")
    rows = [_generation_row(m, kept[m.generation]) for m in scan.manifests]
    if rows:
        _table(["generation", "saved (UTC)", "loss", "size", "made as", "kept as"], rows, right={2, 3})
    elif not scan.damage:
        typer.echo(shown_name(view.lost_state()) or "no generation yet")
    for damage in scan.damage:
        typer.echo(f"damaged: {damage}")
    for name, names in view.set_aside().items():
        if names:
            typer.echo(f"set aside by a restore ({name}): {', '.join(map(str, names))}")
    _show_sessions(view, scan.manifests)


@app.command()
def verify(
    run: _RunArgument,
    generation: Annotated[
        str, typer.Argument(help="An iteration or a generation; all of them if left out.", show_default=False)
    ] = "",
) -> None:
    """Read every byte of a run's generations and name what is wrong. Ends with status 4 when something is."""
    from ostinato.runs.verification import verify_generation

    view = _view(run)
    names = [view.find(generation)] if generation else view.names()
    wrong = []
    try:
        read_identity(run)
    except ChecksumMismatchError as error:
        typer.echo(f"{RUN_FILE} {error}; nothing is lost, it is written anew at the next start")
    _, broken = Journal(run / JOURNAL_FILE).read() if (run / JOURNAL_FILE).exists() else ([], 0)
    if broken:
        typer.echo(f"{JOURNAL_FILE} has {broken} unreadable line(s); it is a convenience, no state is lost")
    _tell_pending(run)
    for name in names:
        damage = verify_generation(view.locate(name))
        typer.echo(f"{name}  {'damaged' if damage else 'whole'}")
        for found in damage:
            typer.echo(f"  {found.file} {found.what}")
        wrong += damage
    if wrong:
        whole = [str(name) for name in names if str(name) not in {found.generation for found in wrong}]
        regular = [name for name in whole if not name.endswith("-error")]
        raise DamagedRunError(
            f"{len({found.generation for found in wrong})} of {len(names)} generation(s) of {run} are damaged.",
            advice=f"Training would go on from {regular[-1]} and move newer, damaged ones aside."
            if regular
            else "None is whole. Put the files back from a backup.",
            folder=run,
            damage=wrong,
        )
    if not any(not name.error for name in names):
        lost = view.lost_state()
        if lost:
            raise DamagedRunError(lost, advice="Put the files back from a backup.", folder=run, damage=[])
    if not names:
        typer.echo("no generation yet")


@app.command()
def restore(
    run: _RunArgument,
    generation: Annotated[
        str, typer.Argument(help="The iteration or generation to go back to.", show_default=False)
    ] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Bring back what the last restore set aside.")] = False,
) -> None:
    """Go back to an older generation. What is newer is set aside, not deleted."""
    if undo == bool(generation):
        raise UsageError("Say which generation to restore, or --undo.", advice="'ostinato runs show' lists them.")
    from ostinato.runs.folder import RunFolder

    _view(run)
    with RunFolder(run) as folder:
        before = folder.names()
        manifest = folder.undo_restore() if undo else folder.restore(generation)
        gone = [str(name) for name in before if name not in folder.names()]
    if gone:
        typer.echo(f"Set aside below {run / GENERATIONS / 'set-aside'}: {', '.join(gone)}.")
    elif folder.names() == before:
        typer.echo(f"Generation {manifest.generation} is the newest one already; nothing was changed.")
        return
    typer.echo(f"Training goes on from iteration {manifest.iteration:,}.")
    if gone:
        typer.echo(f"To take this back: ostinato runs restore {run} --undo")


@app.command()
def diff(
    first: Annotated[str, typer.Argument(metavar="RUN[@GENERATION]", help="A run, its newest state by default.")],
    second: Annotated[str, typer.Argument(metavar="RUN[@GENERATION]", help="What to compare it with.")],
    weights: Annotated[int, typer.Option("--weights", min=0, help="How many weights to list.")] = 20,
) -> None:
    """Compare two states, of one run or of two: counters, options, weights."""
    from ostinato.runs.compare import compare

    one, other = _load(first), _load(second)
    for title, text, loaded in (("first ", first, one), ("second", second, other)):
        typer.echo(f"{title}  {shown_name(text)}, iteration {loaded.iteration:,}")
    found = compare(one, other)
    for title, changes in (("counters", found.counters), ("options", found.options)):
        typer.echo(f"\n{title}: {len(changes) or 'no'} difference{'s' if len(changes) != 1 else ''}")
        if changes:
            rows = [[c.name, _value(c.before), _value(c.after)] for c in changes]
            _table(["", "first", "second"], rows, right={1, 2}, fold=True)
        if changes is found.counters and not found.same_losses:
            typer.echo("The losses are of different kinds and cannot be compared.")
    typer.echo(f"\nweights: {len(found.weights)} differ, {found.equal_weights} are equal bit for bit")
    shown = found.weights[:weights]
    if shown:
        rows = [[w.name, _value(w.before, 4), _value(w.after, 4), _percent(w.relative)] for w in shown]
        _table(["norms", "first", "second", "moved"], rows, right={1, 2, 3}, fold=True)
    if len(found.weights) > len(shown):
        typer.echo(f"... and {len(found.weights) - len(shown)} more; --weights shows more")


# --- helpers ----------------------------------------------------------------------------------------------------------


def _view(run: Path) -> RunView:
    if not run.is_dir():
        raise BadInputError(f"There is no folder {run}.")
    if not _is_run(run):
        raise BadInputError(
            f"{run} is not a run folder: it has neither {RUN_FILE} nor {GENERATIONS}/.",
            advice=f"'ostinato runs list {run}' shows the runs inside.",
        )
    return RunView(run)


def _is_run(path: Path) -> bool:
    return (path / GENERATIONS).is_dir() or (path / RUN_FILE).is_file()


def _find_runs(folder: Path, depth: int) -> Iterator[Path]:
    if _is_run(folder):
        yield folder
    elif depth > 0:
        try:
            children = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink())
        except PermissionError:
            return
        for child in children:
            if not child.name.startswith("."):
                yield from _find_runs(child, depth - 1)


def _name(run: Path, folder: Path) -> str:
    return str(run.relative_to(folder)) if run != folder else str(run)


def _load(text: str) -> Any:
    from ostinato.runs.folder import RunFolder

    path, _, generation = text.rpartition("@")
    if Path(text).is_dir() or not path:
        path, generation = text, ""
    _view(Path(path))
    run = RunFolder(Path(path))
    loaded = run.read(generation) if generation else run.load_newest()
    if loaded is None:
        raise BadInputError(f"The run {path} has not been saved yet.")
    return loaded


def _generation_row(manifest: Manifest, kept: Sequence[str]) -> list[str]:
    return [
        manifest.generation,
        _time(manifest.time),
        _loss(manifest.average_loss),
        _size(manifest.total_bytes),
        ", ".join(manifest.reasons),
        ", ".join(kept) or "removed at the next save",
    ]


def _show_sessions(view: RunView, manifests: Sequence[Manifest]) -> None:
    for manifest in reversed([m for m in manifests if not m.name.error]):
        try:
            sessions, defaults = _sessions_of(view, manifest)
        except DamagedGenerationError as error:
            typer.echo(f"damaged: {error.damage}")
            continue
        typer.echo("")
        rows = [
            [
                str(session.number),
                _time(session.started),
                f"{session.start_iteration:,}",
                f"{session.iterations:,}",
                str(session.batch_size or ""),
                _changes({**defaults, **sessions[index - 1].options}, session.options) if index else "",
            ]
            for index, session in enumerate(sessions)
        ]
        if rows:
            titles = ["session", "started (UTC)", "from", "iterations", "batch", "options changed"]
            _table(titles, rows, right={0, 2, 3, 4})
        return


def _sessions_of(view: RunView, manifest: Manifest) -> tuple[list[Session], dict[str, Any]]:
    """The sessions, and what options are that the program of an earlier session did not know yet."""
    state = view.state_of(manifest.name)

    def parse() -> tuple[list[Session], dict[str, Any]]:
        return [Session.from_json(session) for session in state["sessions"]], dict(
            state.get("options", {}).get("defaults", {})
        )

    return using(view.locate(manifest.name), STATE_FILE, parse)


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {before.get(name)} -> {after[name]}" for name in after if before.get(name) != after[name])


def _tell_pending(run: Path) -> None:
    try:
        moves = pending_moves(run)
    except ChecksumMismatchError as error:
        typer.echo(f"{INTENT_FILE} {error}; it is moved aside at the next start")
        return
    if moves is not None:
        typer.echo(f"a restore of generation {shown_name(moves.target)} was interrupted; the next start finishes it")


def _folder_bytes(path: Path) -> int:
    total = 0
    seen: set[tuple[int, int]] = set()
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                entry = os.lstat(os.path.join(folder, name))
            except OSError:  # removed by the trainer while we looked
                continue
            if (entry.st_dev, entry.st_ino) not in seen:  # files that generations share count once
                seen.add((entry.st_dev, entry.st_ino))
                total += entry.st_size
    return total


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    raise AssertionError("unreachable")


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.5f}"


def _percent(value: float) -> str:
    return "" if value == float("inf") else f"{100 * value:.3g} %"


def _value(value: Any, digits: int = 6) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def _time(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return text
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], right: set[int], *, fold: bool = False) -> None:
    """A table: as wide as the terminal; plain aligned columns everywhere else, so that other programs can cut them.

    Run folders may come from anywhere, so what a terminal would obey is shown and not sent.

    :param fold: into 80 columns where there is no terminal; for what people read and no program.
    """
    rows = [[shown_name(cell) for cell in row] for row in rows]
    if sys.stdout.isatty() or fold:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for index, title in enumerate(titles):
            table.add_column(Text(title), justify="right" if index in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        Console(width=None if sys.stdout.isatty() else 80).print(table)
        return
    widths = [max(len(row[index]) for row in [titles, *rows]) for index in range(len(titles))]
    for row in [titles, *rows]:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo("  ".join(cells).rstrip())
