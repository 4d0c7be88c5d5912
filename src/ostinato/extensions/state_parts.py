"""A trainer's state taken apart for the files of a generation, and put together again.

Weights go to one file under their names, optimizer state to another under the names of the parameters, everything else
stays a tree. torch numbers the parameters of an optimizer; numbers change when a layer is frozen or another one comes
first, names do not.

An optimizer may have weights in its state, such as the rows of a table that lies on a store; it names these entries in
``weights_in_state``. They stay in the tree, for they are saved whatever is saved of the optimizers.

Where several ranks train together, the updater's ``random`` and ``loader`` differ between them and are taken out too:
every rank saves its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ostinato.errors import ArgumentValueError, StateError
from ostinato.loop.unwrapping import unwrapped

_log = logging.getLogger(__name__)

BY_NAME = "by_parameter_name"
"""Key that marks an optimizer state whose numbers were replaced by names."""

WEIGHTS = "weights_in_optimizers"
"""Key in the tree for the weights that optimizers have in their states, by optimizer name."""

OF_RANK = ("random", "loader")
"""Entries of an updater's state that every rank has for itself: the states of its generators, and what its loader says
of its place in the data."""


@dataclass(frozen=True)
class StateParts:
    """The three parts.

    :param model: tensors by name; with several models the model's name comes first.
    :param optimizer: states of the optimizers by optimizer name, without weights; None where there is none.
    :param rest: the tree without them, and how to put it together.
    :param of_rank: what this rank has for itself; None where there is one rank, and it is part of ``rest``.
    """

    model: dict[str, Tensor]
    optimizer: dict[str, Any] | None
    rest: dict[str, Any]
    of_rank: dict[str, Any] | None = None


def split_state(tree: Mapping[str, Any], updater: Any, *, several_ranks: bool = False) -> StateParts:
    """Take apart what ``trainer.state_dict()`` gives. Tensors are not copied.

    The state of a plain object, such as a module, whose values are all tensors is all weights.

    :param updater: its ``models`` and ``optimizers``, mappings by name, tell the names of the parameters. Without them
        optimizer states stay as they are.
    :param several_ranks: take out what every rank has for itself.
    """
    rest = dict(tree)
    if rest and all(isinstance(key, str) and isinstance(value, Tensor) for key, value in rest.items()):
        return StateParts(rest, None, {"plain": list(rest)})
    inner = rest.get("updater")
    if not isinstance(inner, Mapping):
        return StateParts({}, None, {"trainer": rest})
    inner = dict(inner)
    rest["updater"] = inner
    model, layout = _flatten_models(inner.pop("models", None))
    optimizers = inner.pop("optimizers", None)
    if optimizers is not None:
        names = _parameter_names(updater)
        optimizers = {key: _to_names(state, _optimizer(updater, key), names, key) for key, state in optimizers.items()}
    of_rank = {key: inner.pop(key) for key in OF_RANK if key in inner} if several_ranks else None
    whole = {"trainer": rest, "models": layout}
    if optimizers is not None:
        optimizers, weights = _without_weights(optimizers, updater)
        whole |= {WEIGHTS: weights} if weights else {}
    return StateParts(model, optimizers, whole, of_rank)


def join_state(parts: StateParts, updater: Any) -> dict[str, Any]:
    """Put together what ``trainer.load_state_dict`` takes.

    Optimizer states are fitted to the optimizers of this process: parameters that are new start fresh, states of
    parameters that are gone are left out, and both are logged. Where no optimizer state was saved, the optimizers keep
    the state they have, and one that has weights in its state is given these alone.
    """
    if "plain" in parts.rest:
        return {name: parts.model[name] for name in parts.rest["plain"]}
    tree = dict(parts.rest["trainer"])
    inner = tree.get("updater")
    if not isinstance(inner, Mapping):
        return tree
    inner = {**inner, **(parts.of_rank or {})}
    tree["updater"] = inner
    layout = parts.rest.get("models")
    if layout is not None:
        inner["models"] = {
            name: {**{key: parts.model[entry["prefix"] + key] for key in entry["tensors"]}, **entry["other"]}
            for name, entry in layout.items()
        }
    names = _parameter_names(updater)
    weights = parts.rest.get(WEIGHTS) or {}
    if parts.optimizer is not None:
        inner["optimizers"] = {
            key: _to_numbers(state, _optimizer(updater, key), names, key) for key, state in parts.optimizer.items()
        }
        for key in inner["optimizers"].keys() & weights.keys():
            inner["optimizers"][key] = {**inner["optimizers"][key], **weights[key]}
    elif getattr(updater, "optimizers", None):
        _log.warning("No optimizer state was saved with these weights, so the optimizers start fresh.")
        current = updater.state_dict().get("optimizers")
        if current is not None:
            inner["optimizers"] = {
                key: weights[key] if weights.get(key, {}).keys() & _weights_in_state(updater, key) else state
                for key, state in current.items()
            }
    return tree


def _flatten_models(models: Any) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    if not isinstance(models, Mapping):
        return {}, None
    flat: dict[str, Tensor] = {}
    layout: dict[str, Any] = {}
    for name, state in models.items():
        prefix = f"{name}." if len(models) > 1 else ""
        tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
        for key, value in tensors.items():
            if prefix + key in flat:
                raise ArgumentValueError(f"Two weights would have the name {prefix + key!r}.", advice="Rename a model.")
            flat[prefix + key] = value
        other = {key: value for key, value in state.items() if key not in tensors}
        layout[str(name)] = {"prefix": prefix, "tensors": list(tensors), "other": other}
    return flat, layout


def _parameter_names(updater: Any) -> dict[int, str]:
    """Names by the identity of the parameter; the names of :func:`_flatten_models`."""
    models = getattr(updater, "models", None)
    if not isinstance(models, Mapping):
        return {}
    names: dict[int, str] = {}
    for model_name, model in models.items():
        prefix = f"{model_name}." if len(models) > 1 else ""
        for name, parameter in unwrapped(model).named_parameters():
            names.setdefault(id(parameter), prefix + name)
    return names


def _optimizer(updater: Any, key: str) -> Any:
    optimizers = getattr(updater, "optimizers", None)
    return optimizers.get(key) if isinstance(optimizers, Mapping) else None


def _weights_in_state(updater: Any, key: str) -> frozenset[str]:
    """The entries of an optimizer's state that are weights."""
    return frozenset(getattr(_optimizer(updater, key), "weights_in_state", ()))


