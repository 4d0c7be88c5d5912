"""The folders of faces of a training: scanned, checked, and recognised when the run continues."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.config import SwapOptions
from ostinato.data.file_names import shown_name
from ostinato.errors import BadInputError, FaceFolderError
from ostinato.faces.folder_checks import (
    check_count,
    check_landmarks,
    check_masks,
    check_readable,
    count_enlarged,
    training_centering,
)
from ostinato.faces.sample import CropSettings
from ostinato.faces.scan import FolderScan, scan_folder
from ostinato.loop import Extension
from ostinato.swap.folder_sketch import exchanged_sides, folder_sketch, similarity

Tell = Callable[[str], None]

_TELL_EVERY = 5.0
"""Seconds between sentences about how far a look at a folder has come."""


@dataclass(frozen=True)
class FaceFolders:
    """The folders of all sides, as they are now."""

    scans: Mapping[str, FolderScan]

    @property
    def sketches(self) -> dict[str, list[str]]:
        """A fingerprint of each folder; see :mod:`ostinato.swap.folder_sketch`."""
        return {side: folder_sketch(scan.paths) for side, scan in self.scans.items()}


def scan_folders(folders: Mapping[str, Path], *, skip_bad: bool, tell: Tell) -> FaceFolders:
    """Look at every face's header, and refuse folders that cannot be trained on.

    :param folders: by the side's name.
    :param skip_bad: leave unusable files out instead of refusing the folder.
    :param tell: given a sentence about each thing worth knowing.
    :raises FaceFolderError: a folder cannot be read, has unusable files or too few faces.
    :raises BadInputError: two sides have the same folder.
    """
    _refuse_same_folder(folders)
    scans: dict[str, FolderScan] = {}
    for side, folder in folders.items():
        scan = scan_folder(folder, progress=_progress(side, tell))
        if skip_bad:
            for bad in scan.bad:
                tell(f"{shown_name(folder / bad.name)} is left out: {bad.reason}.")
        else:
            try:
                check_readable(scan)
            except FaceFolderError as error:
                raise FaceFolderError(
                    error.what,
                    advice=error.advice.replace("ask for bad files to be skipped", "use --skip-bad-faces"),
                    **error.fields,
                ) from error
        for note in (*scan.notes(), check_count(scan)):
            if note:
                tell(note)
        scans[side] = scan
    return FaceFolders(scans)


def scan_timelapse(timelapse: Mapping[str, Path], folders: FaceFolders) -> dict[str, FolderScan]:
    """Look at the folders of faces that are drawn again and again.

    :param timelapse: by the side's name.
    :raises BadInputError: a folder is for a side that is not trained.
    :raises FaceFolderError: a folder cannot be read or has no usable face.
    """
    scans: dict[str, FolderScan] = {}
    for side, folder in timelapse.items():
        if side not in folders.scans:
            raise BadInputError(
                f"Faces for a time-lapse of side {side} were given, and there is no side {side} to train.",
                advice=f"The sides are: {', '.join(folders.scans)}.",
                side=side,
            )
        scans[side] = scan_folder(folder)
        if not scans[side].files:
            raise FaceFolderError(
                f"{shown_name(folder)} has no usable faces for the time-lapse of side {side}.",
                advice="Give a folder with some faces of this person, or leave it out.",
                folder=str(folder),
            )
    return scans


def crop_settings(options: SwapOptions, size: int) -> CropSettings:
    """How faces are cut for a model whose largest input or output has ``size`` pixels."""
    masks: list[str] = []
    if options.loss.penalized_mask_loss or options.mask.learn_mask:
        masks.append(options.mask.mask_type)
    if options.loss.penalized_mask_loss:
        masks += ["eye"] if options.loss.eye_multiplier > 1 else []
        masks += ["mouth"] if options.loss.mouth_multiplier > 1 else []
    return CropSettings.from_options(size, options.face, options.mask, tuple(masks))


def with_centering(folders: FaceFolders, options: SwapOptions, *, is_new: bool, tell: Tell) -> SwapOptions:
    """The options with the centering that these faces can be cut with.

    :raises FaceFolderError: the faces do not fit the model's centering, or a folder mixes old and new ones.
    """
    centering = training_centering(folders.scans.values(), options.face.centering, is_fixed=not is_new)
    if centering == options.face.centering:
        return options
    tell(f"The faces were cut in the old, legacy way, so the run uses face.centering={centering}.")
    return options.model_copy(update={"face": options.face.model_copy(update={"centering": centering})})


def check_folders(
    folders: FaceFolders, crop: CropSettings, *, batch_size: int, warp_to_landmarks: bool, tell: Tell
) -> None:
    """Refuse folders that cannot give what the run asks for: masks, landmarks; and tell what is odd about the others.

    :raises FaceFolderError: a mask or landmarks are missing.
    :raises BadInputError: warping to landmarks with one side only.
    """
    if warp_to_landmarks and len(folders.scans) < 2:
        raise BadInputError(
            "-M/--warp-to-landmarks bends faces towards those of another side, and there is only one.",
            advice="Leave it out, or give a second folder.",
        )
    for side, scan in folders.scans.items():
        check_masks(scan, crop.masks)
        if warp_to_landmarks:
            check_landmarks(scan, "-M/--warp-to-landmarks")
        if batch_size > len(scan.files):
            tell(
                f"A batch of {batch_size} is larger than side {side}, which has {len(scan.files)} faces: some appear "
                "twice in each batch. "
                f"-b {max(1, len(scan.files) // 2)} or less, or more faces, would teach more."
            )
        enlarged = count_enlarged(scan, crop.size, crop.centering, crop.coverage)
        if enlarged:
            tell(
                f"{enlarged} of {len(scan.files)} faces of side {side} are smaller than the {crop.size} pixels the "
                "model sees, and are enlarged."
            )


class FolderMemory(Extension):
    """Remembers which folders a run was trained on, for :func:`compare_with_stored`.

    It has nothing to do while training runs; its state travels with every save.
    """

    trigger = None
    name = "face_folders"

    def __init__(self, folders: FaceFolders) -> None:
        self._sketches = folders.sketches

    def __call__(self, trainer: Any) -> None:
        """Never fires."""

    def state_dict(self) -> dict[str, Any]:
        """A sketch of each side's folder."""
        return {"sketches": self._sketches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """What counts from now on is what the folders are now."""


def compare_with_stored(stored: Mapping[str, Sequence[str]], folders: FaceFolders, tell: Tell) -> None:
    """Compare the folders of today with those a run was trained on so far.

    :param stored: what :class:`FolderMemory` has kept.
    :raises BadInputError: two sides seem to have changed places.
    """
    before = {side: list(sketch) for side, sketch in stored.items()}
    now = folders.sketches
    if crossed := exchanged_sides(before, now):
        one, other = crossed
        raise BadInputError(
            f"The folders of sides {one} and {other} seem to be exchanged: {one}'s holds the faces this run has "
            f"learned as {other}.",
            advice=(
                "Exchange the two folders on the command line; a run trained on with mixed up sides cannot be mended."
            ),
            sides=crossed,
        )
    for side, sketch in now.items():
        if side in before and (shared := similarity(before[side], sketch)) < 0.5:
            tell(
                f"About {1 - shared:.0%} of the files of side {side} are not those of the last session. If this "
                "is another person, start a new run."
            )


def _progress(side: str, tell: Tell) -> Callable[[int, int], None]:
    """Tells now and then how far the look at a large folder has come; of an ordinary one, nothing."""
    told = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal told
        if done < total and time.monotonic() - told >= _TELL_EVERY:
            told = time.monotonic()
            tell(f"looking at the faces of side {side}: {done:,} of {total:,}")

    return progress


def _refuse_same_folder(folders: Mapping[str, Path]) -> None:
    seen: dict[Path, str] = {}
    for side, folder in folders.items():
        real = folder.expanduser().resolve()
        if real in seen:
            raise BadInputError(
                f"Sides {seen[real]} and {side} have the same folder, {shown_name(folder)}.",
                advice="Each side needs the faces of one person.",
                folder=str(folder),
            )
        seen[real] = side
