"""One face file made ready for training: the crop, its masks and its landmarks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NoReturn

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.config import FaceOptions, MaskOptions
from ostinato.data.jpeg import ImageError
from ostinato.data.pictures import decode_bgr
from ostinato.errors import ArgumentValueError
from ostinato.faces.alignment import AlignedFace, to_68
from ostinato.faces.cropping import crop_aligned, resize_square
from ostinato.faces.face_files import face_file_error, open_regular, read_open_header, read_whole
from ostinato.faces.folder_checks import MASK_ADVICE, can_have_mask, missing_mask_reason
from ostinato.faces.landmark_masks import LANDMARK_MASKS, landmark_mask
from ostinato.faces.metadata import CENTERINGS, Centering, FaceMetadata, MetadataError
from ostinato.faces.pictures import picture_size
from ostinato.faces.png_chunks import PngError
from ostinato.faces.scan import FaceKind
from ostinato.faces.stored_masks import stored_mask

_BROKEN_ADVICE = "Repair it or take it out, and start the same command again."


@dataclass(frozen=True)
class CropSettings:
    """Everything that shapes a prepared face, and so everything that a cache of them must be keyed by."""

    size: int
    """Pixels a side of the crop and its masks."""
    centering: Centering = "face"
    coverage: float = 1.0
    """A **fraction** above 0 and at most 1 (the option ``face.coverage`` is in percent: divide by 100)."""
    vertical_offset: float = 0.0
    """In units of the aligned face, -1 to 1 (the option ``face.vertical_offset`` is in percent: divide by 100)."""
    masks: tuple[str, ...] = ()
    """The masks wanted, in this order: ``components``, ``extended``, ``eye``, ``mouth`` or a stored mask's name."""
    mask_dilation: float = 0.0
    """Percent of the mask's side, as the option. Not for ``eye`` and ``mouth``, whose dilation is fixed."""
    mask_blur_kernel: int = 3
    """Pixels for a mask of 128, as the option; scaled to the mask's size. Not for ``eye`` and ``mouth``."""
    mask_threshold: float = 4.0
    """Percent, as the option; for stored masks only."""

    @classmethod
    def from_options(cls, size: int, face: FaceOptions, mask: MaskOptions, masks: tuple[str, ...]) -> CropSettings:
        """The settings that a run's options mean at a size; ``masks`` are the ones the losses and the model need."""
        return cls(
            size=size,
            centering=face.centering,
            coverage=face.coverage / 100,
            vertical_offset=face.vertical_offset / 100,
            masks=masks,
            mask_dilation=mask.mask_dilation,
            mask_blur_kernel=mask.mask_blur_kernel,
            mask_threshold=mask.mask_threshold,
        )

    @property
    def face_mask(self) -> str | None:
        """The mask of the whole face among :attr:`masks`; None without one."""
        return next((name for name in self.masks if name not in ("eye", "mouth")), None)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ArgumentValueError(f"size is {self.size}; a crop has at least 1 pixel.")
        if self.centering not in CENTERINGS:
            raise ArgumentValueError(f"centering is {self.centering!r}; it is one of {', '.join(CENTERINGS)}.")
        if not 0 < self.coverage <= 1:
            raise ArgumentValueError(
                f"coverage is {self.coverage}; it is a fraction above 0 and at most 1.",
                advice="Divide the option, which is in percent, by 100.",
            )
        if not -1 <= self.vertical_offset <= 1:
            raise ArgumentValueError(
                f"vertical_offset is {self.vertical_offset}; it is between -1 and 1.",
                advice="Divide the option, which is in percent, by 100.",
            )


@dataclass(frozen=True, eq=False)
class PreparedFace:
    """A face cut, masked and measured at ``settings.size`` (S)."""

    image: NDArray[np.uint8]
    """(S, S, 3), RGB."""
    masks: NDArray[np.uint8]
    """(S, S, m), one channel per name in ``settings.masks`` and in that order; 0 outside, 255 inside."""
    landmarks: NDArray[np.float32] | None
    """(68, 2), x and y in pixels of the crop; None for plain pictures and for faces with 4 points."""