def _without_weights(states: Mapping[str, Any], updater: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """States of the optimizers without their weights, and the weights by optimizer where there are any."""
    left: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    for key, state in states.items():
        found = {name: state[name] for name in _weights_in_state(updater, key) if state.get(name)}
        left[key] = {name: value for name, value in state.items() if name not in found} if found else state
        if found:
            weights[key] = found
    return left, weights


def _is_numbered(state: Any) -> bool:
    return isinstance(state, Mapping) and "param_groups" in state and "state" in state


def _numbered_parameters(state: Mapping[str, Any], optimizer: Any) -> Iterator[tuple[int, Any]]:
    """Number and parameter, for every parameter of an optimizer."""
    for saved, group in zip(state["param_groups"], optimizer.param_groups, strict=True):
        yield from zip(saved["params"], group["params"], strict=True)


def _to_names(state: Any, optimizer: Any, names: Mapping[int, str], key: str) -> Any:
    if not _is_numbered(state) or not hasattr(optimizer, "param_groups"):
        return state
    by_number = {number: names.get(id(parameter)) for number, parameter in _numbered_parameters(state, optimizer)}
    if None in by_number.values():
        raise StateError(
            f"The optimizer {key!r} trains a parameter that belongs to none of the updater's models.",
            advice="Give the updater every model that its optimizers train, so that states can be saved by name.",
        )
    return {
        **{k: v for k, v in state.items() if k not in ("state", "param_groups")},
        BY_NAME: True,
        "state": {by_number[number]: entry for number, entry in state["state"].items()},
        "param_groups": [
            {**group, "params": [by_number[number] for number in group["params"]]} for group in state["param_groups"]
        ],
    }


def _to_numbers(state: Any, optimizer: Any, names: Mapping[int, str], key: str) -> Any:
    if not isinstance(state, Mapping) or not state.get(BY_NAME) or optimizer is None:
        return state
    current = optimizer.state_dict()
    by_number = {number: names.get(id(p), "") for number, p in _numbered_parameters(current, optimizer)}
    saved = state["state"]
    home = {name: group for group in state["param_groups"] for name in group["params"]}
    fresh = [name for name in by_number.values() if name not in home]
    unused = [name for name in home if name not in set(by_number.values())]
    if fresh:
        _log.warning("optimizer %s: %s start with fresh state", key, _some(fresh))
    if unused:
        _log.warning("optimizer %s: the saved state of %s is no longer used", key, _some(unused))
    groups = []
    for group in current["param_groups"]:
        owners = {id(home[by_number[n]]): home[by_number[n]] for n in group["params"] if by_number[n] in home}
        settings = next(iter(owners.values())) if len(owners) == 1 else {}
        groups.append({**group, **settings, "params": group["params"]})
    return {
        **{k: v for k, v in state.items() if k not in (BY_NAME, "state", "param_groups")},
        "state": {number: saved[name] for number, name in by_number.items() if name in saved},
        "param_groups": groups,
    }


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
