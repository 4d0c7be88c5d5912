"""The state of a parameter trainer as a tree by parameter name.

Numbers shift when a parameter is added or frozen; names do not. So a state that was saved for some parameters can be
loaded for others: what fits by name continues, new parameters start fresh, and what is left over is named in the log.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ostinato.dist.per_rank import PerRank, RankStates
from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore.parameters import ParameterHandle, some
from ostinato.kvstore.saved_leaves import Leaf, changed, is_flat, read_whole
from ostinato.optim.rules import Optimizer, unpack_state

_log = logging.getLogger(__name__)

FORMAT = 1
FORMAT_IN_PARTS = 2
"""The form for a run that ranks save together: parts of what is cut, and the rows of tables beside it."""


def named_states(raw: Mapping[str, Any], optimizer: Optimizer, handles: Sequence[ParameterHandle]) -> dict[str, Any]:
    """Put states and counts under parameter names.

    :param raw: what :meth:`ostinato.optim.rules.Updater.state_dict` gives, by number.
    :returns: ``{"format": 1, "optimizer": tree, "states": {name: tree}, "counts": {name: n}}``.
    """
    names = {handle.index: handle.name for handle in handles}
    settings = dict(optimizer.state_dict())
    # Names are what this tree is about, and multipliers belong to the parameters of the run that goes on.
    settings["arguments"] = {key: value for key, value in settings["arguments"].items() if key != "param_idx2name"}
    settings.pop("counts", None)
    for table in ("lr_mult", "wd_mult"):
        settings[table] = {str(names.get(key, key)): value for key, value in settings[table].items()}
    return {
        "format": FORMAT,
        "optimizer": settings,
        "states": {names[index]: state for index, state in raw["states"].items() if index in names},
        "counts": {names[index]: count for index, count in raw["counts"].items() if index in names},
    }


_PARTS = {
    "optimizer": Mapping,
    "states": Mapping,
    "counts": Mapping,
    "residuals": (Sequence, RankStates, PerRank),
    "tables": Mapping,
}


def check_form(state: Any) -> None:
    """Refuse what is not the state of a parameter trainer, or one of a format that is not known here.

    :raises ArgumentTypeError: it is no mapping.
    :raises ArgumentValueError: its format is unknown, or a part is missing or of a wrong kind.
    """
    if not isinstance(state, Mapping):
        raise ArgumentTypeError(
            f"The state of a trainer is a mapping, not {type(state).__name__}.", advice="Give what state_dict() gave."
        )
    if state.get("format") not in (FORMAT, FORMAT_IN_PARTS):
        raise ArgumentValueError(
            f"This trainer state has format {state.get('format')!r}, and the formats that are known are {FORMAT} and "
            f"{FORMAT_IN_PARTS}.",
            advice="It may come from a newer version of Ostinato, or be the state of something else.",
        )
    for part, kind in _PARTS.items():
        if part == "tables" and part not in state:  # they are kept apart, or there are none
            continue
        if not isinstance(state.get(part), kind) or isinstance(state[part], str):
            found = type(state[part]).__name__ if part in state else "missing"
            raise ArgumentValueError(
                f"The part {part!r} of this trainer state is {found}.",
                advice="Give what state_dict() gave, whole.",
                part=part,
            )
    scaler = state.get("loss_scaler")
    if scaler is not None and not (isinstance(scaler, Mapping) and {"loss_scale", "clean_steps"} <= scaler.keys()):
        raise ArgumentValueError(
            f"The part 'loss_scaler' of this trainer state is {scaler!r}.", advice="Give what state_dict() gave, whole."
        )


def take_settings(
    state: Mapping[str, Any],
    optimizer: Optimizer,
    handles: Sequence[ParameterHandle],
    check_residuals: Callable[[Sequence[Mapping[str, Any]]], None],
) -> dict[str, Any]:
    """Give the optimizer its saved settings, schedule and number of updates, and look whether the states fit.

    :param state: of the right form, see :func:`check_form`.
    :param check_residuals: raises for residuals of compression that will not fit.
    :returns: the state, without what no parameter here takes.
    :raises ArgumentValueError: it is of another optimizer, or a tensor does not fit its parameter. The optimizer is
        then as it was.
    """
    by_name = {handle.name: handle for handle in handles}
    residuals = state["residuals"]
    if isinstance(residuals, RankStates):
        residuals = SavedResiduals.of_ranks(residuals)
    before, schedule = copy.deepcopy(optimizer.state_dict()), optimizer.lr_scheduler
    try:
        optimizer.load_state_dict({**state["optimizer"], "counts": {}})
        for name, packed in state["states"].items():
            if name in by_name and not by_name[name].is_deferred:
                _check_fit(packed, optimizer, by_name[name])
        tables = tables_of(state, handles)
        check_residuals(residuals)
    except BaseException:
        optimizer.load_state_dict(before)
        optimizer.lr_scheduler = schedule
        raise
    fresh = [handle.name for handle in handles if handle.is_trained and handle.name not in state["counts"]]
    unused = [name for name in state["counts"] if name not in by_name]
    if fresh and state["counts"]:
        _log.warning("no optimizer state was saved for %s; they start fresh", some(fresh))
    if unused:
        _log.warning("the saved optimizer state of %s is not used: no parameter has this name", some(unused))
    return {
        **state,
        "loss_scaler": state.get("loss_scaler"),
        "states": {name: packed for name, packed in state["states"].items() if name in by_name},
        "counts": {name: count for name, count in state["counts"].items() if name in by_name},
        "tables": tables,
        "residuals": residuals,
    }


def tables_of(state: Mapping[str, Any], handles: Sequence[ParameterHandle]) -> dict[str, Any]:
    """The rows of tables in a state, by name; of the tables that are here.

    :raises ArgumentTypeError: they are no mapping.
    :raises ArgumentValueError: a table is one of another shape here, or none.
    """
    tables = state.get("tables", {})
    if not isinstance(tables, Mapping):
        raise ArgumentTypeError(
            f"The tables of a trainer state are a mapping by name, not {type(tables).__name__}.",
            advice="Give what state_dict() gave.",
        )
    by_name = {handle.name: handle for handle in handles}
    for name, rows in tables.items():
        handle = by_name.get(name)
        if handle is not None and (handle.stype != "row_sparse" or tuple(rows.shape) != tuple(handle.shape)):
            kind = f"a table of shape {tuple(handle.shape)}" if handle.stype == "row_sparse" else "no table"
            raise ArgumentValueError(
                f"A table of shape {tuple(rows.shape)} was saved as {name!r}, which is {kind} here.",
                advice="Go on with the parameters that the run was made with.",
                parameter=name,
            )
    return {name: rows for name, rows in tables.items() if name in by_name}


def _check_fit(packed: Mapping[str, Any], optimizer: Optimizer, handle: ParameterHandle) -> None:
    place = torch.empty(handle.shape, dtype=handle.dtype, device="meta")

    def on_meta(leaf: Leaf) -> Tensor:
        shape = handle.shape if is_flat(leaf, handle.shape) else leaf.shape
        return torch.empty(tuple(shape), dtype=leaf.dtype, device="meta")

    try:
        optimizer.adopt_state(handle.index, place, unpack_state(changed(packed, on_meta)))
    except ArgumentValueError as error:
        raise ArgumentValueError(
            f"The saved state of {handle.name!r} does not fit: {error.what}",
            advice=error.advice,
            parameter=handle.name,
        ) from error


def numbered_states(
    state: Mapping[str, Any], optimizer: Optimizer, handles: Sequence[ParameterHandle]
) -> dict[str, Any]:
    """Put states and counts under the numbers of this trainer's parameters: the way back of :func:`named_states`."""
    numbers = {handle.name: handle.index for handle in handles}
    return {
        "format": 1,
        "optimizer": optimizer.name,
        "states": {numbers[name]: packed for name, packed in state["states"].items()},
        "counts": {numbers[name]: int(count) for name, count in state["counts"].items()},
    }


