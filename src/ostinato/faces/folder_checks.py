"""Whether a scanned folder is fit for what a run asks of it; each check before training, with a message of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ostinato.data.file_names import shown_name
from ostinato.errors import FaceFolderError
from ostinato.faces.cropping import crop_width
from ostinato.faces.landmark_masks import LANDMARK_MASKS
from ostinato.faces.metadata import Centering
from ostinato.faces.scan import FaceKind, FolderScan, count_files, name_a_few

MIN_FACES = 25
"""With fewer faces on a side training is refused."""

RECOMMENDED_FACES = 250
"""With fewer faces on a side training is possible, and a warning is due; 500 to 5000 are best."""

NAMED_AT_MOST = 10
"""Files that one message names."""


def check_count(scan: FolderScan) -> str | None:
    """A warning when a folder has fewer faces than are good for training, None when it has enough.

    :raises FaceFolderError: fewer than :data:`MIN_FACES`.
    """
    count = len(scan.files)
    where = shown_name(scan.folder)
    if not count and scan.others and not scan.bad:
        raise FaceFolderError(
            f"{where} holds no pictures of faces, only {count_files(scan.others)} or folders of other kinds.",
            advice=f"Give the folder in which the extracted faces themselves lie, at least {MIN_FACES} of them.",
            folder=os.fspath(scan.folder),
            count=0,
        )
    if count < MIN_FACES:
        broken = f", and {count_files(len(scan.bad))} that cannot be used" if scan.bad else ""
        raise FaceFolderError(
            f"{where} has {count} usable face{'s' * (count != 1)}{broken}; training needs at least {MIN_FACES}.",
            advice="Extract more faces of this person; 500 to 5000 are best.",
            folder=os.fspath(scan.folder),
            count=count,
        )
    if count < RECOMMENDED_FACES:
        return f"{where} has only {count} faces. Results will be poor below {RECOMMENDED_FACES}; 500 to 5000 are best."
    return None


def check_readable(scan: FolderScan) -> None:
    """Refuse a folder with files that cannot be used.

    :raises FaceFolderError: there are such files; the message gives the reasons. Fields: folder, files.
    """
    if not scan.bad:
        return
    lines = [f"  {shown_name(bad.name)}: {bad.reason}" for bad in scan.bad[:NAMED_AT_MOST]]
    if len(scan.bad) > NAMED_AT_MOST:
        lines.append(f"  and {len(scan.bad) - NAMED_AT_MOST} more")
    raise FaceFolderError(
        f"{count_files(len(scan.bad))} in {shown_name(scan.folder)} cannot be used:",
        advice="\n".join([*lines, "Repair them or take them out, or ask for bad files to be skipped."]),
        folder=os.fspath(scan.folder),
        files=[bad.name for bad in scan.bad],
    )


def check_masks(scan: FolderScan, masks: Sequence[str]) -> None:
    """Refuse a folder in which some face cannot have one of the masks.

    :param masks: as in :class:`ostinato.faces.sample.CropSettings`.
    :raises FaceFolderError: names the faces, what they have, and the option that asks for the mask.
    """
    for mask in masks:
        lacking = [file for file in scan.files if not can_have_mask(file.kind, mask)]
        if not lacking:
            continue
        first = lacking[0].kind
        raise FaceFolderError(
            f"{count_files(len(lacking))} of {len(scan.files)} in {shown_name(scan.folder)} cannot have the {mask!r} "
            f"mask ({name_a_few(file.name for file in lacking)}): {missing_mask_reason(first, mask)}.",
            advice=MASK_ADVICE,
            folder=os.fspath(scan.folder),
            files=[file.name for file in lacking],
        )


MASK_ADVICE = (
    "Take these files out, choose a mask that all faces have (--set mask.mask_type=...), or train without a mask "
    "(--set loss.penalized_mask_loss=false, and mask.learn_mask left off)."
)


def can_have_mask(kind: FaceKind, mask: str) -> bool:
    """Whether a mask can be drawn for, or is stored in, a face of this kind."""
    return kind.landmarks in (68, 98) if mask in LANDMARK_MASKS else mask in kind.masks


def missing_mask_reason(kind: FaceKind, mask: str) -> str:
    """Why a face of this kind cannot have a mask."""
    if kind.centering is None:
        return "a plain picture has neither landmarks nor stored masks"
    if mask in LANDMARK_MASKS:
        return f"it is drawn from 68 or 98 landmarks, and the face has {kind.landmarks}"
    return f"no such mask is stored; the face has {', '.join(kind.masks) if kind.masks else 'none'}"


def check_landmarks(scan: FolderScan, option: str) -> None:
    """Refuse a folder in which some face has no 68 landmarks.

    :param option: what needs them, as the user asked for it, for example ``--warp-to-landmarks``.
    :raises FaceFolderError: names the faces and the option.
    """
    lacking = [file for file in scan.files if file.kind.landmarks not in (68, 98)]
    if lacking:
        raise FaceFolderError(
            f"{count_files(len(lacking))} of {len(scan.files)} in {shown_name(scan.folder)} have no 68 landmarks "
            f"({name_a_few(file.name for file in lacking)}), which {option} needs.",
            advice=f"Take these files out, or train without {option}.",
            folder=os.fspath(scan.folder),
            files=[file.name for file in lacking],
        )


def training_centering(scans: Iterable[FolderScan], asked: Centering, *, is_fixed: bool) -> Centering:
    """The centering that training must use for these folders: ``legacy`` where faces are cut that way, else as asked.

    Faces cut with legacy centering do not show what other crops would need.

    :param is_fixed: whether a model already exists, so that ``asked`` cannot be changed.
    :raises FaceFolderError: a folder mixes legacy faces with newer ones, or has legacy faces and the model has another
        centering.
    """
    result = asked
    for scan in scans:
        legacy = [file.name for file in scan.files if file.kind.centering == "legacy"]
        if not legacy:
            continue
        newer = [file.name for file in scan.files if file.kind.centering == "head"]
        where = shown_name(scan.folder)
        if newer:
            raise FaceFolderError(
                f"{where} mixes {len(legacy)} faces cut in the old, legacy way ({name_a_few(legacy)}) with "
                f"{len(newer)} newer ones ({name_a_few(newer)}).",
                advice="Keep one kind, or extract the old ones again.",
                folder=os.fspath(scan.folder),
                files=legacy,
            )
        if is_fixed and asked != "legacy":
            raise FaceFolderError(
                f"The {len(legacy)} faces in {where} are cut in the old, legacy way, and this model has learned "
                f"{asked!r} centering, which they do not show.",
                advice="Extract the faces again, or start a new run with face.centering=legacy.",
                folder=os.fspath(scan.folder),
                files=legacy,
            )
        result = "legacy"
    return result


def count_enlarged(scan: FolderScan, size: int, centering: Centering, coverage: float) -> int:
    """How many faces are smaller than the crop of ``size`` pixels made of them, and so will be enlarged."""
    return sum(
        (file.side if file.kind.centering is None else crop_width(file.side, file.kind.centering, centering, coverage))
        < size
        for file in scan.files
    )
