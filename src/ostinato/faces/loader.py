"""Batches of augmented faces for training, for any number of sides.

What a batch holds is a function of the seed, the files, the options and the position, and of nothing else. The number
of workers, prefetching, the batch size and where a run was continued only cut the same row of samples differently.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch

from ostinato.config.swap import AugmentationOptions, LoaderOptions
from ostinato.data.counter_random import CounterRandom
from ostinato.data.loader_state import STATE_FORMAT, check_loader_state
from ostinato.data.order import SideOrders
from ostinato.errors import ArgumentValueError, FaceFolderError, StateError
from ostinato.faces.augmentation.augmenter import BatchChanges, FaceAugmenter, batch_changes
from ostinato.faces.augmentation.draws import AugmentationSwitches, draw_augmentation
from ostinato.faces.augmentation.neighbours import LandmarkNeighbours
from ostinato.faces.crop_cache import open_crop_caches
from ostinato.faces.crop_file import CropFile
from ostinato.faces.prepared_faces import PreparedFaces
from ostinato.faces.sample import CropSettings
from ostinato.faces.scan import FolderScan

_log = logging.getLogger(__name__)

DEFAULT_CACHE_BYTES = 20 * 2**30


@dataclass(frozen=True)
class SwapBatch:
    """One batch, all sides stacked: S sides, B samples a side. Colours are RGB, everything is uint8."""

    inputs: torch.Tensor
    """(S, B, input size, input size, 3): what the network sees, warped."""
    targets: list[torch.Tensor]
    """Per output (S, B, size, size, 3): what it should give back, not warped."""
    masks: dict[str, list[torch.Tensor]]
    """``face``, ``eye``, ``mouth`` (those that were asked for): per output (S, B, size, size, 1), 0 outside, 255
    inside."""
    files: list[list[Path]]
    """Per side, the B files."""
    position: int
    """Samples consumed per side once this batch is used; what the loader's position is after handing it out."""
    epoch: int
    """Completed passes over the larger side at that position."""


