"""Previews: faces the model has to show itself on, and the sheet of what it makes of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.config import AugmentationOptions
from ostinato.errors import FaceFileError, FaceFolderError
from ostinato.faces.alignment import even
from ostinato.faces.cropping import resize_square
from ostinato.faces.folder_checks import can_have_mask
from ostinato.faces.png_encoding import encode_png
from ostinato.faces.sample import CropSettings, prepare_face
from ostinato.faces.scan import FaceFile
from ostinato.runs.atomic import Files
from ostinato.swap.preview_sheet import Picture, SheetColumns, SheetStyle, draw_sheet
from ostinato.swap.provenance import SourceType, describe_sheet, png_chunks

_log = logging.getLogger(__name__)


class PreviewModel(Protocol):
    """What a preview needs of a model; :class:`ostinato.swap.models.SwapModel` has it."""

    sides: tuple[str, ...]
    training: bool

    def encode(self, faces: Tensor) -> Tensor: ...
    def decode(self, features: Tensor, side: str) -> list[Tensor]: ...
    def train(self, mode: bool = True) -> object: ...
    def parameters(self) -> Iterator[torch.nn.Parameter]: ...


@dataclass(frozen=True, eq=False)
class PreviewFaces:
    """One side's faces, ready for the model and for the sheet."""

    feed: NDArray[np.uint8]
    """(n, input, input, 3), RGB: as the model sees them, without augmentation."""
    patches: NDArray[np.uint8]
    """(n, F, F, 3), RGB: the same at full coverage, at the size where the model's area has its output size."""
    masks: NDArray[np.uint8] | None
    """(n, F, F), 255 inside; None without a mask."""
    files: tuple[Path, ...] = ()


def patch_size(output_size: int, coverage: float) -> int:
    """Pixels a side of a face at full coverage whose covered part has ``output_size`` pixels; even as that is."""
    size = even(output_size / coverage)
    return size + (size - output_size) % 2


def prepare_preview_faces(
    files: Sequence[FaceFile], crop: CropSettings, input_size: int, output_size: int, mask: str | None
) -> PreviewFaces:
    """Read and cut faces for previews. Faces that cannot be used are named in a warning and left out.

    :param files: of one side.
    :param crop: the training's settings; size and masks are replaced.
    :param output_size: of the model's largest output.
    :param mask: the mask to show; None for none. A face that cannot have it counts as all inside.
    :raises FaceFolderError: not one of the files can be used.
    """
    size = patch_size(output_size, crop.coverage)
    feeds, patches, masks, used = [], [], [], []
    for file in files:
        wanted = (mask,) if mask is not None and can_have_mask(file.kind, mask) else ()
        try:
            feed = prepare_face(file.path, replace(crop, size=input_size, masks=())).image
            full = prepare_face(file.path, replace(crop, size=size, coverage=1.0, masks=wanted))
        except FaceFileError as error:
            _log.warning("Left out of the preview: %s", error)
            continue
        feeds.append(feed)
        # A plain picture is all the model sees of it, so it has no surroundings to show.
        patches.append(_centred(full.image, output_size, size) if file.is_plain else full.image)
        masks.append(full.masks[..., 0] if wanted else np.full((size, size), 255, np.uint8))
        used.append(file.path)
    if not used:
        raise FaceFolderError(
            f"None of the {len(files)} faces chosen for the preview can be used.",
            folder=str(files[0].folder) if files else "",
            files=[file.name for file in files],
        )
    return PreviewFaces(np.stack(feeds), np.stack(patches), None if mask is None else np.stack(masks), tuple(used))


def _centred(image: NDArray[np.uint8], inner: int, size: int) -> NDArray[np.uint8]:
    result = np.full((size, size, 3), 128, np.uint8)
    low = (size - inner) // 2
    result[low : low + inner, low : low + inner] = resize_square(image, inner)
    return result


def choose_faces(files: Sequence[FaceFile], count: int, *, seed: int, number: int) -> list[FaceFile]:
    """``count`` different faces at random, or all where there are fewer; the same for the same seed and number.

    :param number: of the preview; each shows other faces.
    """
    generator = np.random.default_rng((0x9E71E3, seed, number))
    picked = np.sort(generator.permutation(len(files))[:count])
    return [files[int(index)] for index in picked]


