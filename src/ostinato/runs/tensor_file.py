"""Tensors in the safetensors format: written in pieces, and read while their checksum is checked.

The format: eight bytes with the length of the header, little-endian; the header, JSON, padded with blanks to a
multiple of eight; then the tensors one after the other without gaps, in C order, little-endian. It is written here
and not with the library because the library wants one more whole copy of the state in memory, and because reading and
checking must be the same pass over the file: what was verified is what is used. The tests read our files with the
library and the library's files with this reader.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError
from ostinato.runs.atomic import ChecksumMismatchError, FileRecord, read_checked

DTYPES: dict[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""The element types that can be saved, and their names in the format."""

_BY_NAME = {name: dtype for dtype, name in DTYPES.items()}

MAX_HEADER_BYTES = 100_000_000
"""Larger headers are refused, by us as by the library."""


def file_order(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names in the order of the file: wide elements first, so that every tensor is aligned; then by name."""
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def tensor_pieces(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The bytes of a safetensors file, tensor by tensor.

    Tensors on another device, and those with another memory order than C, are copied one at a time.

    :param tensors: by name; any device.
    :raises ArgumentTypeError: a tensor is sparse, quantized, complex or has no memory.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    names = file_order(tensors)
    for name in names:
        tensor = tensors[name]
        check_storable(name, tensor)
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        tensor = tensors[name].detach()
        if tensor.numel():
            yield bytes_of(tensor.cpu().contiguous().view(-1).view(torch.uint8))


def bytes_of(block: Tensor) -> memoryview:
    """The memory of a flat uint8 CPU tensor; writing to it writes to the tensor."""
    array: Any = block.numpy()
    return memoryview(array)


def check_storable(name: str, tensor: Tensor) -> None:
    """Refuse what the format cannot hold.

    :raises ArgumentTypeError: names the tensor.
    """
    if tensor.dtype not in DTYPES or tensor.layout != torch.strided or tensor.is_meta:
        kind = "no memory (meta device)" if tensor.is_meta else f"type {tensor.dtype}, layout {tensor.layout}"
        raise ArgumentTypeError(
            f"The tensor {name!r} cannot be saved: {kind}.", advice="Save it as dense real numbers."
        )


def read_tensors(path: Path, record: FileRecord) -> dict[str, Tensor]:
    """All tensors of a file, read once and verified on the way.

    :return: CPU tensors that share one block of memory, as large as the file.
    :raises ChecksumMismatchError: the file is not what its record says, or no safetensors file.
    """
    block = torch.empty(record.bytes, dtype=torch.uint8)
    view = bytes_of(block)

    def take(offset: int, piece: bytes) -> None:
        view[offset : offset + len(piece)] = piece

    read_checked(path, record, take)
    try:
        return _cut_tensors(block)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ChecksumMismatchError(f"is no safetensors file: {error}") from error


def _cut_tensors(block: Tensor) -> dict[str, Tensor]:
    length = int.from_bytes(bytes(block[:8].tolist()), "little")
    if block.numel() < 8 or length > min(MAX_HEADER_BYTES, block.numel() - 8):
        raise ValueError("its header is longer than the file")
    header = json.loads(bytes(bytes_of(block)[8 : 8 + length]).decode())
    header.pop("__metadata__", None)
    data = block[8 + length :]
    tensors = {}
    for name, entry in header.items():
        dtype = _BY_NAME[entry["dtype"]]
        shape = [int(n) for n in entry["shape"]]
        start, end = (int(n) for n in entry["data_offsets"])
        if min(shape, default=0) < 0 or not 0 <= start <= end <= data.numel():
            raise ValueError(f"the tensor {name!r} lies outside of the file")
        if end - start != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"the size of the tensor {name!r} does not fit its shape")
        part = data[start:end]
        if part.storage_offset() % dtype.itemsize:
            part = part.clone()
        tensors[name] = part.view(dtype).reshape(shape) if end > start else torch.empty(shape, dtype=dtype)
    return tensors
