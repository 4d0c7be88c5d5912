"""Messages as bytes: a length, a text of JSON, and the raw tensors. Nothing in them is executed."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import BadInputError
from ostinato.kvstore.transport import Message
from ostinato.runs.tree import pack_tree, unpack_tree

_ALIGNMENT = 16
_LENGTH_BYTES = 8
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}


def encode(message: Message) -> Tensor:
    """Give a message as bytes: (n,) uint8 on the host. Tensors on a device are copied to the host."""
    packed, tensors = pack_tree(message)
    places: dict[str, list[Any]] = {}
    offset = 0
    for name, tensor in tensors.items():
        places[name] = [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), offset]
        offset += -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
    text = json.dumps([packed, places], allow_nan=False, separators=(",", ":")).encode()
    start = -(-(_LENGTH_BYTES + len(text)) // _ALIGNMENT) * _ALIGNMENT
    whole = torch.zeros(start + offset, dtype=torch.uint8)
    whole[:_LENGTH_BYTES] = torch.frombuffer(bytearray(len(text).to_bytes(_LENGTH_BYTES, "little")), dtype=torch.uint8)
    whole[_LENGTH_BYTES : _LENGTH_BYTES + len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    for name, tensor in tensors.items():
        begin = start + places[name][2]
        end = begin + tensor.numel() * tensor.element_size()
        whole[begin:end].view(tensor.dtype).copy_(tensor.detach().reshape(-1))
    return whole


def decode(data: Tensor) -> Message:
    """Read a message. Its tensors are views of ``data``.

    :raises BadInputError: these are not the bytes of a message.
    """
    try:
        length = int.from_bytes(bytes(data[:_LENGTH_BYTES].numpy()), "little")
        text = bytes(data[_LENGTH_BYTES : _LENGTH_BYTES + length].numpy())
        packed, places = json.loads(text)
        start = -(-(_LENGTH_BYTES + length) // _ALIGNMENT) * _ALIGNMENT
        tensors = {}
        for name, (dtype, shape, offset) in places.items():
            kind = _DTYPES[dtype]
            begin = start + offset
            end = begin + torch.Size(shape).numel() * kind.itemsize
            if begin < start or end > len(data):
                raise ValueError(f"the tensor {name} lies outside the message")
            tensors[name] = data[begin:end].view(kind).view(shape)
        message = unpack_tree(packed, tensors)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise BadInputError(
            f"A message of {len(data)} bytes is not one of a key-value store: {error}.",
            advice="Do workers and servers run the same version of Ostinato?",
        ) from error
    if not isinstance(message, dict):
        raise BadInputError("A message of a key-value store is not a dictionary.")
    return message
