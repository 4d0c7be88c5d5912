"""Pictures drawn while a model trains: when, which, and what happens when they cannot be."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import pytest
import tiny_model

from ostinato.config import AugmentationOptions, SwapOptions, read_options
from ostinato.faces.sample import CropSettings
from ostinato.faces.scan import scan_folder
from ostinato.swap.watching import PictureDue, Preview

CROP = CropSettings(
    size=64,
    centering="face",
    coverage=0.875,
    vertical_offset=0.0,
    masks=("extended",),
    mask_dilation=0.0,
    mask_blur_kernel=3,
    mask_threshold=4,
)


def trainer_at(iteration: int, status: str = "running") -> Any:
    return SimpleNamespace(updater=SimpleNamespace(state=SimpleNamespace(iteration=iteration)), status=status)


@pytest.fixture
def preview(people: Path, tmp_path: Path) -> Preview:
    options = read_options(SwapOptions, None, ["seed=1"]).options
    model = tiny_model.build_tiny_model(options, ("a", "b"))
    scans = {side: scan_folder(people / side) for side in "ab"}
    augmentation = AugmentationOptions(preview_images=2)
    return Preview(
        model,
        scans,
        CROP,
        augmentation,
        tmp_path / "previews",
        every=(10, "iteration"),
        seed=1,
        keep=True,
        batch_size=3,
    )


def test_the_faces_are_a_function_of_seed_and_iteration(preview: Preview) -> None:
    first = preview.draw(5)
    assert first is not None
    content = first.read_bytes()
    preview.draw(6)
    assert first.read_bytes() != content
    preview.draw(5)
    assert first.read_bytes() == content
    assert sorted(path.name for path in preview.folder.iterdir()) == ["00000005.png", "00000006.png", "latest.png"]


def test_the_mask_can_be_hidden_and_asks_for_a_new_sheet(preview: Preview) -> None:
    path = preview.draw(5)
    assert path is not None
    with_mask = cv2.imread(str(path))
    preview.toggle_mask()
    assert preview.trigger(trainer_at(6))
    preview.draw(5)
    assert (cv2.imread(str(path)) != with_mask).any()


def test_a_request_fires_once() -> None:
    due = PictureDue(None)
    assert not due(trainer_at(1))
    due.is_requested = True
    assert due(trainer_at(2))
    assert not due(trainer_at(3))


def test_the_model_goes_on_training_after_a_sheet(preview: Preview) -> None:
    preview._model.train()
    preview.draw(5)
    assert preview._model.training


def test_a_sheet_that_cannot_be_written_is_a_warning(preview: Preview, caplog: pytest.LogCaptureFixture) -> None:
    preview.folder.write_text("a file is in the way")
    with caplog.at_level(logging.WARNING, "ostinato"):
        assert preview.draw(5) is None
    assert "No preview at iteration 5" in caplog.text
    assert "It is tried again next time." in caplog.text


def test_a_face_that_disappeared_is_a_warning(
    preview: Preview, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise FileNotFoundError(2, "No such file", "gone.png")

    monkeypatch.setattr("ostinato.swap.watching.prepare_preview_faces", fail)
    with caplog.at_level(logging.WARNING, "ostinato"):
        assert preview.draw(5) is None
    assert "gone.png" in caplog.text


@pytest.mark.parametrize(
    ("status", "start", "end", "expected"),
    [("finished", 0, 4, True), ("stopped", 2, 4, True), ("failed", 0, 4, False), ("finished", 4, 4, False)],
)
def test_the_last_sheet_shows_the_last_model_if_something_was_trained(
    preview: Preview, status: str, start: int, end: int, expected: bool
) -> None:
    preview.initialize(trainer_at(start))
    preview.finalize(trainer_at(end, status))
    assert (preview.folder / f"{end:08d}.png").exists() == expected


@pytest.mark.parametrize(
    ("status", "start", "end", "expected"),
    [("finished", 0, 4, True), ("stopped", 2, 4, True), ("failed", 0, 4, False), ("finished", 4, 4, False)],
)
def test_the_time_lapse_ends_with_the_last_model(
    preview: Preview, people: Path, tmp_path: Path, status: str, start: int, end: int, expected: bool
) -> None:
    drawer = preview.timelapse({side: scan_folder(people / side) for side in "ab"}, tmp_path / "timelapse")
    drawer.initialize(trainer_at(start))
    drawer.finalize(trainer_at(end, status))
    assert (tmp_path / "timelapse" / f"{end:08d}.png").exists() == expected


def test_no_memory_for_a_sheet_is_said_in_words(
    preview: Preview, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError  # which has no text of its own

    monkeypatch.setattr("ostinato.swap.watching.write_picture", fail)
    with caplog.at_level(logging.WARNING, "ostinato"):
        assert preview.draw(5) is None
    assert "No preview at iteration 5: there is not enough memory." in caplog.text
