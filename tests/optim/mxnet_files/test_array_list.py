"""Lists of arrays: written and read again, old versions by hand, and damage of every kind."""

from __future__ import annotations

import functools
import io
import struct
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ostinato.errors import ArgumentTypeError, BadInputError
from ostinato.optim.mxnet_files import read_array_list, write_array_list
from ostinato.optim.mxnet_files.array_record import DTYPES, read_array
from ostinato.optim.mxnet_files.byte_reader import ByteReader
from ostinato.optim.row_sparse_gradient import RowSparse


def written(arrays: Any) -> bytes:
    file = io.BytesIO()
    write_array_list(file, arrays)
    return file.getvalue()


def read(data: bytes, tmp_path: Path) -> Any:
    path = tmp_path / "arrays.params"
    path.write_bytes(data)
    return read_array_list(path)


def several() -> dict[str, Any]:
    arrays: dict[str, Any] = {str(dtype): torch.tensor([[0, 1, 2], [3, 4, 1]]).to(dtype) for dtype in DTYPES.values()}
    arrays["one"] = torch.tensor(2.5)
    arrays["none"] = torch.empty(0, 3)
    arrays["rows"] = RowSparse(torch.tensor([0, 3]), torch.tensor([[1.5, 2.5], [3.5, 4.5]]), (5, 2))
    arrays["csr"] = torch.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse_csr()
    arrays["strided"] = torch.arange(6.0).reshape(2, 3).t()
    arrays["ümläut"] = torch.ones(1, requires_grad=True)
    return arrays


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected) or isinstance(found, Tensor)
    if isinstance(expected, RowSparse):
        assert found.shape == expected.shape
        assert torch.equal(found.to_dense(), expected.to_dense())
        return
    assert found.dtype == expected.dtype
    assert found.layout == expected.layout
    assert torch.equal(found.to_dense(), expected.detach().to_dense())


def test_arrays_of_every_kind_come_back_by_name(tmp_path: Path) -> None:
    expected = several()
    found = read(written(expected), tmp_path)
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert_same(found[name], array)


def test_arrays_without_names_come_back_as_a_list(tmp_path: Path) -> None:
    found = read(written([torch.ones(2), torch.zeros(1, 1)]), tmp_path)
    assert [array.tolist() for array in found] == [[1.0, 1.0], [[0.0]]]
    assert read(written([]), tmp_path) == []


def test_what_is_read_can_be_changed(tmp_path: Path) -> None:
    (found,) = read(written([torch.ones(2)]), tmp_path)
    found += 1
    assert found.tolist() == [2.0, 2.0]


def test_older_records_are_read() -> None:
    device_and_kind = struct.pack("<iii", 2, 7, 0)  # on the eighth GPU, float32
    data = struct.pack("<2f", 1.5, 2.5)
    records = [
        struct.pack("<Iiq", 0xF993FAC8, 1, 2) + device_and_kind + data,
        struct.pack("<II", 1, 2) + device_and_kind + data,
        struct.pack("<IiIq", 0xF993FAC9, 0, 1, 2) + device_and_kind + data,
    ]
    for record in records:
        reader = ByteReader(record, "here")
        assert read_array(reader).tolist() == [1.5, 2.5]  # type: ignore[union-attr]
        assert reader.remaining == 0


def test_arrays_that_never_had_a_shape_are_empty() -> None:
    for record in (
        struct.pack("<I", 0),
        struct.pack("<Ii", 0xF993FAC8, 0),
        struct.pack("<Iii", 0xF993FAC9, 0, 0),
        struct.pack("<Iii", 0xF993FACA, 0, -1),
        struct.pack("<Iiiq", 0xF993FACA, 0, 1, -1),
    ):
        reader = ByteReader(record, "here")
        assert read_array(reader).shape == (0,)
        assert reader.remaining == 0


HEADER = struct.pack("<QQQ", 0x112, 0, 1)
ONE = struct.pack("<IiiqiiI", 0xF993FAC9, 0, 1, 1, 1, 0, 0) + struct.pack("<f", 1.0)


