"""The state of a head, by class number of the whole run: saved by any number of ranks, loaded by any other."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.recognition.class_centres import ClassCentres
from ostinato.runs.row_cut import RowCut, RowCutTable

FORMAT = 1
FILE = "centres"
"""How the files of the tables begin."""

_ROWS_AT_ONCE = 2**16
_logger = logging.getLogger(__name__)

Table = RowCutTable | RowCut | Tensor


def state_of(centres: ClassCentres, classes: int) -> dict[str, Any]:
    """What has to be saved of a rank's centres. They have to be up to date.

    :param classes: of the whole run.
    """
    return {
        "format": FORMAT,
        "classes": classes,
        "embedding_size": centres.embedding_size,
        "sub_centres": centres.sub_centres,
        "update": centres.rule.update,
        "rule": centres.rule.memory,
        "weight": _cut(centres, centres.weight, classes),
        "tables": {name: _cut(centres, table, classes) for name, table in centres.remembered().items()},
    }


def _cut(centres: ClassCentres, table: Tensor, classes: int) -> RowCut:
    rows = centres.sub_centres if table.ndim == 2 else 1
    return RowCut(table, centres.first_class * rows, classes * rows, file=FILE)


def load_state(centres: ClassCentres, classes: int, state: Mapping[str, Any]) -> None:
    """Read this rank's rows from a saved state. Nothing has changed when it is refused.

    A state without tables, or with those of another rule, gives the centres alone: momentum starts at zero, and the log
    says so.

    :raises ArgumentValueError: the state is of another format, or of a head of another size.
    :raises ArgumentTypeError: a table is no table.
    """
    if state.get("format") != FORMAT:
        raise ArgumentValueError(
            f"The state of the head has format {state.get('format')!r}, and {FORMAT} is the one that is known.",
            advice="It may come from a newer version of Ostinato.",
            format=state.get("format"),
        )
    mine = {
        "classes": classes,
        "embedding_size": centres.embedding_size,
        "sub_centres": centres.sub_centres,
    }
    differs = {name: state.get(name) for name, value in mine.items() if state.get(name) != value}
    if differs:
        said = ", ".join(f"{name} {value!r} (here {mine[name]})" for name, value in differs.items())
        advice = "Build the head as it was saved."
        if "classes" in differs:
            advice += " Classes can be added afterwards with grow()."
        raise ArgumentValueError(f"The state is of another head: {said}.", advice=advice, saved=differs)
    saved = _tables_of(centres, classes, state)
    if centres.rule.update == "dense_lazy":
        centres.forget_missed_steps()
    for name, target in centres.to_overwrite().items():
        if name in saved:
            _read(saved[name], target, centres.first_class * (centres.sub_centres if target.ndim == 2 else 1))
        else:
            target.zero_()


def _tables_of(centres: ClassCentres, classes: int, state: Mapping[str, Any]) -> dict[str, Table]:
    """The tables that can be read, each known to have the right shape."""
    saved: dict[str, Table] = {"weight": state["weight"]}
    wanted = list(centres.remembered())
    tables: Mapping[str, Table] = state.get("tables") or {}
    if state.get("rule", centres.rule.memory) == centres.rule.memory and all(name in tables for name in wanted):
        saved.update({name: tables[name] for name in wanted})
    elif wanted:
        _logger.warning(
            "The saved class centres come with the memory of %s, and these are updated by %s: %s start at zero.",
            state.get("rule", "no rule"),
            centres.rule.memory,
            " and ".join(wanted),
        )
    for name, table in saved.items():
        per_class = name == "class_steps"
        shape = (classes,) if per_class else (classes * centres.sub_centres, centres.embedding_size)
        if isinstance(table, RowCut):
            found = (table.total_rows, *table.tensor.shape[1:])
        elif isinstance(table, (RowCutTable, Tensor)):
            found = tuple(table.shape)
        else:
            raise ArgumentTypeError(
                f"The table {name!r} of the head's state is a {type(table).__name__}.",
                advice="Give a tensor of all rows, or what a run folder gives.",
            )
        if found != shape:
            raise ArgumentValueError(
                f"The table {name!r} of the head's state has shape {found}, and the head needs {shape}.",
                advice="The state was put together wrongly: rows are class * sub_centres + sub.",
                shape=found,
            )
        if isinstance(table, RowCut):
            _require_rows(name, table, centres, 1 if per_class else centres.sub_centres)
    return saved


def _require_rows(name: str, table: RowCut, centres: ClassCentres, rows: int) -> None:
    first, last = centres.first_class * rows, centres.last_class * rows
    if not table.first_row <= first <= last <= table.first_row + len(table.tensor):
        raise ArgumentValueError(
            f"The table {name!r} of the head's state is one rank's cut, rows {table.first_row} to "
            f"{table.first_row + len(table.tensor)}, and this rank needs {first} to {last}.",
            advice="Save it to a run folder and load it from there, or put the cuts of all ranks together.",
        )


def _read(table: Table, target: Tensor, first_row: int) -> None:
    """Rows ``first_row`` onwards into ``target``; needs memory for some of them."""
    for start in range(0, len(target), _ROWS_AT_ONCE):
        part = target[start : start + _ROWS_AT_ONCE]
        first, last = first_row + start, first_row + start + len(part)
        if isinstance(table, RowCutTable):
            part.copy_(table.read(first, last))
        elif isinstance(table, RowCut):
            part.copy_(table.tensor[first - table.first_row : last - table.first_row])
        else:
            part.copy_(table[first:last])
