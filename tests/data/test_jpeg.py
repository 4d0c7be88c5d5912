from __future__ import annotations

import struct

import cv2
import numpy as np
import pytest
import simplejpeg

from ostinato.data.jpeg import MAX_PIXELS, ImageError, decode_jpeg, encode_jpeg, jpeg_size


def _picture(height: int = 24, width: int = 40) -> np.ndarray:
    coarse = np.random.default_rng(3).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)


def _with_orientation(data: bytes, orientation: int) -> bytes:
    tiff = b"II*\x00\x08\x00\x00\x00\x01\x00" + struct.pack("<HHII", 0x0112, 3, 1, orientation) + bytes(4)
    exif = b"Exif\x00\x00" + tiff
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]


def test_a_picture_survives_with_small_differences() -> None:
    image = _picture()
    decoded = decode_jpeg(encode_jpeg(image, 98))
    assert decoded.shape == image.shape
    assert decoded.dtype == np.uint8
    assert np.abs(decoded.astype(int) - image).max() <= 8


def test_the_decoder_agrees_with_opencv() -> None:
    data = encode_jpeg(_picture(), 90)
    theirs = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]
    assert np.abs(decode_jpeg(data).astype(int) - theirs).max() <= 2


def test_the_size_comes_from_the_header() -> None:
    assert jpeg_size(encode_jpeg(_picture())) == (24, 40)


def test_grey_becomes_three_equal_channels() -> None:
    grey = np.ascontiguousarray(_picture()[:, :, :1])
    decoded = decode_jpeg(simplejpeg.encode_jpeg(grey, 95, colorspace="GRAY", colorsubsampling="Gray"))
    assert decoded.shape == (24, 40, 3)
    assert (decoded == decoded[:, :, :1]).all()


def test_four_inks_become_rgb() -> None:
    inks = np.full((16, 16, 4), 200, np.uint8)
    data = simplejpeg.encode_jpeg(inks, 95, colorspace="CMYK", colorsubsampling="444")
    assert decode_jpeg(data).shape == (16, 16, 3)


def test_a_picture_is_turned_as_its_camera_asks() -> None:
    data = encode_jpeg(_picture())
    assert decode_jpeg(_with_orientation(data, 1)).shape == (24, 40, 3)
    turned = decode_jpeg(_with_orientation(data, 6))
    assert turned.shape == (40, 24, 3)
    assert np.abs(turned.astype(int) - np.rot90(decode_jpeg(data), -1)).max() <= 2


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.995])
@pytest.mark.parametrize("orientation", [None, 6])
def test_a_picture_that_breaks_off_is_refused(share: float, orientation: int | None) -> None:
    data = encode_jpeg(_picture(), 95)
    data = data if orientation is None else _with_orientation(data, orientation)
    with pytest.raises(ImageError, match=r"cut off|damaged"):
        decode_jpeg(data[: int(share * len(data))])


def test_data_in_the_middle_that_are_overwritten_are_refused() -> None:
    data = bytearray(encode_jpeg(_picture(200, 200), 95))
    data[len(data) // 2 : len(data) // 2 + 40] = b"\xff\xd9" * 20
    with pytest.raises(ImageError, match=r"cut off|damaged"):
        decode_jpeg(bytes(data))


@pytest.mark.parametrize("marker", [b"\xff\xdb", b"\xff\xc4", b"\xff\xda"])
def test_stray_bytes_before_a_marker_do_no_harm(marker: bytes) -> None:
    data = encode_jpeg(_picture(), 95)
    stray = data.replace(marker, b"\x00\x00" + marker, 1)
    assert np.array_equal(decode_jpeg(stray), decode_jpeg(data))
    with pytest.raises(ImageError, match="cut off"):
        decode_jpeg(stray[:-100])


def test_a_size_that_would_fill_the_memory_is_refused_before_anything_is_decoded() -> None:
    data = bytearray(encode_jpeg(_picture(), 95))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 65000, 65000)
    with pytest.raises(ImageError, match=f"65000 x 65000 pixels; at most {MAX_PIXELS:,}"):
        decode_jpeg(bytes(data))
