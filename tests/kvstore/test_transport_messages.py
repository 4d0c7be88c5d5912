from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import ArgumentTypeError, BadInputError
from ostinato.kvstore.transport_messages import decode, encode

LEAVES = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=5)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(0, 9), inner)
)


@given(st.dictionaries(st.text(max_size=4), TREES, max_size=4))
def test_plain_values_arrive_as_they_left(message: dict[str, object]) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (5, 0, 2), (7, 3)])
def test_tensors_arrive_as_they_left(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    one = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    other = torch.arange(12).view(3, 4).T  # not contiguous
    found = decode(encode({"one": one, "more": [other, {"again": one}]}))
    assert torch.equal(found["one"], one)
    assert found["one"].dtype == dtype
    assert torch.equal(found["more"][0], other)
    assert torch.equal(found["more"][1]["again"], one)


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadInputError):
        decode(torch.frombuffer(bytearray(data + b"\0"), dtype=torch.uint8))


def test_a_message_that_was_cut_off_is_refused() -> None:
    data = encode({"w": torch.ones(100)})
    with pytest.raises(BadInputError, match="outside"):
        decode(data[:-1].clone())


def test_only_plain_values_are_sent() -> None:
    with pytest.raises(ArgumentTypeError):
        encode({"f": print})