@pytest.mark.parametrize(
    ("data", "offset", "message"),
    [
        (b"", 0, "mark of a list of arrays should take 8 bytes, and 0 are left"),
        (b"<html>..", 0, "the mark 0x112 of a list of arrays should stand"),
        (struct.pack("<QQQ", 0x112, 0, 2**60), 16, f"{2**60} arrays should follow, and 0 bytes are left"),
        (HEADER + struct.pack("<I", 0xF993FACB), 24, "the mark of an array should stand"),
        (HEADER + struct.pack("<Ii", 0xF993FAC9, 3), 28, "no kind of storage 3"),
        (HEADER + struct.pack("<Ii", 0xF993FACA, 1), 28, "no kind of storage 1"),
        (HEADER + struct.pack("<Iii", 0xF993FAC9, 0, 33), 32, "an array would have 33 dimensions"),
        (HEADER + struct.pack("<Iiiq", 0xF993FAC9, 0, 1, 2**41), 32, "would have the shape"),
        (HEADER + struct.pack("<IiiqiiI", 0xF993FAC9, 0, 1, 1, 1, 0, 99), 52, "no dtype 99"),
        (
            HEADER + struct.pack("<IiiqqiiI", 0xF993FAC9, 0, 2, 2**39, 2**39, 1, 0, 0),
            64,
            "the data of an array of shape .* should take",
        ),
        (
            HEADER + struct.pack("<Iii3qiiI", 0xF993FAC9, 0, 3, 0, 2**40, 2**40, 1, 0, 0),
            72,
            "an array would have the shape",
        ),
        (HEADER + ONE + struct.pack("<Q", 2), 60, "should follow"),
        (HEADER + ONE + struct.pack("<QQ", 2, 0) + bytes(8), 60, "there are 2 names for 1 arrays"),
        (HEADER + ONE + struct.pack("<QQ", 1, 9) + b"x", 76, "a name should take 9 bytes, and 1 are left"),
        (HEADER + ONE + struct.pack("<QQ", 1, 1) + b"\xff", 76, "not UTF-8"),
        (HEADER + ONE + struct.pack("<Q", 0) + b"?", 68, "1 bytes follow the end"),
        (
            struct.pack("<QQQ", 0x112, 0, 2) + ONE * 2 + struct.pack("<QQ", 2, 1) + b"a" + struct.pack("<Q", 1) + b"a",
            113,
            "'a' comes a second time",
        ),
    ],
)
def test_damage_is_named_with_file_and_place(data: bytes, offset: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=message) as caught:
        read(data, tmp_path)
    assert caught.value.fields["offset"] == offset
    assert caught.value.fields["path"] == str(tmp_path / "arrays.params")
    assert "arrays.params cannot be read: at byte" in str(caught.value)


@pytest.mark.parametrize("rows", [[3, 0], [0, 5], [-1, 2], [2, 2]])
def test_rows_that_contradict_their_table_are_refused(rows: list[int], tmp_path: Path) -> None:
    data = written([RowSparse(torch.tensor(rows), torch.ones(2, 2), (5, 2))])
    with pytest.raises(BadInputError, match="a sparse array contradicts itself"):
        read(data, tmp_path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"nowhere\.params cannot be opened"):
        read_array_list(tmp_path / "nowhere.params")
    with pytest.raises(BadInputError, match="cannot be opened"):
        read_array_list(tmp_path)


def test_what_mxnet_has_no_word_for_is_not_written() -> None:
    with pytest.raises(ArgumentTypeError, match="complex64"):
        written([torch.ones(1, dtype=torch.complex64)])
    with pytest.raises(ArgumentTypeError, match="sparse_coo"):
        written([torch.ones(2, 2).to_sparse()])


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_no_damage_leads_to_anything_but_an_error_of_ours(data: st.DataObject) -> None:
    whole = bytearray(whole_file())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        what = data.draw(st.sampled_from(["flip", "cut", "insert", "number"]))
        if what == "flip":
            whole[at] = data.draw(st.integers(0, 255))
        elif what == "cut":
            del whole[at : at + data.draw(st.integers(1, 12))]
            whole = whole or bytearray(b"\0")
        elif what == "insert":
            whole[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        else:
            whole[at : at + 8] = struct.pack("<q", data.draw(st.sampled_from([-1, 2**31, 2**40, 2**62, -(2**63)])))
    reader = ByteReader(bytes(whole), "fuzzed")
    try:
        reader.take(24, "the head")
        while reader.remaining:
            read_array(reader)
    except BadInputError as error:
        assert_placed(error, whole)


def assert_placed(error: BadInputError, data: bytearray) -> None:
    assert 0 <= error.fields["offset"] <= len(data)


@pytest.fixture(scope="module", autouse=True)
def _csr_without_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch says once that csr is new
        torch.ones(1, 1).to_sparse_csr()


@functools.cache
def whole_file() -> bytes:
    return written(several())
