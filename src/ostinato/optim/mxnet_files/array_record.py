"""One array as MXNet writes it: in lists of arrays, and inside trainer states.

A record is: u32 mark of the version; i32 storage (0 dense, 1 row-sparse, 2 csr); for sparse ones the shape of what is
stored; the shape; device type and number, two i32; i32 dtype; for sparse ones dtype and shape of each index array; the
data; the index arrays' data. A shape is i32 number of dimensions and that many i64. Older versions have no storage
field, or a number of dimensions in the mark's place and u32 dimensions. Everything is little-endian. Where the array
lived is read past.
"""

from __future__ import annotations

import math
import struct
from typing import TypeAlias

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.optim.mxnet_files.byte_reader import ByteReader
from ostinato.optim.row_sparse_gradient import RowSparse

Array: TypeAlias = Tensor | RowSparse
"""A dense tensor, a ``torch.sparse_csr`` tensor, or the rows of a row-sparse table."""

VERSION_1, VERSION_2, VERSION_3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
DENSE, ROW_SPARSE, CSR = 0, 1, 2

MAX_DIMENSIONS = 32
MAX_SIZE = 2**40
"""Larger dimensions are taken for damage."""

DTYPES = {
    0: torch.float32,
    1: torch.float64,
    2: torch.float16,
    3: torch.uint8,
    4: torch.int32,
    5: torch.int8,
    6: torch.int64,
    7: torch.bool,
    12: torch.bfloat16,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}


def read_array(reader: ByteReader) -> Array:
    """Read the record at the reader's position.

    :returns: a tensor of its own memory on the CPU. An array that was never given a shape becomes an empty one.
    :raises BadInputError: the record is damaged or of an unknown kind.
    """
    start = reader.position
    mark = reader.number("I", "the mark of an array")
    if mark not in (VERSION_1, VERSION_2, VERSION_3):
        if mark > MAX_DIMENSIONS:
            reader.refuse(f"the mark of an array should stand, and there is 0x{mark:08X}", at=start)
        shape = tuple(reader.number("I", "a dimension") for _ in range(mark))
        return _read_dense(reader, shape) if shape else torch.empty(0)
    storage = DENSE if mark == VERSION_1 else reader.number("i", "the kind of storage")
    if storage not in (DENSE, ROW_SPARSE, CSR) or (mark == VERSION_3 and storage != DENSE):
        reader.refuse(f"there is no kind of storage {storage}", at=start + 4)
    stored = _read_shape(reader) if storage != DENSE else ()
    shape = _read_shape(reader)
    if shape is None or (not shape and mark != VERSION_3):
        return torch.empty(0)
    if storage == DENSE:
        return _read_dense(reader, shape)
    if stored is None:
        reader.refuse("a sparse array has no stored shape", at=start)
    return _read_sparse(reader, storage, stored, shape)


def _read_shape(reader: ByteReader) -> tuple[int, ...] | None:
    """Read a shape; None for one that is not known, which version 3 writes as -1."""
    at = reader.position
    dimensions = reader.number("i", "a number of dimensions")
    if dimensions == -1:
        return None
    if not 0 <= dimensions <= MAX_DIMENSIONS:
        reader.refuse(f"an array would have {dimensions} dimensions", at=at)
    shape = tuple(reader.number("q", "a dimension") for _ in range(dimensions))
    if any(size > MAX_SIZE for size in shape):
        reader.refuse(f"an array would have the shape {shape}", at=at)
    return None if any(size < 0 for size in shape) else shape


def _read_dtype(reader: ByteReader) -> torch.dtype:
    at = reader.position
    code = reader.number("i", "a dtype")
    if code not in DTYPES:
        reader.refuse(f"there is no dtype {code}", at=at)
    return DTYPES[code]


def _skip_device(reader: ByteReader) -> None:
    reader.take(8, "the device of an array")


