"""Embeddings of pictures, plain and mirrored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ostinato.errors import ArgumentValueError, BadInputError
from ostinato.recognition.verification.pictures import IMAGE_SIZE, Picture, prepare_picture, to_input

BATCH_SIZE = 64
_DECODERS = 4
_AHEAD = 2


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Raw embeddings, as the network gives them.

    :param plain: (N, d) float32, of the pictures.
    :param mirrored: (N, d) float32, of the pictures mirrored left to right.
    """

    plain: NDArray[np.float32]
    mirrored: NDArray[np.float32]


def embed_images(
    model: nn.Module,
    pictures: Sequence[Picture],
    *,
    batch_size: int = BATCH_SIZE,
    device: torch.device | str = "cpu",
    size: int = IMAGE_SIZE,
    progress: Callable[[int, int], None] | None = None,
) -> Embeddings:
    """Embed pictures twice, as they are and mirrored. The last batch may be a smaller one.

    The model should be in evaluation mode; gradients are off. Pictures are decoded by a few threads, two batches ahead.

    :param model: (B, 3, size, size) float32, RGB, -1 to 1, to (B, d); on ``device``.
    :param batch_size: pictures in a batch, at least 1. It changes the last digits at most.
    :param progress: called with pictures done and all, after each batch.
    :raises ArgumentValueError: no batch size, no pictures, or a model that does not return one row a picture.
    :raises BadInputError: a picture cannot be used; names it.
    """
    embedded, _, _ = _embed(model, pictures, batch_size, device, size, progress, may_leave_out=False)
    assert embedded is not None  # there is a picture, and none may be left out
    return embedded


def embed_usable_images(
    model: nn.Module,
    pictures: Sequence[Picture],
    *,
    batch_size: int = BATCH_SIZE,
    device: torch.device | str = "cpu",
    size: int = IMAGE_SIZE,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Embeddings | None, list[int], list[str]]:
    """As :func:`embed_images`, but pictures that cannot be used are left out.

    :returns: the embeddings, None where there are none; the numbers of the pictures they are of; and what was left out,
        one sentence for each.
    """
    return _embed(model, pictures, batch_size, device, size, progress, may_leave_out=True)


def _embed(
    model: nn.Module,
    pictures: Sequence[Picture],
    batch_size: int,
    device: torch.device | str,
    size: int,
    progress: Callable[[int, int], None] | None,
    *,
    may_leave_out: bool,
) -> tuple[Embeddings | None, list[int], list[str]]:
    if batch_size < 1:
        raise ArgumentValueError(f"A batch of {batch_size} makes no sense.", advice="Use 1 or more.", value=batch_size)
    if not pictures:
        raise ArgumentValueError("There are no pictures to embed.", advice="Give at least one.")
    plain: list[NDArray[np.float32]] = []
    mirrored: list[NDArray[np.float32]] = []
    used: list[int] = []
    left_out: list[str] = []
    done = 0
    for batch in _batches(pictures, batch_size, size):
        for error in batch:
            if isinstance(error, BadInputError):
                if not may_leave_out:
                    raise error
                left_out.append(str(error))
        arrays = [array for array in batch if not isinstance(array, BadInputError)]
        used += [done + place for place, array in enumerate(batch) if not isinstance(array, BadInputError)]
        if arrays:
            with torch.no_grad():
                images = to_input(arrays).to(device)
                plain.append(_rows(model, images))
                mirrored.append(_rows(model, images.flip(3)))
        done += len(batch)
        if progress is not None:
            progress(done, len(pictures))
    if not used:
        return None, used, left_out
    return Embeddings(np.concatenate(plain), np.concatenate(mirrored)), used, left_out


def _rows(model: nn.Module, images: Tensor) -> NDArray[np.float32]:
    rows = model(images)
    if rows.ndim != 2 or len(rows) != len(images):
        raise ArgumentValueError(
            f"The model made {tuple(rows.shape)} of {len(images)} pictures.",
            advice="A backbone returns one row for each picture.",
        )
    return rows.float().cpu().numpy()


def _prepared(picture: Picture, size: int) -> NDArray[np.uint8] | BadInputError:
    try:
        return prepare_picture(picture, size)
    except BadInputError as error:  # whose turn it is to raise is decided in order, not by the fastest thread
        return error


def _batches(
    pictures: Sequence[Picture], batch_size: int, size: int
) -> Iterator[list[NDArray[np.uint8] | BadInputError]]:
    cut = [pictures[first : first + batch_size] for first in range(0, len(pictures), batch_size)]
    with ThreadPoolExecutor(_DECODERS, thread_name_prefix="decode") as decoders:
        prepare = partial(_prepared, size=size)
        waiting = [decoders.map(prepare, batch) for batch in cut[:_AHEAD]]
        try:
            for number in range(len(cut)):
                ready = list(waiting.pop(0))
                if number + _AHEAD < len(cut):
                    waiting.append(decoders.map(prepare, cut[number + _AHEAD]))
                yield ready
        finally:
            decoders.shutdown(cancel_futures=True)
