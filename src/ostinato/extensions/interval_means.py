"""Means of the observation over many iterations."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.extensions.observed_values import ScalarFilter, stacked
from ostinato.loop import DictSummary, Summary, is_scalar

_ROWS_IN_A_BLOCK = 256  # iterations after which their vectors become one matrix: fewer, larger tensors
_MOST_VALUES = 1 << 22  # 16 MiB of float32 on the device; more are fetched even though nobody asked


class IntervalMeans:
    """Weighted mean of every observed number since the last :meth:`clear`.

    Tensors stay on their device until the means are asked for, so an ordinary iteration does not wait for it; the
    arithmetic happens then, in double precision. What is no number is left out, with one warning per name.

    :param where: who asks; for the warnings.
    :param keys: only these names; by default all.
    """

    def __init__(self, where: str, keys: Iterable[str] | None = None) -> None:
        self._keys = None if keys is None else frozenset(keys)
        self._filter = ScalarFilter(where)
        self._summary = DictSummary()
        self._columns: dict[Any, _Columns] = {}
        self._held = 0
        self._order: dict[str, None] = {}  # names as they came; tensors and other numbers take different ways

    def add(self, observation: Mapping[str, Any]) -> None:
        """Take in the numbers of one iteration; a pair is (value, weight).

        :raises ArgumentTypeError: when a weight is not a number.
        :raises ArgumentValueError: when a weight is below 0 or not finite.
        """
        numbers: dict[str, Any] = {}
        plain: dict[tuple[torch.device, torch.dtype], dict[str, tuple[torch.Tensor, float]]] = {}
        for name, value in observation.items():
            if self._keys is not None and name not in self._keys:
                continue
            weight: Any = 1.0
            if isinstance(value, tuple) and len(value) == 2:
                value, weight = value
                if not is_scalar(weight):
                    raise ArgumentTypeError(f"The weight of {name!r} must be a number, not {weight!r}.", name=name)
            if not self._filter.accepts(name, value):
                continue
            self._order.setdefault(name)
            if isinstance(weight, torch.Tensor):
                self._hold_pair(name, value, weight)
            elif isinstance(value, torch.Tensor):
                plain.setdefault((value.device, value.dtype), {})[name] = (value, _checked_weight(name, float(weight)))
            else:
                numbers[name] = (value, weight)
        if numbers:
            self._summary.add(numbers)
        for place, entries in plain.items():
            names = tuple(entries)
            columns = self._columns.get((place, names))
            if columns is None:
                columns = self._columns[place, names] = _Columns(names)
            columns.add([value for value, _ in entries.values()], [weight for _, weight in entries.values()])
            self._held += len(names)
        if self._held >= _MOST_VALUES:
            self._fold()

    def _hold_pair(self, name: str, value: Any, weight: torch.Tensor) -> None:
        # The weight may be a count that only the device knows, such as the tokens of a masked batch.
        wide = torch.float32 if weight.device.type == "mps" else torch.float64
        if not isinstance(value, torch.Tensor):
            value = torch.full((), float(value), dtype=wide, device=weight.device)
        key = (weight.device, name)
        columns = self._columns.get(key)
        if columns is None:
            columns = self._columns[key] = _Columns((name,), weight_is_last=True)
        columns.add([value.to(weight.device, wide), weight.to(wide)], [])
        self._held += 2

    def _fold(self) -> None:
        for columns in self._columns.values():
            for name, summary in columns.take():
                part = DictSummary()  # merges by name
                part.load_state_dict({name: summary.state_dict()})
                self._summary.merge(part)
        self._columns.clear()
        self._held = 0

    def compute(self) -> dict[str, float]:
        """The means by name, in the order in which the names were first reported; waits for the device. NaN where the
        weights sum to 0 or a value was NaN."""
        self._fold()
        means = self._summary.compute_mean()
        return {name: means[name] for name in self._order}

    def clear(self) -> None:
        """Forget everything."""
        self._summary = DictSummary()
        self._columns.clear()
        self._held = 0
        self._order.clear()

    def state_dict(self) -> dict[str, Any]:
        """The sums; waits for the device."""
        self._fold()
        sums = self._summary.state_dict()
        return {name: sums[name] for name in self._order}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from saved sums."""
        self.clear()
        self._summary.load_state_dict(state)
        self._order = dict.fromkeys(state)


class _Columns:
    """Vectors of tensors of one device and type, each column with its name; all iterations below each other."""

    def __init__(self, names: tuple[str, ...], *, weight_is_last: bool = False) -> None:
        self._names = names
        self._weight_is_last = weight_is_last
        self._loose: list[torch.Tensor] = []
        self._blocks: list[torch.Tensor] = []
        self._weights = array("d")

    def add(self, values: list[torch.Tensor], weights: list[float]) -> None:
        self._loose.append(stacked(values))
        self._weights.extend(weights)
        if len(self._loose) >= _ROWS_IN_A_BLOCK:
            self._pack()

    def _pack(self) -> None:
        if self._loose:
            self._blocks.append(torch.stack(self._loose))
            self._loose = []

    def take(self) -> Iterable[tuple[str, Summary]]:
        """The summary of every column. Here the processor waits for the accelerator."""
        self._pack()
        values = torch.cat(self._blocks).cpu().to(torch.float64).numpy()
        if self._weight_is_last:
            for weight in values[:, -1]:
                _checked_weight(self._names[0], float(weight))
            weights = values[:, -1:]
        else:
            weights = np.asarray(self._weights, dtype=np.float64).reshape(values.shape)
        for column, name in enumerate(self._names):
            yield name, _summarized(values[:, column], weights[:, column])


def _summarized(values: np.ndarray, weights: np.ndarray) -> Summary:
    summary = Summary()
    counted = weights > 0  # a value without weight does not count, not even if it is NaN
    values, weights = values[counted], weights[counted]
    total = float(weights.sum())
    if total > 0:
        with np.errstate(all="ignore"):  # infinities give NaN, as they do in Summary.add
            mean = float((values * weights).sum()) / total
            squares = float((weights * (values - mean) ** 2).sum())
        summary.load_state_dict({"weight": total, "mean": mean, "squares": squares})
    return summary


def _checked_weight(name: str, weight: float) -> float:
    if not 0 <= weight < float("inf"):
        raise ArgumentValueError(
            f"The weight of {name!r} must be a finite number from 0 up, not {weight!r}.", name=name, weight=weight
        )
    return weight