def prepare_face(path: str | os.PathLike[str], settings: CropSettings) -> PreparedFace:
    """Read one face file and cut, mask and measure it.

    A plain picture (one without metadata) counts as aligned already: it is resized and nothing else, whatever
    centering, coverage and vertical offset say, and no mask can be had for it.

    :raises FaceFileError: the file cannot be read, or lacks a mask or the landmarks that ``settings.masks`` needs.
        Fields: path, reason.
    """
    try:
        with open_regular(path) as file:
            metadata = read_open_header(file)[1] if picture_size(file).format == "PNG" else None
            data = read_whole(file)
        bgr = decode_bgr(data)
        del data
        height, width = bgr.shape[:2]
        if width != height:
            raise ImageError(f"it is {width} x {height}; a face picture is square")
        if metadata is None:
            return _prepare_plain(path, bgr, settings)
        return _prepare_extracted(path, bgr, metadata, settings)
    except (PngError, MetadataError, ImageError, ArgumentValueError) as error:
        raise face_file_error(path, str(error), advice=_BROKEN_ADVICE) from None
    except OSError as error:
        raise face_file_error(path, f"it cannot be read ({error.strerror or error})") from error


def _prepare_plain(path: str | os.PathLike[str], bgr: NDArray[np.uint8], settings: CropSettings) -> PreparedFace:
    if settings.masks:
        _refuse_mask(path, FaceKind(None, 0, ()), settings.masks[0])
    masks = np.empty((settings.size, settings.size, 0), np.uint8)
    return PreparedFace(_rgb(resize_square(bgr, settings.size)), masks, None)


def _prepare_extracted(
    path: str | os.PathLike[str], bgr: NDArray[np.uint8], metadata: FaceMetadata, settings: CropSettings
) -> PreparedFace:
    kind = FaceKind(metadata.centering, len(metadata.landmarks), tuple(sorted(metadata.masks)))
    for name in settings.masks:
        if not can_have_mask(kind, name):
            _refuse_mask(path, kind, name)
    aligned = AlignedFace.of(metadata.landmarks)
    crop = (settings.size, settings.centering, settings.coverage, settings.vertical_offset)
    image = _rgb(crop_aligned(bgr, metadata, *crop, aligned=aligned))
    masks = np.empty((settings.size, settings.size, len(settings.masks)), np.uint8)
    for channel, name in enumerate(settings.masks):
        masks[..., channel] = draw_mask(name, metadata, aligned, settings)
    return PreparedFace(image, masks, to_68(aligned.crop_landmarks(*crop)))


def draw_mask(name: str, metadata: FaceMetadata, aligned: AlignedFace, settings: CropSettings) -> NDArray[np.uint8]:
    """One mask of a face over its crop, (S, S), 0 outside and 255 inside.

    :param name: as in :attr:`CropSettings.masks`; the face must be able to have it.
    :raises MetadataError: a stored mask cannot be unpacked.
    """
    crop = (settings.size, settings.centering, settings.coverage, settings.vertical_offset)
    if name in LANDMARK_MASKS:
        points = aligned.crop_landmarks(*crop)
        return landmark_mask(points, name, settings.size, settings.mask_dilation, settings.mask_blur_kernel)
    return stored_mask(
        metadata.masks[name],
        aligned,
        *crop,
        dilation=settings.mask_dilation,
        blur_kernel=settings.mask_blur_kernel,
        threshold=settings.mask_threshold,
    )


def _refuse_mask(path: str | os.PathLike[str], kind: FaceKind, mask: str) -> NoReturn:
    reason = f"it cannot have the {mask!r} mask: {missing_mask_reason(kind, mask)}"
    raise face_file_error(path, reason, advice=MASK_ADVICE)


def _rgb(bgr: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), np.uint8)
