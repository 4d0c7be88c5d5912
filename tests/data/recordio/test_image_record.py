from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.data.recordio import ImageRecord, pack_image_record, unpack_image_record
from ostinato.errors import ArgumentValueError

_floats = st.floats(width=32, allow_nan=False)


@given(
    st.one_of(_floats, st.lists(_floats, min_size=1, max_size=5).map(tuple)),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=20),
)
def test_a_record_survives(labels: float | tuple[float, ...], first: int, second: int, image: bytes) -> None:
    payload = pack_image_record(labels, image, id=first, id2=second)
    assert unpack_image_record(payload) == ImageRecord(labels, first, second, image)


def test_a_number_stands_in_the_header_and_a_sequence_behind_it() -> None:
    assert pack_image_record(3, b"x", id=7) == struct.pack("<IfQQ", 0, 3, 7, 0) + b"x"
    assert pack_image_record([3, 0.5], b"x", id=7, id2=1) == struct.pack("<IfQQff", 2, 0, 7, 1, 3, 0.5) + b"x"


def test_the_label_is_the_first_of_several() -> None:
    assert unpack_image_record(pack_image_record((4, 9), b"", id=0)).label == 4
    assert unpack_image_record(pack_image_record(4, b"", id=0)).label == 4


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (bytes(23), "23 bytes"),
        (struct.pack("<IfQQ", 2**32 - 1, 0, 0, 0) + bytes(9), "4,294,967,295 labels.*room for 2"),
    ],
)
def test_a_payload_that_is_too_short_is_refused(payload: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        unpack_image_record(payload)


@pytest.mark.parametrize(("labels", "id"), [((), 0), (1.0, -1), (1.0, 2**64), (1e300, 0)])
def test_what_does_not_fit_is_refused(labels: float | tuple[float, ...], id: int) -> None:
    with pytest.raises(ArgumentValueError):
        pack_image_record(labels, b"", id=id)
