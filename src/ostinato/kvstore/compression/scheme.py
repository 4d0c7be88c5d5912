"""What a way of compressing gradients is: how many bits an element gets, and what they stand for."""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato.errors import ArgumentTypeError, ArgumentValueError

WORD_BYTES = 4
"""Packed gradients travel in whole words of this many bytes, whose order in memory is the order of the elements."""

_log = logging.getLogger(__name__)
_BITS = {"1bit": 1, "2bit": 2}


@dataclass(frozen=True)
class CompressionScheme:
    """One or two bits an element, and a residual that keeps what they could not say.

    With r = residual + gradient, per element:

    =======  ===============  ====  =====  =================
    type     condition        code  value  residual becomes
    =======  ===============  ====  =====  =================
    2bit     r >= threshold   11    +T     r - T
    2bit     r <= -threshold  10    -T     r + T
    2bit     otherwise        00    0      r
    1bit     r > threshold    1     +1     r - 1
    1bit     otherwise        0     -1     r + 1
    =======  ===============  ====  =====  =================

    One quantum leaves per round however large r is. The threshold meets the gradient as it is pushed: before any
    rescaling, a sum over the samples of one worker. An element whose r is not a finite number is sent as the table
    says (NaN: the last line), its residual starts again at zero, and whoever compresses is told.

    :param type: ``"1bit"`` or ``"2bit"``.
    :param threshold: rounded to float32, because every rank has to compare with the same number; 2bit needs it above
        zero, 1bit takes any finite value.
    :raises ArgumentValueError: another type, or a threshold that does not fit it.
    :raises ArgumentTypeError: the threshold is no number.
    """

    type: str
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.type, str) or self.type not in _BITS:
            near = difflib.get_close_matches(f"{self.type}", _BITS, n=1)
            raise ArgumentValueError(
                f"There is no gradient compression of type {self.type!r}.",
                advice=f"Did you mean {near[0]!r}?" if near else "Choose '1bit' or '2bit'.",
                type=self.type,
            )
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int | float | np.floating):
            raise ArgumentTypeError(
                f"The threshold of gradient compression is a number, not {self.threshold!r}.", advice="Write 0.5, say."
            )
        with np.errstate(over="ignore"):
            threshold = float(np.float32(self.threshold))
        if not math.isfinite(threshold) or (self.type == "2bit" and threshold <= 0):
            raise ArgumentValueError(
                f"{self.type} compression cannot work with a threshold of {self.threshold!r}.",
                advice="Choose a finite number above zero in the size of the gradients, such as 0.5."
                if self.type == "2bit"
                else "Choose a finite number, such as 0.",
                threshold=self.threshold,
            )
        object.__setattr__(self, "threshold", threshold)

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> CompressionScheme:
        """Read ``compression_params`` as the parameter trainer takes them: ``{"type": "2bit", "threshold": 0.5}``.

        Keys that mean nothing here are passed over, with a warning in the log.

        :raises ArgumentValueError: the type is missing or unknown, or the threshold does not fit.
        :raises ArgumentTypeError: this is no mapping, or the threshold is no number.
        """
        if not isinstance(params, Mapping):
            raise ArgumentTypeError(
                f"Compression parameters are a mapping, not {params!r}.",
                advice="Write {'type': '2bit', 'threshold': 0.5}.",
            )
        if "type" not in params:
            raise ArgumentValueError(
                "Compression parameters say no type.",
                advice="Write {'type': '2bit', 'threshold': 0.5}; the threshold may be left out.",
                params=dict(params),
            )
        known = {key: value for key, value in params.items() if key in ("type", "threshold")}
        if len(known) < len(params):
            others = ", ".join(repr(key) for key in params if key not in known)
            _log.warning("compression parameters have no %s; only 'type' and 'threshold' mean something", others)
        return cls(**known)

    @property
    def bits(self) -> int:
        """Bits of one element: 1 or 2."""
        return _BITS[self.type]

    @property
    def elements_per_word(self) -> int:
        """Elements of one 32-bit word: 32 or 16."""
        return 8 * WORD_BYTES // self.bits

    @property
    def quantum(self) -> float:
        """What one element carries in one round: the threshold (2bit) or 1 (1bit)."""
        return self.threshold if self.type == "2bit" else 1.0

    def words(self, elements: int) -> int:
        """Whole words that ``elements`` elements take."""
        return -(-elements // self.elements_per_word)

    def packed_bytes(self, elements: int) -> int:
        """Bytes that ``elements`` elements take once packed."""
        return self.words(elements) * WORD_BYTES