class PreviewMaker:
    """Draws the preview sheet of a model for given faces.

    :param model: on its device; its mode and its generators are left as they were.
    :param faces: by side; a side of the model that is missing here has no column of its own, but decodes the others.
    :param options: colour and opacity of the mask.
    :param coverage: fraction of a face that the model sees.
    :param show_mask: tint what is outside the mask; may be changed at any time.
    :param batch_size: faces that go through the model at once.
    """

    def __init__(
        self,
        model: PreviewModel,
        faces: Mapping[str, PreviewFaces],
        options: AugmentationOptions,
        *,
        coverage: float = 1.0,
        show_mask: bool = True,
        batch_size: int = 16,
    ) -> None:
        self.model = model
        self.faces = dict(faces)
        self.options = options
        self.coverage = coverage
        self.show_mask = show_mask
        self.batch_size = batch_size

    def make(self) -> Picture:
        """Run the model and draw the sheet: (H, W, 3) uint8, RGB."""
        style = SheetStyle(self.coverage, self.show_mask, self.options.mask_opacity, self.options.mask_color)
        return draw_sheet([self._columns(side) for side in self.faces], style)

    def write(self, path: Path) -> Path:
        """Draw the sheet into a PNG file, complete or not at all; folders are made.

        :raises OSError: the disk refuses.
        """
        return write_picture(path, self.make())

    def _columns(self, side: str) -> SheetColumns:
        faces = self.faces[side]
        decoders = [side, *(other for other in self.model.sides if other != side)]
        results: dict[str, list[NDArray[np.float32]]] = {decoder: [] for decoder in decoders}
        device = next(self.model.parameters()).device
        was_training = self.model.training
        self.model.train(False)
        try:
            with torch.no_grad():
                # The last piece is simply shorter; nothing is padded.
                for start in range(0, len(faces.feed), self.batch_size):
                    piece = torch.from_numpy(faces.feed[start : start + self.batch_size]).to(device)
                    features = self.model.encode(piece.permute(0, 3, 1, 2).float() / 255)
                    for decoder in decoders:
                        results[decoder].append(_largest(self.model.decode(features, decoder)))
        finally:
            self.model.train(was_training)
        predictions = {decoder: np.concatenate(pieces) for decoder, pieces in results.items()}
        return SheetColumns(side, faces.patches, faces.masks, predictions)


def _largest(outputs: list[Tensor]) -> NDArray[np.float32]:
    """(n, out, out, 3 or 4): the largest face, and the predicted mask where the model gives one."""
    faces = [output for output in outputs if output.shape[1] == 3]
    masks = [output for output in outputs if output.shape[1] == 1]
    largest = max(faces, key=lambda face: face.shape[-1])
    fitting = [mask for mask in masks if mask.shape[-1] == largest.shape[-1]]
    joined = torch.cat([largest.float(), *(mask.float() for mask in fitting[:1])], dim=1)
    return joined.permute(0, 2, 3, 1).cpu().numpy()


class Timelapse:
    """The same faces drawn again and again while a model learns, one numbered picture each.

    A time-lapse is a nicety: whatever goes wrong with it becomes a warning, and it is tried again next time.

    :param folder: where the pictures go; made when needed.
    :param open_maker: reads the faces and gives the maker; called at the first picture, and again while it fails.
    """

    def __init__(self, folder: Path, open_maker: Callable[[], PreviewMaker]) -> None:
        self.folder = folder
        self._open_maker = open_maker
        self._maker: PreviewMaker | None = None

    def make(self, iteration: int) -> Path | None:
        """Draw the picture of ``iteration``; returns the file, or None after a failure."""
        try:
            if self._maker is None:
                self._maker = self._open_maker()
            return self._maker.write(self.folder / f"{iteration:08d}.png")
        except Exception as error:  # training must outlive anything that happens here
            _log.warning("No time-lapse picture at iteration %d: %s. It is tried again next time.", iteration, error)
            _log.debug("where it failed", exc_info=True)
            return None


def write_picture(path: Path, picture: Picture) -> Path:
    """Write an RGB picture that shows swapped faces as PNG, complete or not at all; folders are made.

    The file says that the picture is synthetic.

    :raises OSError: the disk refuses.
    """
    data = encode_png(picture, chunks=png_chunks(SourceType.COMPOSITE, describe_sheet()))
    files = Files()
    files.make_folder(path.parent)
    files.replace(path, data)
    return path
