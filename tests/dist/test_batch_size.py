from __future__ import annotations

import pytest

from ostinato.dist import batch_size_for_devices
from ostinato.errors import ArgumentValueError


@pytest.mark.parametrize(
    ("devices", "asked", "size", "raised", "better"),
    [
        (1, 7, 7, False, None),
        (2, 1, 2, True, None),
        (2, 3, 3, False, (2, 4)),
        (3, 2, 3, True, None),
        (3, 4, 4, False, (3, 6)),
        (3, 17, 17, False, (15, 18)),
        (4, 4, 4, False, None),
        (4, 10, 10, False, (8, 12)),
        (8, 6, 8, True, None),
        (8, 17, 17, False, (16, 24)),
    ],
)
def test_the_batch_table(devices: int, asked: int, size: int, raised: bool, better: tuple[int, int] | None) -> None:
    found = batch_size_for_devices(asked, devices)
    assert (found.size, found.raised, found.better) == (size, raised, better)
    assert bool(found.message) == (raised or better is not None)
    for number in (asked, *(better or ())):
        assert not found.message or str(number) in found.message


@pytest.mark.parametrize(("asked", "devices"), [(0, 1), (-1, 2), (4, 0)])
def test_impossible_numbers_are_refused(asked: int, devices: int) -> None:
    with pytest.raises(ArgumentValueError):
        batch_size_for_devices(asked, devices)