def _read_data(reader: ByteReader, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    start = reader.position
    data = reader.take(math.prod(shape) * dtype.itemsize, f"the data of an array of shape {shape}")
    if len(data):
        read = torch.frombuffer(bytearray(data), dtype=torch.uint8 if dtype == torch.bool else dtype).reshape(shape)
        return read != 0 if dtype == torch.bool else read
    try:
        return torch.empty(shape, dtype=dtype)
    except (RuntimeError, OverflowError):  # nothing in it, and yet too large to name
        reader.refuse(f"an array would have the shape {shape}", at=start)


def _read_dense(reader: ByteReader, shape: tuple[int, ...]) -> Tensor:
    _skip_device(reader)
    dtype = _read_dtype(reader)
    return _read_data(reader, shape, dtype)


def _read_sparse(reader: ByteReader, storage: int, stored: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    start = reader.position
    _skip_device(reader)
    dtype = _read_dtype(reader)
    kinds = []
    for _ in range(1 if storage == ROW_SPARSE else 2):
        kind, size = _read_dtype(reader), _read_shape(reader)
        if size is None or len(size) != 1:
            reader.refuse(f"the numbers of rows or columns would have the shape {size}", at=start)
        kinds.append((size, kind))
    values = _read_data(reader, stored, dtype)
    numbers = [_read_data(reader, size, kind).to(torch.int64) for size, kind in kinds]
    try:
        if storage == ROW_SPARSE:
            return RowSparse(numbers[0], values, shape).checked()
        if len(shape) != 2:
            reader.refuse(f"a csr array would have the shape {shape}", at=start)
        return torch.sparse_csr_tensor(numbers[0], numbers[1], values, shape, check_invariants=True)
    except (ArgumentValueError, ArgumentTypeError, RuntimeError) as error:
        reader.refuse(f"a sparse array contradicts itself: {str(error).splitlines()[0]}", at=start)


def array_bytes(array: Array) -> bytes:
    """Give the record of an array: version 2, or 3 where a shape needs it.

    :param array: dense, row-sparse or csr, on any device, of a dtype in :data:`DTYPES`.
    :raises ArgumentTypeError: MXNet has no such dtype or layout.
    """
    if isinstance(array, RowSparse):
        return b"".join(
            (
                struct.pack("<Ii", VERSION_2, ROW_SPARSE),
                _shape_bytes(tuple(array.values.shape)),
                _shape_bytes(array.shape),
                _kind_bytes(array.values),
                _dtype_bytes(array.indices),
                _shape_bytes(tuple(array.indices.shape)),
                _data_bytes(array.values),
                _data_bytes(array.indices),
            )
        )
    if array.layout == torch.sparse_csr:
        values, rows, columns = array.values(), array.crow_indices().long(), array.col_indices().long()
        return b"".join(
            (
                struct.pack("<Ii", VERSION_2, CSR),
                _shape_bytes(tuple(values.shape)),
                _shape_bytes(tuple(array.shape)),
                _kind_bytes(values),
                *(_dtype_bytes(numbers) + _shape_bytes(tuple(numbers.shape)) for numbers in (rows, columns)),
                *(_data_bytes(part) for part in (values, rows, columns)),
            )
        )
    if array.layout != torch.strided:
        raise ArgumentTypeError(
            f"MXNet's files have no arrays of layout {str(array.layout).removeprefix('torch.')}.",
            advice="Make the tensor dense, or take RowSparse.from_coo of it.",
        )
    version = VERSION_2 if array.ndim and array.numel() else VERSION_3
    shape = tuple(array.shape)
    return struct.pack("<Ii", version, DENSE) + _shape_bytes(shape) + _kind_bytes(array) + _data_bytes(array)


def _shape_bytes(shape: tuple[int, ...]) -> bytes:
    return struct.pack(f"<i{len(shape)}q", len(shape), *shape)


def _dtype_bytes(tensor: Tensor) -> bytes:
    code = CODES.get(tensor.dtype)
    if code is None:
        raise ArgumentTypeError(
            f"MXNet's files have no arrays of {str(tensor.dtype).removeprefix('torch.')}.",
            advice=f"Convert the tensor to one of {', '.join(str(d).removeprefix('torch.') for d in CODES)}.",
        )
    return struct.pack("<i", code)


def _kind_bytes(tensor: Tensor) -> bytes:
    return struct.pack("<ii", 1, 0) + _dtype_bytes(tensor)  # on the CPU


def _data_bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
