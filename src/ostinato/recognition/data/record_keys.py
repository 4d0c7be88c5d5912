"""Which keys the records of a set have, where no index says so."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ostinato.recognition.data.record_scan import RecordScan

_INEXACT = 4
"""How far a difference of two single-precision numbers may be off; they are multiples of up to 4 below 2**26."""


def find_set_header(scan: RecordScan, keys: npt.NDArray[np.int64]) -> int | None:
    """The record that makes a set an identity set: key 0, labels and no picture. None for a plain set."""
    rows = np.flatnonzero(keys == 0)
    if len(rows) and scan.flags[rows[0]] >= 2 and not scan.has_image[rows[0]]:
        return int(rows[0])
    return None


def keys_without_index(scan: RecordScan) -> tuple[npt.NDArray[np.int64], str]:
    """The keys that an index would give the records, and a few words on where they come from.

    Writers store the key as the record's id, but not all do, and tools that shuffle a set keep the old ids. So ids are
    believed where they ascend, apart from ones that are no keys at all; otherwise the records are numbered in the order
    of the file. The record that makes a set an identity set has key 0, wherever it stands.
    """
    header = _header_by_shape(scan)
    rows = np.arange(len(scan))
    rows = rows[rows != header] if header is not None else rows
    keys = np.zeros(len(scan), np.int64)
    ids = _ascending_ids(scan.ids[rows], 0 if header is None else 1)
    if ids is not None:
        keys[rows] = ids
        return keys, "the id of each record"
    first = 0 if header is None else 1
    keys[rows] = np.arange(first, first + len(rows))
    return keys, "the order of the records"


def _header_by_shape(scan: RecordScan) -> int | None:
    """A first or last record with two labels and no picture whose numbers count the identity records."""
    without = np.flatnonzero(~scan.has_image & (scan.flags == 2))
    for row in (len(scan) - 1, 0):
        if row in without:
            identities = float(scan.seconds[row]) - float(scan.labels[row])
            if abs(identities - (len(without) - 1)) <= _INEXACT and scan.labels[row] >= scan.has_image.sum() / 2:
                return row
    return None


def _ascending_ids(ids: npt.NDArray[np.uint64], least: int) -> npt.NDArray[np.int64] | None:
    """The ids as keys, with those that are no keys replaced by the one after the key before; None if they do not
    ascend."""
    strange = ids > np.uint64(2 * len(ids) + 1000)
    if strange.sum() * 2 > len(ids):
        return None
    keys = np.where(strange, 0, ids).astype(np.int64)
    for place in np.flatnonzero(strange):
        keys[place] = keys[place - 1] + 1 if place else least
    if len(keys) and keys[0] >= least and (np.diff(keys) > 0).all():
        return keys
    return None
