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
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError
from ostinato.runs.atomic import CheckedReader, ChecksumMismatchError, FileRecord, open_regular

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

_NOT_OURS = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    OverflowError,
    RuntimeError,  # torch's, of shapes that overflow its own arithmetic
)
"""What reading something else than a safetensors file can end in."""

_BY_NAME = {name: dtype for dtype, name in DTYPES.items()}

MAX_DIMENSIONS = 64
"""Tensors with more are refused: torch cannot compute with them."""

MAX_HEADER_BYTES = 100_000_000
"""Larger headers are refused, by us as by the library."""


def file_order(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names in the order of the file: wide elements first, so that every tensor is aligned; then by name."""
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def tensor_pieces(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """The bytes of a safetensors file, tensor by tensor.

    Tensors on another device, and those with another memory order than C, are copied one at a time.

    :param tensors: by name; any device.
    :param metadata: further texts for the header.
    :raises ArgumentTypeError: a tensor is sparse, quantized, complex or has no memory.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt", **(metadata or {})}}
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


def read_tensors(path: Path, record: FileRecord, wanted: Callable[[str], bool] | None = None) -> dict[str, Tensor]:
    """The tensors of a file, read once and verified on the way.

    :param wanted: whether the tensor of a name is needed; None for all. The others are verified and take no memory.
    :return: CPU tensors, each in memory of its own: torch's generators refuse states at odd addresses.
    :raises ChecksumMismatchError: the file is not what its record says, or no safetensors file.
    """
    with CheckedReader(path, record) as reader:
        try:
            tensors = _read_wanted(reader, record.bytes, wanted)
        except _NOT_OURS as error:
            reader.finish()  # that it is not what was written explains more than what it looks like now
            raise ChecksumMismatchError(f"is no safetensors file: {error}") from error
        reader.finish()
    return tensors


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies in a file.

    :param start: of its first byte, from the start of the file.
    :param end: one past its last.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


def read_header(path: Path) -> tuple[dict[str, TensorPlace], dict[str, str]]:
    """What a file says that it holds; none of its tensors is read.

    :return: the places by name, and the texts of the header.
    :raises ChecksumMismatchError: it is missing, or no safetensors file.
    """
    descriptor = open_regular(path)
    with open(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        try:
            length = _header_length(file.read(8), size)
            places, metadata = _parse_header(file.read(length), size)
        except _NOT_OURS as error:
            raise ChecksumMismatchError(f"is no safetensors file: {error}") from error
    return {place.name: place for place in places}, metadata


def _header_length(first: bytes, size: int) -> int:
    length = int.from_bytes(first, "little")
    if size < 8 or length > min(MAX_HEADER_BYTES, size - 8):
        raise ValueError("its header is longer than the file")
    return length


def _parse_header(text: bytes, size: int) -> tuple[list[TensorPlace], dict[str, str]]:
    """The places of the tensors, in the order of the header, and its texts.

    :param size: of the file, in bytes.
    """
    header = json.loads(text.decode())
    metadata = {str(key): str(value) for key, value in (header.pop("__metadata__", None) or {}).items()}
    begin = 8 + len(text)
    places = []
    for name, entry in header.items():
        dtype = _BY_NAME[entry["dtype"]]
        shape = tuple(int(n) for n in entry["shape"])
        start, end = (int(n) + begin for n in entry["data_offsets"])
        if len(shape) > MAX_DIMENSIONS:
            raise ValueError(
                f"the tensor {name!r} has {len(shape):,} dimensions, more than the {MAX_DIMENSIONS} allowed"
            )
        if min(shape, default=0) < 0 or end - start != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"the size of the tensor {name!r} does not fit its shape")
        places.append(TensorPlace(name, dtype, shape, start, end))
    position = begin
    for place in sorted(places, key=lambda place: (place.start, place.end)):
        if place.start != position or not place.start <= place.end <= size:
            raise ValueError(
                f"the tensor {place.name!r} is not where the one before it ends, or lies outside of the file"
            )
        position = place.end
    if position != size:
        raise ValueError("it holds more than its tensors")
    return places, metadata


def _read_wanted(reader: CheckedReader, size: int, wanted: Callable[[str], bool] | None) -> dict[str, Tensor]:
    length = _header_length(reader.read(min(8, size)), size)
    places, _ = _parse_header(reader.read(length), size)
    tensors: dict[str, Tensor] = {}
    for place in sorted(places, key=lambda place: (place.start, place.end)):
        if wanted is not None and not wanted(place.name):
            reader.skip(place.end - place.start)
            continue
        tensor = torch.empty(place.shape, dtype=place.dtype)
        if place.end > place.start:
            reader.read_into(bytes_of(tensor.view(-1).view(torch.uint8)))
        tensors[place.name] = tensor
    return {place.name: tensors[place.name] for place in places if place.name in tensors}
