"""Pictures of what a model has learned, drawn while it trains."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ostinato.config import AugmentationOptions
from ostinato.extensions.save import Snapshot
from ostinato.faces.sample import CropSettings
from ostinato.faces.scan import FaceFile, FolderScan
from ostinato.loop import PRIORITY_SNAPSHOT, Extension, TrainerView
from ostinato.loop.out_of_memory import is_out_of_memory
from ostinato.loop.triggers import Trigger, get_trigger
from ostinato.swap.models import SwapModel
from ostinato.swap.preview import (
    PreviewFaces,
    PreviewMaker,
    Timelapse,
    choose_faces,
    prepare_preview_faces,
    write_picture,
)

_log = logging.getLogger(__name__)

PREVIEW_FOLDER = "previews"
LATEST = "latest.png"


class PictureDue(Trigger):
    """Fires at an interval, or when a picture was asked for."""

    def __init__(self, every: Any) -> None:
        self._every = get_trigger(every)
        self.is_requested = False

    def __call__(self, trainer: TrainerView) -> bool:
        due = self._every(trainer)  # asked every time: a trigger that is not asked loses its place
        requested, self.is_requested = self.is_requested, False
        return due or requested

    def initialize(self, trainer: TrainerView) -> None:
        """Take the base line."""
        if isinstance(self._every, Trigger):
            self._every.initialize(trainer)

    def state_dict(self) -> dict[str, Any]:
        """The interval's base line."""
        return self._every.state_dict() if isinstance(self._every, Trigger) else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved base line."""
        if isinstance(self._every, Trigger):
            self._every.load_state_dict(state)


class Preview(Extension):
    """Draws a sheet of random faces at every save, on request, and once at the end: ``previews/latest.png``.

    Which faces it shows is a function of the seed and the iteration, so a preview never changes what is trained.
    Whatever goes wrong with it becomes a warning.

    :param model: the model in training.
    :param scans: the folder of each side.
    :param crop: the training's settings.
    :param options: how many faces, colour and opacity of the mask.
    :param folder: where pictures go.
    :param every: when a sheet is drawn.
    :param keep: also keep each sheet under its iteration.
    :param batch_size: faces that go through the model at once.
    """

    # Between the readers and the snapshot: a picture that fails must not keep a state from being saved, and both see
    # the same weights.
    priority = PRIORITY_SNAPSHOT + 50
    name = "preview"

    def __init__(
        self,
        model: SwapModel,
        scans: Mapping[str, FolderScan],
        crop: CropSettings,
        options: AugmentationOptions,
        folder: Path,
        *,
        every: Any,
        seed: int,
        keep: bool = False,
        batch_size: int = 16,
    ) -> None:
        self.trigger = PictureDue(every)
        self.show_mask = True
        self.folder = folder
        self._model = model
        self._scans = scans
        self._crop = crop
        self._options = options
        self._seed = seed
        self._keep = keep
        self._batch_size = batch_size
        self._drawn_at = -1  # iteration of the newest sheet; of the start before there is one

    def request(self) -> None:
        """Draw one after this iteration. May be called from anywhere; it only makes a note."""
        self.trigger.is_requested = True

    def toggle_mask(self) -> None:
        """Show or hide the mask from now on, and draw a new sheet."""
        self.show_mask = not self.show_mask
        self.request()

    def initialize(self, trainer: TrainerView) -> None:
        """Remember where this process starts."""
        self._drawn_at = trainer.updater.state.iteration

    def __call__(self, trainer: TrainerView) -> None:
        """Draw the sheet of this iteration."""
        self.draw(trainer.updater.state.iteration)

    def draw(self, iteration: int) -> Path | None:
        """Draw the sheet; returns the file, or None after a failure, which is a warning."""
        try:
            picture = self._maker(iteration).make()
            path = write_picture(self.folder / LATEST, picture)
            if self._keep:
                write_picture(self.folder / f"{iteration:08d}.png", picture)
        except Exception as error:  # training must outlive anything that happens here
            why = "there is not enough memory" if is_out_of_memory(error) else str(error) or type(error).__name__
            _log.warning("No preview at iteration %d: %s. It is tried again next time.", iteration, why)
            _log.debug("where it failed", exc_info=True)
            return None
        self._drawn_at = iteration
        return path

    def finalize(self, trainer: TrainerView) -> None:
        """Leave a sheet of the final model, unless the run failed or nothing was trained since the last one."""
        iteration = trainer.updater.state.iteration
        if trainer.status in ("finished", "stopped") and self._drawn_at != iteration:
            self.draw(iteration)

    def _maker(self, iteration: int) -> PreviewMaker:
        faces = {}
        for place, (side, scan) in enumerate(self._scans.items()):
            # Each side picks for itself; otherwise folders of one size would always show the same numbers.
            chosen = choose_faces(scan.files, self._options.preview_images, seed=self._seed + place, number=iteration)
            faces[side] = self._prepare(chosen)
        return self._maker_of(faces)

    def _prepare(self, files: Sequence[FaceFile]) -> PreviewFaces:
        sizes = self._model.input_size, max(self._model.output_sizes)
        return prepare_preview_faces(files, self._crop, *sizes, self._crop.face_mask)

    def _maker_of(self, faces: Mapping[str, PreviewFaces]) -> PreviewMaker:
        return PreviewMaker(
            self._model,
            faces,
            self._options,
            coverage=self._crop.coverage,
            show_mask=self.show_mask and bool(self._crop.masks),
            batch_size=self._batch_size,
        )

    def timelapse(self, scans: Mapping[str, FolderScan], folder: Path) -> TimelapseDrawer:
        """A time-lapse of fixed faces in the manner of these previews: the first of each folder, by name."""

        def open_maker() -> PreviewMaker:
            faces = {side: self._prepare(scan.files[: self._options.preview_images]) for side, scan in scans.items()}
            return self._maker_of(faces)

        return TimelapseDrawer(Timelapse(folder, open_maker))


class TimelapseDrawer(Extension):
    """Draws the same faces at every save, the last one included; see :class:`ostinato.swap.preview.Timelapse`."""

    priority = PRIORITY_SNAPSHOT + 40
    name = "timelapse"

    def __init__(self, timelapse: Timelapse) -> None:
        self._timelapse = timelapse
        self._drawn_at = -1  # iteration of the newest picture; of the start before there is one

    def initialize(self, trainer: TrainerView) -> None:
        """Remember where this process starts."""
        self._drawn_at = trainer.updater.state.iteration

    def __call__(self, trainer: TrainerView) -> None:
        """Draw the picture of this iteration."""
        self._drawn_at = trainer.updater.state.iteration
        self._timelapse.make(self._drawn_at)

    def finalize(self, trainer: TrainerView) -> None:
        """Draw the final model too, unless the run failed or nothing was trained since the last picture."""
        if trainer.status in ("finished", "stopped") and self._drawn_at != trainer.updater.state.iteration:
            self(trainer)


def saves_and_previews(snapshot: Snapshot, preview: Preview) -> Callable[[], None]:
    """What the key S does: save after this iteration, and show what is saved."""

    def both() -> None:
        snapshot.request_save()
        preview.request()

    return both
