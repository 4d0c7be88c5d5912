"""Pickles of pair files, read as data."""

from __future__ import annotations

import io
import pickle
import struct
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.errors import BadInputError
from ostinato.recognition.verification.pair_pickle import read_pair_pickle

pictures = st.lists(st.binary(min_size=1, max_size=300), max_size=6)
FEW = settings(max_examples=30)


class Python2Pickler(pickle._Pickler):  # the pickler in Python, which lets its methods be replaced
    """Writes bytes as Python 2 wrote its strings."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value: bytes) -> None:
        short = len(value) < 256
        self.write(b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<i", len(value)))
        self.write(value)
        self.memoize(value)

    dispatch[bytes] = save_string


def python2_pickle(value: object, protocol: int) -> bytes:
    written = io.BytesIO()
    Python2Pickler(written, protocol).dump(value)
    return written.getvalue()


@FEW
@given(images=pictures, same=st.lists(st.booleans(), max_size=5), protocol=st.integers(1, 5))
def test_bytes_of_every_protocol(images: list[bytes], same: list[bool], protocol: int) -> None:
    assert read_pair_pickle(pickle.dumps((images, same), protocol), "pairs.bin") == (images, same)


@FEW
@given(images=pictures, same=st.lists(st.booleans(), max_size=5), protocol=st.integers(1, 2))
def test_strings_of_python_2(images: list[bytes], same: list[bool], protocol: int) -> None:
    assert read_pair_pickle(python2_pickle((images, same), protocol), "pairs.bin") == (images, same)


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_arrays_and_truth_values_of_numpy(protocol: int, shape: tuple[int, ...]) -> None:
    images = [bytes(range(256)), b"a\xff"]
    arrays = [np.frombuffer(image, np.uint8).reshape(shape) for image in images]
    for same in ([np.bool_(True), np.bool_(False)], np.array([True, False]), (1, 0), [np.int64(1), np.int64(0)]):
        assert read_pair_pickle(pickle.dumps((arrays, same), protocol), "x") == (images, [True, False])


def test_a_picture_written_once_and_referred_to_is_one_object() -> None:
    image = b"picture"
    read, _ = read_pair_pickle(pickle.dumps(([image, image], [True])), "x")
    assert read[0] is read[1]


class Calls:
    def __init__(self, function: object, *arguments: object) -> None:
        self.called = (function, arguments)

    def __reduce__(self) -> tuple[object, ...]:
        return self.called


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("function", [print, eval, np.load, np.fromfile])
def test_nothing_is_called(protocol: int, function: object, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInputError, match="no pair file needs"):
        read_pair_pickle(pickle.dumps(([Calls(function, "1")], [True]), protocol), "x")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "an instruction should take 1 bytes"),
        (b"\x80\x07N.", "no pickle protocol 7"),
        (b"\x80\x02}.", "0x7D, which no pair file needs"),  # a dict
        (b"\x80\x02G" + bytes(8) + b".", "0x47, which no pair file needs"),  # a float
        (b"(ios\nsystem\n.", "0x69, which no pair file needs"),  # an instance of old
        (b"\x80\x02cos\nsystem\n.", "'os.system'"),  # a class that is only named
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "'os.system'"),
        (b"\x80\x02N.", "a pair of pictures and answers should be here"),
        (b"\x80\x02]]\x86.x", "1 bytes follow the end"),
        (b"\x80\x02](NNe]\x86.", "picture 0 is no sequence of bytes"),
        (b"\x80\x02](U\x01aK\x07e](K\x02e\x86.", "picture 1 is no sequence of bytes"),
        (b"\x80\x02]](K\x02e\x86.", "pair 0 is neither true nor false"),
        (b"\x80\x02]N\x86.", "the answers, same or not, are no list"),
        (b"\x80\x02T\xff\xff\xff\xff.", "bytes would have the length -1"),
        (b"\x80\x02Ix\n.", "a number is no number"),
        (b"\x80\x02I" + b"1" * 40 + b"\n.", "too many digits"),
        (b"\x80\x02]g5\n\x86.", "refers to value 5"),
        (b"\x80\x02c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00utf-8tR.", "otherwise than as latin1"),
        (b"\x80\x02c_codecs\nencode\n(X\x02\x00\x00\x00\xc4\x80X\x06\x00\x00\x00latin1tR.", "other letters"),
        (b"\x80\x02cnumpy\nndarray\n)R.", "in a way that no pair file needs"),
    ],
)
def test_what_no_pair_file_holds_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(BadInputError, match=why) as caught:
        read_pair_pickle(data, "pairs.bin")
    assert caught.value.fields["path"] == "pairs.bin"


def array_pickle(shape: bytes, dtype: bytes, data: bytes) -> bytes:
    """A pair file whose one picture is an array that is described so."""
    text = b"C" + bytes([len(data)]) + data
    name = b"X" + struct.pack("<I", len(dtype)) + dtype
    return (
        b"\x80\x03](cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
        b"(K\x01" + shape + b"cnumpy\ndtype\n" + name + b"K\x00K\x01\x87R\x89" + text + b"tbe]\x86."
    )


def test_an_array_is_a_sequence_of_bytes_and_nothing_else() -> None:
    assert read_pair_pickle(array_pickle(b"K\x03\x85", b"u1", b"abc"), "x") == ([b"abc"], [])
    for shape, dtype in (
        (b"K\x04\x85", b"u1"),
        (b"J\xff\xff\xff\xff\x85", b"u1"),
        (b"K\x01K\x01K\x03\x87", b"u1"),
        (b"K\x03\x85", b"O8"),
        (b"K\x03\x85", b"i8"),
    ):
        with pytest.raises(BadInputError):
            read_pair_pickle(array_pickle(shape, dtype, b"abc"), "x")


def test_a_text_cannot_be_encoded_again_and_again() -> None:
    text = b"X" + struct.pack("<I", 100_000) + b"a" * 100_000 + b"q\x00"
    again = b"c_codecs\nencode\n(h\x00X\x06\x00\x00\x00latin1tR"
    with pytest.raises(BadInputError, match="encodes more text than it has"):
        read_pair_pickle(b"\x80\x02](" + text + again * 50 + b"e]\x86.", "x")


@FEW
@given(cut=st.integers(0, 400), protocol=st.integers(1, 4))
def test_a_file_that_is_cut_off_is_refused(cut: int, protocol: int) -> None:
    whole = pickle.dumps(([b"a" * 100, np.frombuffer(b"b" * 100, np.uint8)], [True]), protocol)
    with pytest.raises(BadInputError):
        read_pair_pickle(whole[: min(cut, len(whole) - 1)], "x")


@FEW
@given(place=st.integers(0, 10_000), byte=st.integers(0, 255), protocol=st.integers(1, 4))
def test_a_damaged_file_is_read_or_refused_and_nothing_else(place: int, byte: int, protocol: int) -> None:
    whole = bytearray(
        pickle.dumps(([b"a" * 20, np.frombuffer(b"b" * 20, np.uint8)], [np.bool_(True), False]), protocol)
    )
    whole[place % len(whole)] = byte
    try:
        images, same = read_pair_pickle(bytes(whole), "x")
    except BadInputError:
        return
    assert all(isinstance(image, bytes) for image in images)
    assert all(isinstance(answer, bool) for answer in same)