class SwapLoader:
    """Delivers batches in order, prepared ahead by threads.

    The work is done by OpenCV, which lets go of the interpreter lock, so threads serve as well as processes do, and
    share one cache, one copy of everything, and the fate of the process.

    At start, memory is a path and 16 bytes a face (and 544 bytes a face for warp to landmarks). In flight are
    ``num_processes`` x ``pre_fetch`` batches of S * B * (input size² * 3 + sum over outputs of size² * (3 + masks))
    bytes.

    :param sides: scanned folder or files of each side, by name; at least one side. Of a scan, the usable files are
        used.
    :param crop: how faces are cut; ``crop.size`` is the largest of the input size and all output sizes.
    :param input_size: side of the network's input in pixels.
    :param output_sizes: sides of its outputs in pixels.
    :param batch_size: samples per side and batch; may exceed the number of faces.
    :param seed: where order and augmentation derive from.
    :param augmentation: ranges and chances of the changes.
    :param loader: ``num_processes`` threads (0: the calling thread does the work) and ``pre_fetch`` batches each.
    :param flip: mirror some faces.
    :param color: vary colours.
    :param warp: warp the inputs.
    :param warp_to_landmarks: warp towards another side's faces in place of at random; needs landmarks and two sides.
    :param cache_dir: folder for prepared faces; None keeps none and prepares each face each time.
    :param cache_bytes: bound of that folder.
    """

    def __init__(
        self,
        sides: Mapping[str, FolderScan | Sequence[Path]],
        *,
        crop: CropSettings,
        input_size: int,
        output_sizes: Sequence[int],
        batch_size: int,
        seed: int,
        augmentation: AugmentationOptions | None = None,
        loader: LoaderOptions | None = None,
        flip: bool = True,
        color: bool = True,
        warp: bool = True,
        warp_to_landmarks: bool = False,
        cache_dir: Path | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        if batch_size < 1:
            raise ArgumentValueError(f"batch_size is {batch_size}.", advice="Use 1 or more samples per side.")
        if crop.size != max(input_size, *output_sizes):
            raise ArgumentValueError(
                f"crop.size is {crop.size}, input_size {input_size}, output_sizes {list(output_sizes)}.",
                advice="Faces are to be cut at the largest of the input size and the output sizes.",
            )
        self.sides = tuple(sides)
        self._faces = [PreparedFaces(side, crop) for side in sides.values()]
        for (name, side), faces in zip(sides.items(), self._faces, strict=True):
            if not len(faces):
                folder = str(side.folder) if isinstance(side, FolderScan) else None
                raise FaceFolderError(
                    f"Side {name} has no faces.", advice="Give a folder with face pictures.", folder=folder
                )
        self._mask_places = _mask_places(crop.masks)
        self._crop = crop
        self._input_size = input_size
        self._output_sizes = tuple(output_sizes)
        self.batch_size = batch_size
        """Samples per side and batch."""
        self._seed = seed
        self._augmentation = augmentation if augmentation is not None else AugmentationOptions()
        self._options = loader if loader is not None else LoaderOptions()
        self._switches = AugmentationSwitches(color=color, flip=flip, warp=warp, warp_to_landmarks=warp_to_landmarks)
        self._cache_dir = cache_dir
        self._cache_bytes = cache_bytes
        self._orders = SideOrders([len(faces) for faces in self._faces], seed)
        self._random = CounterRandom(seed, "augmentation")
        self._position = 0
        self._opened = False
        self._caches: list[CropFile | None] = []
        self._neighbours: LandmarkNeighbours | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: deque[Future[SwapBatch]] = deque()
        self._local = threading.local()

    # --- opening and closing -----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the cache and start the threads.

        With warp to landmarks, the landmarks of all faces are collected here.

        :raises FaceFileError: a file is not there, or has no landmarks where they are needed.
        """
        if self._opened:
            raise StateError("This loader is open already.")
        _opencv_threads.hold()
        self._opened = True
        try:
            identities = [faces.identify() for faces in self._faces]
            if self._cache_dir is not None:
                self._caches = open_crop_caches(self._cache_dir, identities, self._crop, limit_bytes=self._cache_bytes)
                for faces, cache in zip(self._faces, self._caches, strict=True):
                    faces.use_cache(cache)
            if workers := worker_count(self._options.num_processes):
                self._pool = ThreadPoolExecutor(workers, thread_name_prefix="faces")
            if self._switches.warp and self._switches.warp_to_landmarks:
                self._neighbours = LandmarkNeighbours([self._landmarks(faces) for faces in self._faces])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the threads and let go of the cache. May be called at any time, and more than once."""
        if not self._opened:
            return
        self._opened = False
        self._drop_ahead()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        for faces in self._faces:
            faces.use_cache(None)
        for cache in self._caches:
            if cache is not None:
                cache.close()
        self._caches = []
        self._neighbours = None
        _opencv_threads.release()

    def __enter__(self) -> SwapLoader:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- position ----------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Samples handed out per side since the beginning of the run."""
        return self._position

    @property
    def epoch_length(self) -> int:
        """Samples per side in one pass: the number of faces of the larger side."""
        return self._orders.pass_length

    def seek(self, position: int) -> None:
        """Go on at another position; what was prepared ahead is dropped."""
        if position < 0:
            raise ArgumentValueError(f"position is {position}.", advice="Positions count from 0.")
        self._drop_ahead()
        self._position = position

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on at the same place."""
        return {
            "format": STATE_FORMAT,
            "position": self._position,
            "seed": self._seed,
            "counts": dict(zip(self.sides, self._orders.counts, strict=True)),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another loader stood.

        A changed number of faces is reported and accepted: the place in the run is kept, the order of the faces is new.

        :raises StateError: the state is of another format, or of a run with another seed.
        """
        check_loader_state(state, self._seed)
        counts = dict(zip(self.sides, self._orders.counts, strict=True))
        if state["counts"] != counts:
            _log.warning(
                "The number of faces has changed (before: %s, now: %s). Training goes on with the faces there are now, "
                "in a new order.",
                state["counts"],
                counts,
            )
        self.seek(state["position"])

    # --- batches -----------------------------------------------------------------------------------------------------

    def next_batch(self) -> SwapBatch:
        """The next batch. An interrupt while waiting loses nothing: the next call gives the same batch.

        :raises FaceFileError: a face of this batch cannot be used; names the file. The position stays.
        """
        if not self._opened:
            raise StateError("The loader is closed.", advice="Call open() first.")
        if self._pool is None:
            batch = self._build(self._position)
        else:
            in_flight = worker_count(self._options.num_processes) * self._options.pre_fetch
            while len(self._ahead) < in_flight:
                start = self._position + len(self._ahead) * self.batch_size
                self._ahead.append(self._pool.submit(self._build, start, self._plan(start)))
            try:
                batch = self._ahead[0].result()
            except Exception:
                self._drop_ahead()
                raise
            self._ahead.popleft()
        self._position = batch.position
        return batch

    def _plan(self, start: int) -> list[npt.NDArray[np.int64]]:
        """Per side, the numbers of the faces of the batch at ``start``. On the calling thread: orders are not
        shared."""
        return [self._orders.indices(side, start, self.batch_size) for side in range(len(self._faces))]

    def _build(self, start: int, plan: list[npt.NDArray[np.int64]] | None = None) -> SwapBatch:
        chosen = self._plan(start) if plan is None else plan
        count, sides = self.batch_size, len(self._faces)
        changes = self._changes(start, chosen)
        inputs = np.empty((sides, count, self._input_size, self._input_size, 3), dtype=np.uint8)
        targets = [np.empty((sides, count, size, size, 3), dtype=np.uint8) for size in self._output_sizes]
        masks = {
            kind: [np.empty((sides, count, size, size, 1), dtype=np.uint8) for size in self._output_sizes]
            for kind in self._mask_places
        }
        augment = self._augmenter()
        for side, faces in enumerate(self._faces):
            for row in range(count):
                number = int(chosen[side][row])
                face = faces.load(number)
                augment(
                    face.image,
                    face.masks.transpose(2, 0, 1),
                    changes,
                    side * count + row,
                    input_out=inputs[side, row],
                    targets_out=[target[side, row] for target in targets],
                    masks_out=[[output[side, row, :, :, 0] for output in masks[kind]] for kind in masks],
                )
        position = start + count
        return SwapBatch(
            inputs=torch.from_numpy(inputs),
            targets=[torch.from_numpy(target) for target in targets],
            masks={kind: [torch.from_numpy(output) for output in outputs] for kind, outputs in masks.items()},
            files=[[faces.path(int(number)) for number in chosen[side]] for side, faces in enumerate(self._faces)],
            position=position,
            epoch=position // self.epoch_length,
        )

    def _changes(self, start: int, chosen: list[npt.NDArray[np.int64]]) -> BatchChanges:
        count, sides = self.batch_size, len(self._faces)
        side_of_row = np.repeat(np.arange(sides), count)
        draws = draw_augmentation(
            self._random,
            np.tile(np.arange(start, start + count), sides),
            side_of_row,
            options=self._augmentation,
            switches=self._switches,
            size=self._crop.size,
        )
        landmarks = None
        if self._neighbours is not None:
            landmarks = self._neighbours.pairs(side_of_row, np.concatenate(chosen), draws.neighbour)
        return batch_changes(draws, self._crop.size, color=self._switches.color, landmarks=landmarks)

    def _augmenter(self) -> FaceAugmenter:
        if not hasattr(self._local, "augmenter"):
            self._local.augmenter = FaceAugmenter(self._crop.size)
        return self._local.augmenter

    def _landmarks(self, faces: PreparedFaces) -> npt.NDArray[np.float32]:
        numbers = range(len(faces))
        found = map(faces.landmarks, numbers) if self._pool is None else self._pool.map(faces.landmarks, numbers)
        return np.stack(list(found))

    def _drop_ahead(self) -> None:
        for future in self._ahead:
            future.cancel()
        self._ahead.clear()


def worker_count(asked: int) -> int:
    """Threads for ``loader.num_processes``: as asked, but where there are fewer cores, one less than there are."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return asked if asked <= cores else max(1, cores - 1)


def _mask_places(names: Sequence[str]) -> list[str]:
    """What each mask is for, in the order of the masks."""
    kinds = [name if name in ("eye", "mouth") else "face" for name in names]
    if len(set(kinds)) != len(kinds):
        raise ArgumentValueError(
            f"The masks are {list(names)}.", advice="Ask for at most one face mask, one eye mask and one mouth mask."
        )
    return kinds


class _OpenCvThreads:
    """Keeps OpenCV from starting threads of its own while loaders are open: they would compete with the loaders'."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._before = 0

    def hold(self) -> None:
        with self._lock:
            if self._holders == 0:
                self._before = cv2.getNumThreads()
                cv2.setNumThreads(1)
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                cv2.setNumThreads(self._before)


_opencv_threads = _OpenCvThreads()
