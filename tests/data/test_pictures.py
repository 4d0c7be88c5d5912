from __future__ import annotations

import contextlib
import struct
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.data.jpeg import ImageError
from ostinato.data.pictures import PictureSize, bare_png, decode_rgb, encode_png, picture_size, three_channels

_IMAGE = np.random.default_rng(1).integers(0, 256, (13, 17, 3), dtype=np.uint8)
_EXACT = (".png", ".bmp", ".ppm", ".webp")


def _encoded(ending: str, image: np.ndarray = _IMAGE) -> bytes:
    options = [cv2.IMWRITE_WEBP_QUALITY, 101] if ending == ".webp" else []
    return cv2.imencode(ending, image[..., ::-1] if image.ndim == 3 else image, options)[1].tobytes()


@pytest.mark.parametrize("ending", _EXACT)
def test_formats_without_loss_give_the_same_pixels(ending: str) -> None:
    assert np.array_equal(decode_rgb(_encoded(ending)), _IMAGE)


@pytest.mark.parametrize("ending", [*_EXACT, ".jpg"])
def test_the_size_is_known_from_the_header(ending: str) -> None:
    size = picture_size(_encoded(ending))
    assert (size.height, size.width) == (13, 17)


def test_lossy_webp_and_webp_with_alpha_have_sizes_too() -> None:
    assert picture_size(cv2.imencode(".webp", _IMAGE, [cv2.IMWRITE_WEBP_QUALITY, 50])[1].tobytes()).width == 17
    alpha = np.dstack([_IMAGE, _IMAGE[:, :, :1]])
    assert picture_size(cv2.imencode(".webp", alpha, [cv2.IMWRITE_WEBP_QUALITY, 50])[1].tobytes()).height == 13


def test_grey_becomes_three_channels_and_alpha_is_dropped() -> None:
    grey = _IMAGE[:, :, 0]
    for ending in (".pgm", ".png"):
        assert np.array_equal(decode_rgb(_encoded(ending, grey)), np.repeat(grey[:, :, None], 3, axis=2))
    assert np.array_equal(decode_rgb(cv2.imencode(".png", np.dstack([_IMAGE, grey]))[1].tobytes())[..., ::-1], _IMAGE)


def test_sixteen_bits_are_rounded_to_eight() -> None:
    wide = np.minimum(_IMAGE.astype(np.uint32) * 257 + 100, 65535).astype(np.uint16)
    assert np.array_equal(decode_rgb(cv2.imencode(".png", wide)[1].tobytes())[..., ::-1], _IMAGE)


def test_the_header_of_a_portable_pixmap_may_hold_comments() -> None:
    assert decode_rgb(b"P5 # hi\n# more\n3 2\n255\nabcdef")[:, :, 0].tolist() == [[97, 98, 99], [100, 101, 102]]


def test_png_is_written_without_loss() -> None:
    assert np.array_equal(decode_rgb(encode_png(_IMAGE)), _IMAGE)


@pytest.mark.parametrize("ending", [*_EXACT, ".jpg"])
@pytest.mark.parametrize("kept", [0, 3, 20, 0.5, 0.99])
def test_a_picture_that_is_cut_off_is_refused_and_nothing_is_printed(
    ending: str, kept: float, capfd: pytest.CaptureFixture[str]
) -> None:
    data = _encoded(ending)
    with pytest.raises(ImageError):
        decode_rgb(data[: kept if kept >= 1 else int(kept * len(data))])
    assert capfd.readouterr() == ("", "")


def test_a_png_with_a_wrong_checksum_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    data = bytearray(_encoded(".png"))
    data[60] ^= 1
    with pytest.raises(ImageError, match="checksum"):
        decode_rgb(bytes(data))
    assert capfd.readouterr() == ("", "")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_texts_profiles_and_further_frames_of_a_png_never_reach_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    png = _encoded(".png")
    packed = zlib.compress(bytes(1_000_000))
    bombs = [
        _chunk(b"acTL", struct.pack(">II", 2, 0)),
        _chunk(b"iCCP", b"profile\0\0" + packed),
        _chunk(b"zTXt", b"Comment\0\0" + packed),
        _chunk(b"iTXt", b"Comment\0\1\0\0\0" + packed),
    ]
    laden = png[:33] + b"".join(bombs) + png[33:-12] + bombs[2] + png[-12:]
    seen = []
    decode = cv2.imdecode
    monkeypatch.setattr(cv2, "imdecode", lambda data, flags: seen.append(data.tobytes()) or decode(data, flags))
    assert np.array_equal(decode_rgb(laden), _IMAGE)
    assert seen == [bare_png(png)]
    assert not any(kind in seen[0] for kind in (b"acTL", b"iCCP", b"zTXt", b"iTXt"))


def test_a_png_with_a_palette_keeps_its_colours() -> None:
    palette = bytes([10, 20, 30, 200, 100, 50])
    rows = zlib.compress(b"\0\0\1" + b"\0\1\0")
    png = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 3, 0, 0, 0))
    png += _chunk(b"PLTE", palette) + _chunk(b"tRNS", b"\0\x80") + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")
    assert decode_rgb(png).tolist() == [[[10, 20, 30], [200, 100, 50]], [[200, 100, 50], [10, 20, 30]]]


def test_a_small_file_cannot_ask_for_much_memory() -> None:
    body = b"IHDR" + struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    with pytest.raises(ImageError, match="60000 x 60000 pixels; at most"):
        decode_rgb(png)
    with pytest.raises(ImageError, match="pixels; at most"):
        decode_rgb(b"P6 999999999 999999999 255\n")


@pytest.mark.parametrize("data", [b"", b"<html>", b"GIF89a" + bytes(20), b"RIFF1234WEBPVP9 " + bytes(20)])
def test_anything_else_is_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(ImageError, match=r"empty|it is no JPEG|unknown kind"):
        decode_rgb(data)


def test_a_picture_without_pixels_is_refused() -> None:
    with pytest.raises(ImageError, match="its size is 0 x 5"):
        picture_size(b"P5 0 5 255\n")


@given(st.sampled_from([*_EXACT, ".jpg"]), st.data())
def test_damaged_bytes_give_pixels_or_a_reason(ending: str, data: st.DataObject) -> None:
    encoded = bytearray(_encoded(ending))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, min(60, len(encoded) - 1)))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ImageError):  # any other exception fails the test
        assert decode_rgb(bytes(encoded)).dtype == np.uint8
    with contextlib.suppress(ImageError):
        assert isinstance(picture_size(bytes(encoded)), PictureSize)


def test_all_sixteen_bit_values_round_to_the_nearest() -> None:
    deep = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    assert np.array_equal(three_channels(deep)[..., 1], np.rint(deep / 65535 * 255))


def test_other_types_are_refused() -> None:
    with pytest.raises(ImageError, match="float32"):
        three_channels(np.zeros((4, 4, 3), np.float32))
