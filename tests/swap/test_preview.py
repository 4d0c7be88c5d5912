"""Preparing preview faces, running a model on them, time-lapse pictures."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ostinato.config import AugmentationOptions
from ostinato.errors import FaceFolderError
from ostinato.faces.drawn import DEMO_IDENTITIES, write_drawn_folder
from ostinato.faces.face_files import write_face
from ostinato.faces.sample import CropSettings
from ostinato.faces.scan import FaceFile, scan_folder
from ostinato.swap.preview import (
    PreviewFaces,
    PreviewMaker,
    Timelapse,
    choose_faces,
    patch_size,
    prepare_preview_faces,
    write_picture,
)
from ostinato.swap.provenance import read_provenance

SIZE = 32


class _Shades(nn.Module):
    """Adds a shade of its own for each side, so that a cell tells who drew it; notes every batch it was given."""

    def __init__(self, sides: tuple[str, ...] = ("a", "b"), *, learn_mask: bool = False) -> None:
        super().__init__()
        self.sides = sides
        self.learn_mask = learn_mask
        self.shade = nn.Parameter(torch.arange(1.0, len(sides) + 1) / 10)
        self.batches: list[int] = []

    def encode(self, faces: Tensor) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        self.batches.append(len(faces))
        return faces

    def decode(self, features: Tensor, side: str) -> list[Tensor]:
        small = features[..., ::2, ::2] * 0
        face = features * 0 + self.shade[self.sides.index(side)]
        return [small, face, *([torch.ones_like(face[:, :1])] if self.learn_mask else [])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faces") / "a"
    write_drawn_folder(path, DEMO_IDENTITIES["a"], 5, seed=3, size=64)
    return path


@pytest.fixture
def files(folder: Path) -> list[FaceFile]:
    return list(scan_folder(folder).files)


def _faces(count: int, *, masks: bool = False) -> PreviewFaces:
    pictures = np.full((count, SIZE, SIZE, 3), 100, np.uint8)
    return PreviewFaces(pictures, pictures, np.zeros((count, SIZE, SIZE), np.uint8) if masks else None)


def _cells(sheet: np.ndarray, columns: int) -> Iterator[np.ndarray]:
    strip = int(SIZE / 4.5)
    for index in range(columns):
        yield sheet[strip:, index * SIZE : (index + 1) * SIZE]


def test_every_side_is_shown_with_its_own_decoder_first_and_then_the_others() -> None:
    maker = PreviewMaker(_Shades(("a", "b", "c")), {"b": _faces(2), "c": _faces(1)}, AugmentationOptions())
    first_row = [int(cell[0, 0, 0]) for cell in _cells(maker.make(), 8)]
    a, b, c = (round(shade * 255) for shade in (0.1, 0.2, 0.3))
    assert first_row == [100, b, a, c, 100, c, a, b]


def test_the_last_batch_is_short_and_not_filled_up() -> None:
    model = _Shades(("a",))
    PreviewMaker(model, {"a": _faces(7)}, AugmentationOptions(), batch_size=3).make()
    assert model.batches == [3, 3, 1]


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_in_the_mode_it_was_in(training: bool) -> None:
    model = _Shades(("a",))
    model.train(training)
    PreviewMaker(model, {"a": _faces(1)}, AugmentationOptions()).make()
    assert model.training is training


def test_the_mask_can_be_switched_off_and_on() -> None:
    maker = PreviewMaker(_Shades(("a",)), {"a": _faces(1, masks=True)}, AugmentationOptions(mask_opacity=100))
    assert (next(_cells(maker.make(), 2)) == (255, 0, 0)).all()
    maker.show_mask = False
    assert (next(_cells(maker.make(), 2)) == 100).all()


def test_a_learned_mask_is_taken_from_the_model() -> None:
    options = AugmentationOptions(mask_opacity=100)
    model = _Shades(("a",), learn_mask=True)
    original, rebuilt = _cells(PreviewMaker(model, {"a": _faces(1, masks=True)}, options).make(), 2)
    assert (original == (255, 0, 0)).all()
    assert (rebuilt == round(0.1 * 255)).all()


@pytest.mark.parametrize(
    ("output", "coverage", "size"), [(64, 1.0, 64), (64, 0.8, 80), (64, 0.625, 102), (65, 1.0, 65), (256, 0.875, 292)]
)
def test_a_patch_leaves_the_covered_part_its_output_size(output: int, coverage: float, size: int) -> None:
    assert patch_size(output, coverage) == size
    assert (size - output) % 2 == 0


@pytest.mark.parametrize("coverage", [1.0, 0.8])
def test_prepared_faces_show_the_feed_in_the_middle_of_the_patch(files: list[FaceFile], coverage: float) -> None:
    faces = prepare_preview_faces(files, CropSettings(64, coverage=coverage), 64, 64, "extended")
    size = patch_size(64, coverage)
    assert faces.feed.shape == (5, 64, 64, 3)
    assert faces.patches.shape == (5, size, size, 3)
    assert faces.masks is not None
    assert faces.masks.shape == (5, size, size)
    low = (size - 64) // 2
    middle = faces.patches[:, low : low + 64, low : low + 64].astype(float)
    assert np.abs(middle - faces.feed).mean() < 8  # the same view up to a fraction of a pixel


def test_without_a_mask_there_is_none_to_show(files: list[FaceFile]) -> None:
    assert prepare_preview_faces(files, CropSettings(32), 32, 32, None).masks is None


def test_plain_pictures_are_shown_whole_and_count_as_all_inside(tmp_path: Path) -> None:
    write_face(tmp_path / "plain.png", np.full((40, 40, 3), 90, np.uint8), None)
    faces = prepare_preview_faces(scan_folder(tmp_path).files, CropSettings(64, coverage=0.8), 64, 64, "extended")
    assert faces.masks is not None
    assert faces.masks.min() == 255
    assert (faces.patches[0, 8:72, 8:72] == 90).all()
    assert (faces.patches[0, :8] == 128).all()


def test_faces_that_cannot_be_read_are_left_out_with_a_warning(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    files = scan_folder(tmp_path).files
    files[0].path.unlink()
    files[2].path.write_text("no picture any more")
    with caplog.at_level(logging.WARNING):
        faces = prepare_preview_faces(files, CropSettings(32), 32, 32, "extended")
    assert len(faces.feed) == 3
    assert [files[0].name in caplog.text, files[2].name in caplog.text] == [True, True]
    for file in files:
        file.path.unlink(missing_ok=True)
    with pytest.raises(FaceFolderError, match="None of the 5 faces"):
        prepare_preview_faces(files, CropSettings(32), 32, 32, None)


def test_chosen_faces_differ_from_preview_to_preview_and_repeat_with_the_seed(files: list[FaceFile]) -> None:
    chosen = [[file.name for file in choose_faces(files, 2, seed=1, number=number)] for number in range(12)]
    assert chosen == [[file.name for file in choose_faces(files, 2, seed=1, number=number)] for number in range(12)]
    assert len({tuple(names) for names in chosen}) > 3
    assert all(len(set(names)) == 2 for names in chosen)
    assert choose_faces(files, 14, seed=1, number=0) == files  # fewer faces than asked for: all there are


def test_a_timelapse_names_its_pictures_by_iteration(tmp_path: Path) -> None:
    maker = PreviewMaker(_Shades(("a",)), {"a": _faces(1)}, AugmentationOptions())
    timelapse = Timelapse(tmp_path / "timelapse", lambda: maker)
    assert timelapse.make(1000) == tmp_path / "timelapse" / "00001000.png"
    assert timelapse.make(2000) is not None
    assert sorted(path.name for path in (tmp_path / "timelapse").iterdir()) == ["00001000.png", "00002000.png"]
    picture = cv2.imread(str(tmp_path / "timelapse" / "00001000.png"))
    assert np.array_equal(picture[..., ::-1], maker.make())


def test_pictures_of_swapped_faces_say_that_they_are_synthetic(tmp_path: Path) -> None:
    maker = PreviewMaker(_Shades(("a", "b")), {"a": _faces(1), "b": _faces(1)}, AugmentationOptions())
    sheet = maker.make()
    path = write_picture(tmp_path / "previews" / "latest.png", sheet)
    found = read_provenance(path)
    assert found is not None
    assert found.is_synthetic
    assert found.description.startswith("Synthetic: faces in this picture were drawn by a trained model")
    picture = cv2.imread(str(path))
    assert np.array_equal(picture[..., ::-1], sheet)


def test_a_timelapse_that_fails_warns_and_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    attempts = 0

    def open_maker() -> PreviewMaker:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise FaceFolderError("The faces are on a disk that sleeps.", folder="x")
        return PreviewMaker(_Shades(("a",)), {"a": _faces(1)}, AugmentationOptions())

    place = tmp_path / "timelapse"
    place.write_text("a file where the folder should be")
    timelapse = Timelapse(place, open_maker)
    with caplog.at_level(logging.WARNING):
        assert timelapse.make(250) is None
        assert timelapse.make(500) is None
    assert "iteration 250" in caplog.text
    assert "sleeps" in caplog.text
    assert "iteration 500" in caplog.text
    place.unlink()
    assert timelapse.make(750) == place / "00000750.png"
    assert attempts == 2  # the faces were read once they could be, and kept
