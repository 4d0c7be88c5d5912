"""What a file is, from its first bytes: people pass the wrong one, and its name tells little."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Literal

from ostinato.recognition.insightface.refusal import refusal

Kind = Literal["torch", "legacy torch", "safetensors", "mxnet"]
"""What can be read: a zip archive of ``torch.save``, its bare pickle from before 2020, other lists of arrays."""

LARGEST_FILE = 64 * 2**30
"""Bytes of the largest file that is opened. A rank's training state of 10 million classes on 8 ranks has 6 GiB."""

_MXNET_MARK = struct.pack("<Q", 0x112)


def kind_of(path: Path) -> Kind:
    """Find out which reader a file needs.

    :raises BadInputError: it is missing, empty, too large, or nothing that holds tensors; says what it is. Field:
        ``path``.
    """
    try:
        if path.is_dir():
            raise refusal(
                path, "is a folder", "Name the file itself. A run is exported first: ostinato recognition export"
            )
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(512)
    except OSError as error:
        raise refusal(path, f"cannot be opened: {error.strerror or error}", "Check the path") from error
    if not size:
        raise refusal(path, "is empty", "Get the file again")
    if size > LARGEST_FILE:
        raise refusal(path, f"has {size / 2**30:.0f} GiB, more than the 64 GiB that are read", "Check the path")
    if zipfile.is_zipfile(path):
        _check_archive(path, size)
        return "torch"
    foreign = _foreign(start)
    if foreign:
        raise refusal(path, *foreign)
    if start.startswith(_MXNET_MARK):
        return "mxnet"
    header = struct.unpack("<Q", start[:8])[0] if size > 9 else 0
    if start[8:9] == b"{" and header < size:
        return "safetensors"
    return "legacy torch"


def _foreign(start: bytes) -> tuple[str, str] | None:
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "is a web page, not weights", "The download led to a page that asks or warns; download the file itself"
    if text.startswith(b"version https://git-lfs"):
        return "is a pointer of Git LFS, not the weights", "Fetch the file itself with `git lfs pull`"
    if start.startswith(b"\x89HDF"):
        return "is an HDF5 file, as Keras writes them", "Pass weights that PyTorch or MXNet wrote"
    if start.startswith(struct.pack("<I", 0xCED7230A)):
        return "is a RecordIO file of pictures, not weights", "Pass it where training data is asked for"
    if start.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"Rar!")) or start[257:262] == b"ustar":
        return "is an archive", "Unpack it and pass the file of weights inside"
    if start.startswith((b"\xff\xd8\xff", b"\x89PNG")):
        return "is a picture, not weights", "Check the path"
    if start.startswith(b"\x08") and b"pytorch" in start[:64]:
        return "is an ONNX file", "ONNX files are written and not read; pass the .pth that it was made from"
    return None


def _check_archive(path: Path, size: int) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise refusal(path, f"is damaged: {error}", "Get the file again") from error
    names = {member.filename for member in members}
    if "config.json" in names and any(name.endswith(".h5") for name in names):
        raise refusal(path, "is a model of Keras", "Pass weights that PyTorch or MXNet wrote")
    if not any(name == "data.pkl" or name.endswith("/data.pkl") for name in names):
        raise refusal(path, "is a zip archive", "Unpack it and pass the file of weights inside")
    if any("/code/" in name for name in names):
        raise refusal(
            path,
            "is a TorchScript program, and those are not run",
            "Pass the network's weights: torch.save(network.state_dict(), ...)",
        )
    # torch.save stores without compression, so what unfolds to more than the file was not made by it.
    if sum(member.file_size for member in members) > size:
        raise refusal(path, "would unfold to more bytes than it has", "PyTorch writes no such files; get it again")
