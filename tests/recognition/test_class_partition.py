"""Classes are cut over the ranks without gaps, overlaps or padding."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ostinato.recognition.class_partition import class_range


@given(classes=st.integers(0, 10_000), size=st.integers(1, 70))
def test_ranges_cover_all_classes_and_differ_by_one_at_most(classes: int, size: int) -> None:
    ranges = [class_range(classes, rank, size) for rank in range(size)]
    assert [first for first, _ in ranges] == [0, *[last for _, last in ranges[:-1]]]
    assert ranges[-1][1] == classes
    lengths = [last - first for first, last in ranges]
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


def test_37_classes() -> None:
    assert [class_range(37, rank, 2) for rank in range(2)] == [(0, 19), (19, 37)]
    assert [class_range(37, rank, 4) for rank in range(4)] == [(0, 10), (10, 19), (19, 28), (28, 37)]
