"""What differs between two states: options, counters, weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ostinato.runs.content import LoadedGeneration

_ABSENT = "-"


@dataclass(frozen=True)
class ValueChange:
    """One value that differs; a value that is not there shows as ``-``."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True)
class WeightChange:
    """How far one weight moved.

    :param before: Euclidean norm in the first state; None where the weight is not there.
    :param after: the same in the second.
    :param distance: norm of the difference; None where the shapes differ or one is not there.
    """

    name: str
    before: float | None
    after: float | None
    distance: float | None

    @property
    def relative(self) -> float:
        """The distance as a part of the norm before; infinite where that makes no sense."""
        if self.distance is None or not self.before:
            return 0.0 if self.distance == 0 else float("inf")
        return self.distance / self.before


@dataclass(frozen=True)
class Comparison:
    """The differences.

    :param counters: iteration, epoch, losses, sessions.
    :param same_losses: whether the average losses of the two may be compared.
    :param options: by dotted path.
    :param weights: those that differ, the farthest first.
    :param equal_weights: number of weights that are equal bit for bit.
    """

    counters: tuple[ValueChange, ...]
    same_losses: bool
    options: tuple[ValueChange, ...]
    weights: tuple[WeightChange, ...]
    equal_weights: int


def compare(first: LoadedGeneration, second: LoadedGeneration) -> Comparison:
    """Compare two loaded states, of one run or of two."""
    weights = []
    equal = 0
    for name in sorted(set(first.model) | set(second.model)):
        change = _compare_weight(name, first.model.get(name), second.model.get(name))
        if change is None:
            equal += 1
        else:
            weights.append(change)
    weights.sort(key=lambda change: -change.relative)
    return Comparison(
        counters=_compare_values(_counters(first), _counters(second)),
        same_losses=first.manifest.loss_definition == second.manifest.loss_definition,
        options=_compare_values(_options(first), _options(second)),
        weights=tuple(weights),
        equal_weights=equal,
    )


def _counters(loaded: LoadedGeneration) -> dict[str, Any]:
    manifest = loaded.manifest
    return {
        "iteration": manifest.iteration,
        "epoch": manifest.epoch,
        "average loss": manifest.average_loss,
        "lowest average loss": manifest.lowest_average,
        "optimizer state of iteration": manifest.optimizer_iteration,
        "sessions": len(loaded.sessions),
        "batch size": loaded.sessions[-1].batch_size if loaded.sessions else None,
        "world size": manifest.world_size,
        "recipe": manifest.run.get("recipe", ""),
        "torch": manifest.versions.get("torch", ""),
    }


def _options(loaded: LoadedGeneration) -> dict[str, Any]:
    # A record of a recipe's options also tells the program's defaults of that day, which are not the run's.
    return _flatten(loaded.options.get("values", loaded.options))


def _flatten(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _compare_values(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[ValueChange, ...]:
    names = [*first, *(name for name in second if name not in first)]
    pairs = ((name, first.get(name, _ABSENT), second.get(name, _ABSENT)) for name in names)
    return tuple(ValueChange(name, before, after) for name, before, after in pairs if before != after)


def _compare_weight(name: str, first: Tensor | None, second: Tensor | None) -> WeightChange | None:
    if first is None or second is None:
        return WeightChange(name, _norm(first), _norm(second), None)
    if first.shape != second.shape:
        return WeightChange(name, _norm(first), _norm(second), None)
    if first.dtype == second.dtype and first.equal(second):
        return None
    return WeightChange(name, _norm(first), _norm(second), _norm(second.double() - first.double()))


def _norm(tensor: Tensor | None) -> float | None:
    return None if tensor is None else float(tensor.double().norm())
