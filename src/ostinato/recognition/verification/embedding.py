"""Embeddings of pictures, plain and mirrored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ostinato.errors import ArgumentValueError
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
    if batch_size < 1:
        raise ArgumentValueError(f"A batch of {batch_size} makes no sense.", advice="Use 1 or more.", value=batch_size)
    if not pictures:
        raise ArgumentValueError("There are no pictures to embed.", advice="Give at least one.")
    plain: list[NDArray[np.float32]] = []
    mirrored: list[NDArray[np.float32]] = []
    done = 0
    for batch in _batches(pictures, batch_size, size):
        with torch.no_grad():
            images = to_input(batch).to(device)
            for kept, shown in ((plain, images), (mirrored, images.flip(3))):
                rows = model(shown)
                if rows.ndim != 2 or len(rows) != len(batch):
                    raise ArgumentValueError(
                        f"The model made {tuple(rows.shape)} of {len(batch)} pictures.",
                        advice="A backbone returns one row for each picture.",
                    )
                kept.append(rows.float().cpu().numpy())
        done += len(batch)
        if progress is not None:
            progress(done, len(pictures))
    return Embeddings(np.concatenate(plain), np.concatenate(mirrored))


def _batches(pictures: Sequence[Picture], batch_size: int, size: int) -> Iterator[list[NDArray[np.uint8]]]:
    cut = [pictures[first : first + batch_size] for first in range(0, len(pictures), batch_size)]
    with ThreadPoolExecutor(_DECODERS, thread_name_prefix="decode") as decoders:
        prepare = partial(prepare_picture, size=size)
        waiting = [decoders.map(prepare, batch) for batch in cut[:_AHEAD]]
        try:
            for number in range(len(cut)):
                ready = list(waiting.pop(0))
                if number + _AHEAD < len(cut):
                    waiting.append(decoders.map(prepare, cut[number + _AHEAD]))
                yield ready
        finally:
            decoders.shutdown(cancel_futures=True)
