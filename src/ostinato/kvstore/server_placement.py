"""Which server holds what: a pure function of key number, size and number of servers.

Small arrays lie whole on one server, chosen by the key's number. Arrays from a bound on are cut into one part for each
server: by elements, by whole words where gradients travel compressed, or by rows where rows have to stay together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ostinato.kvstore.compression import CompressionScheme
from ostinato.kvstore.row_sparse_exchange import row_borders

_SPREAD = 9973
"""A prime, so that neighbouring keys lie on different servers whatever their number."""


@dataclass(frozen=True)
class Part:
    """What one server holds of an array: ``length`` elements (or rows) from ``start`` on."""

    server: int
    start: int
    length: int


def place_elements(key: int, elements: int, servers: int, bound: int) -> list[Part]:
    """Cut an array anywhere.

    :param key: the key's number, from 0.
    :param bound: from how many elements on it is cut.
    """
    if elements < bound:
        return [Part(key * _SPREAD % servers, 0, elements)]
    return _parts(row_borders(elements, servers))


def place_words(key: int, elements: int, servers: int, bound: int, scheme: CompressionScheme) -> list[Part]:
    """Cut an array between the words of its compressed gradient. The last server takes the rest."""
    if elements < bound:
        return [Part(key * _SPREAD % servers, 0, elements)]
    borders = [border * scheme.elements_per_word for border in row_borders(scheme.words(elements), servers)]
    return _parts([min(border, elements) for border in borders])


def place_rows(key: int, rows: int, row_elements: int, servers: int, bound: int) -> list[Part]:
    """Cut a table between rows.

    :param row_elements: elements of one row; the table's elements are compared with the bound.
    """
    if rows * row_elements < bound:
        return [Part(key * _SPREAD % servers, 0, rows)]
    return _parts(row_borders(rows, servers))


def place_whole(key: int, length: int, servers: int) -> list[Part]:
    """Do not cut: for rules that look at whole tensors."""
    return [Part(key * _SPREAD % servers, 0, length)]


def _parts(borders: Sequence[int]) -> list[Part]:
    return [Part(server, start, end - start) for server, (start, end) in enumerate(pairwise(borders))]
