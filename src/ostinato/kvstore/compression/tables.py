"""Tables that turn the codes of several elements at once into bits and back."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ostinato.kvstore.compression.plain import decode_plainly
from ostinato.kvstore.compression.scheme import CompressionScheme


@lru_cache(maxsize=1)
def doubled_bits() -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
    """Two tables, (256,) each: for eight yes-or-no answers in a byte, the two bytes in which every yes is the 2bit
    code of +T (first table) or of -T (second)."""
    answers = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)  # (256, 8), most significant bit first
    plus = np.packbits(np.repeat(answers, 2, axis=1), axis=1)  # 11
    minus = np.packbits(np.stack([answers, np.zeros_like(answers)], axis=2).reshape(256, 16), axis=1)  # 10
    return plus.view(np.uint16).ravel(), minus.view(np.uint16).ravel()


@lru_cache(maxsize=16)
def values_of_bytes(scheme: CompressionScheme) -> npt.NDArray[np.float32]:
    """The values of all elements of a byte: (256, 8 / bits), float32."""
    elements = 8 // scheme.bits
    rows = [decode_plainly(scheme, bytes([byte]), elements) for byte in range(256)]
    return np.array(rows, dtype=np.float32)
