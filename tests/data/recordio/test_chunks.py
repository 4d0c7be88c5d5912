from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.data.recordio.chunks import MAGIC_BYTES, encode_record, split
from ostinato.errors import ArgumentValueError

_payloads = st.lists(st.one_of(st.binary(max_size=9), st.just(MAGIC_BYTES), st.just(bytes(4))), max_size=8).map(
    b"".join
)


def _split_slowly(payload: bytes) -> list[tuple[int, bytes]]:
    """The rule, read off word by word."""
    closed, begin = [], 0
    for place in range(0, len(payload) // 4 * 4, 4):
        if payload[place : place + 4] == MAGIC_BYTES:
            closed.append((2 if closed else 1, payload[begin:place]))
            begin = place + 4
    return [*closed, (3 if closed else 0, payload[begin:])]


def test_a_record_is_magic_length_data_and_padding() -> None:
    assert encode_record(b"hello") == bytes.fromhex("0A23D7CE 05000000") + b"hello" + bytes(3)
    assert encode_record(b"") == bytes.fromhex("0A23D7CE 00000000")


def test_an_aligned_magic_number_splits_the_record() -> None:
    record = encode_record(b"abcd" + MAGIC_BYTES + b"e")
    flags = [struct.unpack_from("<II", record, at)[1] for at in (0, 12)]
    assert flags == [1 << 29 | 4, 3 << 29 | 1]
    assert len(record) == 24


def test_a_magic_number_at_another_place_does_not() -> None:
    assert [flag for flag, _ in split(b"a" + MAGIC_BYTES + b"bcd")] == [0]


@pytest.mark.parametrize(
    ("payload", "lengths"),
    [
        (MAGIC_BYTES, [0, 0]),
        (MAGIC_BYTES * 2, [0, 0, 0]),
        (b"abcd" + MAGIC_BYTES, [4, 0]),
        (MAGIC_BYTES + b"ab", [0, 2]),
    ],
)
def test_chunks_may_be_empty(payload: bytes, lengths: list[int]) -> None:
    assert [len(data) for _, data in split(payload)] == lengths


@given(_payloads)
def test_splitting_follows_the_rule(payload: bytes) -> None:
    assert [(flag, bytes(data)) for flag, data in split(payload)] == _split_slowly(payload)
    assert len(encode_record(payload)) % 4 == 0


def test_a_record_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.data.recordio.chunks.MAX_LENGTH", 10)
    with pytest.raises(ArgumentValueError, match="11 bytes"):
        encode_record(bytes(11))
