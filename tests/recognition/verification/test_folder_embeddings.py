"""The embeddings of a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from people_pictures import PatchMeans, person_picture, write_people

from ostinato.data.pictures import encode_png
from ostinato.errors import BadInputError, NonFiniteError
from ostinato.recognition.verification.folder_embeddings import NOBODY, embed_folder


def test_people_and_pictures_side_by_side(tmp_path: Path) -> None:
    write_people(tmp_path / "people", 3, 2)
    (tmp_path / "people" / "loose.png").write_bytes(encode_png(person_picture(0, 0)))
    (tmp_path / "people" / ".hidden.png").write_bytes(b"")
    result = embed_folder(PatchMeans(), tmp_path / "people", batch_size=4)
    result.write(tmp_path / "new" / "out.npz")
    with np.load(tmp_path / "new" / "out.npz") as stored:  # pickle is off
        assert stored["names"].tolist() == [f"person_0{p}/{n}.png" for p in range(3) for n in range(2)] + ["loose.png"]
        assert stored["labels"].tolist() == [0, 0, 1, 1, 2, 2, NOBODY]
        assert stored["people"].tolist() == ["person_00", "person_01", "person_02"]
        assert stored["embeddings"].shape == (7, 48)
        assert stored["embeddings"].dtype == np.float32
        assert np.linalg.norm(stored["embeddings"], axis=1) == pytest.approx(np.ones(7), abs=1e-6)
        assert bool(stored["normalised"]) is True
        assert stored["embeddings"][6] == pytest.approx(stored["embeddings"][0])


def test_raw_embeddings_are_the_sums_of_plain_and_mirrored(tmp_path: Path) -> None:
    write_people(tmp_path, 2, 1)
    raw = embed_folder(PatchMeans(), tmp_path, normalise=False)
    assert not raw.normalised
    grid = raw.embeddings.reshape(2, 3, 4, 4)
    assert grid == pytest.approx(grid[..., ::-1], abs=1e-5)
    lengths = np.linalg.norm(raw.embeddings, axis=1, keepdims=True)
    assert embed_folder(PatchMeans(), tmp_path).embeddings == pytest.approx(raw.embeddings / lengths, abs=1e-6)


def test_a_flat_folder_has_nobody_in_it(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(encode_png(person_picture(number, 0)))
    result = embed_folder(PatchMeans(), tmp_path)
    assert (result.names, result.people) == (("0.png", "1.png", "2.png"), ())
    assert result.labels.tolist() == [NOBODY] * 3


def test_pictures_that_cannot_be_used_are_left_out_and_named(tmp_path: Path) -> None:
    write_people(tmp_path, 2, 3)
    (tmp_path / "person_00" / "1.png").write_bytes(b"no picture")
    result = embed_folder(PatchMeans(), tmp_path, batch_size=2)
    assert result.names == tuple(f"person_0{p}/{n}.png" for p, n in ((0, 0), (0, 2), (1, 0), (1, 1), (1, 2)))
    assert result.labels.tolist() == [0, 0, 1, 1, 1]
    assert len(result.embeddings) == 5
    (sentence,) = result.left_out
    assert "person_00/1.png cannot be used: it is no" in sentence


def test_nothing_to_embed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no sub-folders"):
        embed_folder(PatchMeans(), tmp_path)
    with pytest.raises(BadInputError, match="cannot be read"):
        embed_folder(PatchMeans(), tmp_path / "nothing")
    (tmp_path / "x.png").write_bytes(b"x")
    with pytest.raises(BadInputError, match="None of the 1 pictures"):
        embed_folder(PatchMeans(), tmp_path)


def test_a_broken_model_is_named_by_pictures(tmp_path: Path) -> None:
    write_people(tmp_path, 2, 1)
    model = PatchMeans()
    torch.nn.init.constant_(model.weight, float("nan"))
    with pytest.raises(NonFiniteError, match=r"2 of 2 .* person_00/0\.png, person_01/0\.png"):
        embed_folder(model, tmp_path)
