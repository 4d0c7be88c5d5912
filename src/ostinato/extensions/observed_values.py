"""Picks the numbers out of an observation."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

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
            if is_scalar(value):
                names.append(name)
                values.append(value)
            elif name not in self._warned:
                self._warned.add(name)
                _log.warning("%s: %r is left out, %s is not a number", self._where, name, type(value).__name__)
        return names, values
