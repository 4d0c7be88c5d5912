"""Picks the numbers out of an observation, and holds them without waiting for the device they are on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ostinato.loop import is_scalar

_log = logging.getLogger(__name__)


class ScalarFilter:
    """Separates the numbers of an observation from what cannot be written as one, warning once per name.

    :param where: who leaves the others out; for the warning.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._warned: set[str] = set()

    def split(self, observation: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
        """Names and values of the numbers, in order; of a pair (value, weight) the value. Nothing is read yet."""
        names: list[str] = []
        values: list[Any] = []
        for name, value in observation.items():
            if isinstance(value, tuple) and len(value) == 2:
                value = value[0]
            if self.accepts(name, value):
                names.append(name)
                values.append(value)
        return names, values

    def accepts(self, name: str, value: Any) -> bool:
        """Whether a value is a number; if it is not, that is said once per name."""
        if is_scalar(value):
            return True
        if name not in self._warned:
            self._warned.add(name)
            _log.warning("%s: %r is left out, %s is not a number", self._where, name, type(value).__name__)
        return False


class HeldNumbers:
    """The numbers of one iteration, to be read later.

    Tensors are copied, all of one device and type in one operation on that device: what was reported may be a view of
    something that the next update changes, such as a parameter. Nothing waits for the device.

    :param values: numbers and one-element tensors.
    """

    __slots__ = ("_numbers", "_tensors")

    def __init__(self, values: Sequence[Any]) -> None:
        self._numbers: list[float] = []
        self._tensors: list[tuple[list[int], torch.Tensor]] = []  # positions, their values
        groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for position, value in enumerate(values):
            if isinstance(value, torch.Tensor):
                groups.setdefault((value.device, value.dtype), []).append(position)
                self._numbers.append(0.0)
            else:
                self._numbers.append(float(value))
        for positions in groups.values():
            self._tensors.append((positions, stacked([values[position] for position in positions])))

    def __len__(self) -> int:
        return len(self._numbers)

    @staticmethod
    def read(held: Sequence[HeldNumbers]) -> list[list[float]]:
        """The numbers of several iterations, fetched from each device in one transfer.

        This is the place where the processor waits for the accelerator; call it seldom, with many iterations.
        """
        rows = [list(row._numbers) for row in held]
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[list[float], list[int], torch.Tensor]]] = {}
        for row, numbers in zip(held, rows, strict=True):
            for positions, tensor in row._tensors:
                groups.setdefault((tensor.device, tensor.dtype), []).append((numbers, positions, tensor))
        for parts in groups.values():
            fetched = iter(torch.cat([tensor for _, _, tensor in parts]).tolist())
            for numbers, positions, _ in parts:
                for position in positions:
                    numbers[position] = float(next(fetched))
        return rows


def stacked(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """One-element tensors of one device and type as a new vector."""
    # reshape and not view: a value may be a strided element of a larger tensor. Each call costs a microsecond or more,
    # in every iteration, so the usual case (a scalar without a graph) makes only one.
    vector = torch.stack([value if value.dim() == 0 else value.reshape(()) for value in values])
    return vector.detach() if vector.requires_grad else vector