def read_from_disk(state: Mapping[str, Any], handles: Sequence[ParameterHandle]) -> dict[str, Any]:
    """A saved state, or rows of tables alone, with everything read that is still on the disk. Tensors are copies."""
    shapes = {handle.name: None if handle.is_deferred else tuple(handle.shape) for handle in handles}

    def read(tree: Any, name: str) -> Any:
        return changed(tree, lambda leaf: read_whole(leaf, shapes.get(name)))

    found = {**state, "tables": {name: read_whole(rows) for name, rows in state["tables"].items()}}
    if "states" in state:
        found["states"] = {name: read(packed, name) for name, packed in state["states"].items()}
        found["residuals"] = list(state["residuals"])
    return found


def copied(tree: Any) -> Any:
    """A tree with copies of its tensors; what is on the disk stays there."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, Mapping):
        return {name: copied(value) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(copied(value) for value in tree)
    return tree


class SavedResiduals(Sequence[dict[str, Any]]):
    """Residuals on the disk, one state after the other, read when they are asked for.

    :param count: how many.
    :param read: gives one.
    """

    def __init__(self, count: int, read: Callable[[int], dict[str, Any]]) -> None:
        self._count, self._read = count, read

    @classmethod
    def of_ranks(cls, saved: RankStates) -> SavedResiduals:
        """Those that ranks have saved, each its own one."""
        return cls(saved.world_size, lambda rank: saved.of(rank)[0] if saved.of(rank) else {})

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        chosen = range(self._count)[index]
        return [self._read(one) for one in chosen] if isinstance(chosen, range) else self._read(chosen)

    def renamed(self, rename: Callable[[Any], Any]) -> SavedResiduals:
        """The same under other keys."""
        return SavedResiduals(self._count, lambda one: renamed_residuals([self._read(one)], rename)[0])


def renamed_residuals(residuals: Sequence[Mapping[str, Any]], rename: Callable[[Any], Any]) -> Sequence[dict[str, Any]]:
    """Give the residuals of gradient compression under other keys; a key without a new name is left out."""
    if isinstance(residuals, SavedResiduals):
        return residuals.renamed(rename)
    return [
        {
            **state,
            "residuals": {new: kept for key, kept in state["residuals"].items() if (new := rename(key)) is not None},
        }
        for state in residuals
    ]


def renamed_in_parts(
    residuals: Sequence[Mapping[str, Any]] | PerRank, rename: Callable[[Any], Any]
) -> Sequence[dict[str, Any]] | PerRank:
    """The same for what a store gives to be saved in parts."""
    if isinstance(residuals, PerRank):
        return PerRank(renamed_residuals(residuals.state, rename))
    return renamed_residuals(residuals, rename)
