from __future__ import annotations

import cv2
import numpy as np
import pytest

from ostinato.faces.png_chunks import latin_text
from ostinato.faces.png_encoding import encode_png


@pytest.mark.parametrize("channels", [3, 4])
def test_an_encoded_picture_has_the_same_pixels_and_carries_the_chunks(channels: int) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    chunk = latin_text("Description", "a test")
    data = encode_png(picture, chunks=[chunk])
    read = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert np.array_equal(read[..., [2, 1, 0, 3][:channels]], picture)
    assert 0 < data.index(chunk) < data.index(b"IDAT")
