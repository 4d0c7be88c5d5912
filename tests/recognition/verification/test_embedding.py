"""Embedding pictures, plain and mirrored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from people_pictures import PatchMeans, person_picture, write_people
from torch import nn

from ostinato.data.pictures import encode_png
from ostinato.errors import ArgumentValueError, BadInputError
from ostinato.recognition.verification import embed_images
from ostinato.recognition.verification.embedding import embed_usable_images
from ostinato.recognition.verification.pictures import PictureBytes, PictureFile, prepare_picture, to_input


def pictures(count: int) -> list[PictureBytes]:
    return [PictureBytes(f"picture {n}", encode_png(person_picture(n, 0))) for n in range(count)]


@pytest.mark.parametrize("batch_size", [1, 4, 5, 11, 64])
def test_any_batch_size_gives_the_same_and_the_last_batch_may_be_smaller(batch_size: int) -> None:
    model, done = PatchMeans(), []
    result = embed_images(
        model, pictures(11), batch_size=batch_size, progress=lambda now, total: done.append((now, total))
    )
    assert result.plain.shape == result.mirrored.shape == (11, 48)
    for row, flipped, picture in zip(result.plain, result.mirrored, pictures(11), strict=True):
        prepared = prepare_picture(picture)
        with torch.no_grad():
            assert row == pytest.approx(model(to_input([prepared]))[0].numpy(), abs=1e-6)
            assert flipped == pytest.approx(model(to_input([prepared[:, ::-1]]))[0].numpy(), abs=1e-6)
    sizes = [batch_size] * (11 // batch_size) + [11 % batch_size] * (11 % batch_size > 0)
    assert model.batches[: 2 * len(sizes)] == [size for size in sizes for _ in range(2)]
    assert done[-1] == (11, 11)


def test_what_the_network_sees_is_rgb_from_minus_1_to_1() -> None:
    array = np.zeros((112, 112, 3), np.uint8)
    array[..., 0] = 255
    (seen,) = to_input([prepare_picture(PictureBytes("red", encode_png(array)))])
    assert seen.dtype == torch.float32
    assert seen[:, 0, 0].tolist() == [1.0, -1.0, -1.0]


def test_gradients_are_off() -> None:
    seen = []

    class Watching(PatchMeans):
        def forward(self, pictures: torch.Tensor) -> torch.Tensor:
            rows = super().forward(pictures)
            seen.append(rows.requires_grad)
            return rows

    embed_images(Watching(), pictures(1))
    assert seen == [False, False]


def test_other_sizes_are_brought_to_the_networks(tmp_path: Path) -> None:
    (tmp_path / "tall.png").write_bytes(encode_png(np.zeros((150, 100, 3), np.uint8)))
    assert prepare_picture(PictureFile(tmp_path / "tall.png")).shape == (112, 112, 3)


def test_a_picture_that_cannot_be_used_is_named_or_left_out(tmp_path: Path) -> None:
    folder = write_people(tmp_path, 1, 3) / "person_00"
    (folder / "1.png").write_bytes(b"no picture")
    (folder / "2.png").unlink()
    files = [PictureFile(folder / name) for name in ("0.png", "1.png", "2.png")]
    with pytest.raises(BadInputError, match=r"1\.png cannot be used"):
        embed_images(PatchMeans(), files)
    embedded, used, left_out = embed_usable_images(PatchMeans(), files, batch_size=1)
    assert embedded is not None
    assert (len(embedded.plain), used) == (1, [0])
    assert [("1.png" in left_out[0]), ("2.png" in left_out[1])] == [True, True]
    assert embed_usable_images(PatchMeans(), files[1:])[0] is None


def test_nonsense_is_refused() -> None:
    with pytest.raises(ArgumentValueError, match="batch of 0"):
        embed_images(PatchMeans(), pictures(1), batch_size=0)
    with pytest.raises(ArgumentValueError, match="no pictures"):
        embed_images(PatchMeans(), [])
    with pytest.raises(ArgumentValueError, match=r"made \(1, 3, 112, 112\) of 1 pictures"):
        embed_images(nn.Identity(), pictures(1))
