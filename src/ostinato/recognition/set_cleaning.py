"""A set of training pictures without those that a trained run takes for mislabelled."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ostinato.data.file_names import shown_name
from ostinato.data.jpeg import ImageError
from ostinato.errors import BadInputError, DataSetError, ModelMismatchError
from ostinato.recognition.data.fitting import fit_to_square
from ostinato.recognition.data.image_folder import FolderSource, picture_error, read_picture_file
from ostinato.recognition.data.in_order import map_in_order
from ostinato.recognition.data.opening import open_source
from ostinato.recognition.data.packing import Packed, check_out, pack_again
from ostinato.recognition.data.record_source import RecordSource
from ostinato.recognition.data.source import DEFAULT_MAX_BAD, Source
from ostinato.recognition.identities import IdentityMemory, as_known, names_in_order, names_of, unpack_names
from ostinato.recognition.noise_cleaning import clean_by_cosines, own_cosines
from ostinato.recognition.trained_run import TrainedRun
from ostinato.recognition.verification.pictures import to_input
from ostinato.runs.folder import RunFolder

BATCH_SIZE = 64


@dataclass(frozen=True)
class DroppedPicture:
    """A picture that is far from its person's dominant sub-centre."""

    place: str
    """The file, or the file with key and offset; fit to be shown."""
    label: int
    """The class it had in the run."""
    degrees: float
    """The angle to the dominant sub-centre."""


@dataclass(frozen=True)
class CleanedSet:
    """What became of a set."""

    packed: Packed
    """What was written."""
    images: int
    """Pictures that were looked at: those that could be used."""
    people: int
    """Classes that had one."""
    dropped: tuple[DroppedPicture, ...]
    """The farthest first."""
    people_gone: tuple[str, ...]
    """Those without a picture now, by name, or by class number where the set has no names."""
    unusable: int
    """Pictures that are damaged, and left out as well."""


@dataclass(frozen=True)
class RunCentres:
    """The class centres of a run.

    :param table: (classes * sub_centres, d) float32, row ``class * sub_centres + sub``.
    :param names: of the classes; None where the run has none.
    """

    table: Tensor
    sub_centres: int
    names: tuple[str, ...] | None

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.table) // self.sub_centres


def read_run_centres(run_folder: Path, generation: int | str) -> RunCentres:
    """Read the class centres that a recognition training has saved. Memory: the table.

    :raises BadInputError: there is no such run or generation.
    :raises ModelMismatchError: no recognition training has saved it.
    """
    state: Any = RunFolder(run_folder).read(generation).state
    try:
        head = state["trainer"]["updater"]["head"]
        names = unpack_names(state["trainer"]["extensions"][IdentityMemory.name]["names"])
        return RunCentres(head["weight"].read(), int(head["sub_centres"]), names)
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelMismatchError(
            f"Generation {generation} of {shown_name(run_folder)} holds no class centres.",
            advice="Give the run folder of a recognition training.",
        ) from error


def clean_set(
    trained: TrainedRun,
    centres: RunCentres,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    degrees: float = 75.0,
    batch_size: int = BATCH_SIZE,
    min_images: int = 1,
    max_bad_records: int = DEFAULT_MAX_BAD,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> CleanedSet:
    """Write the pictures of a run's training set again, without those that are far from their dominant sub-centre.

    Pictures are stored byte for byte as they were. Classes are numbered anew without gaps, in their old order. See
    :mod:`~ostinato.recognition.noise_cleaning`. Memory: the centres, and 4 bytes for each picture and sub-centre.

    :param trained: the backbone of the run.
    :param data: the set that the run was trained on: a record file, or a folder of people.
    :param out: the ``.rec`` file to write; an index and a property file come beside it.
    :param degrees: a picture stays if the angle is below this.
    :param min_images: as the run was trained with.
    :param progress: called with pictures embedded and all.
    :raises DataSetError: the set cannot be used, or files are in the way.
    :raises BadInputError: it holds people whom the run does not know, or lacks some; or no picture stays.
    """
    check_out(out, overwrite)
    original = open_source(data, min_images=min_images, max_bad_records=max_bad_records)
    with contextlib.closing(original):
        stored = _stored(original)
        names = names_of(original)
        source = as_known(original, names, centres.classes, centres.names)
        if source.classes > centres.classes:
            raise BadInputError(
                f"The run has {centres.classes:,} classes, and the data has {source.classes:,}.",
                advice="Give the set that the run was trained on, with the same --min-images.",
                known=centres.classes,
                found=source.classes,
            )
        used, cosines = _embed(trained, centres, source, batch_size, progress)
        labels = torch.from_numpy(source.labels[used])
        cleaned = clean_by_cosines(cosines, labels, centres.classes, degrees=degrees)
        if not cleaned.kept.any():
            raise BadInputError(
                f"No picture is within {degrees:g} degrees of its dominant sub-centre.",
                advice="Train the run for longer, or give more --degrees.",
                degrees=degrees,
            )
        kept = cleaned.kept.numpy()
        packed = pack_again(stored, used[kept], cleaned.labels.numpy()[kept], out, overwrite=overwrite)
        to_dominant = cosines.gather(1, cleaned.dominant[labels].unsqueeze(1)).squeeze(1).clamp(-1, 1)
        dropped = [
            DroppedPicture(
                source.place(int(used[place])), int(labels[place]), math.degrees(math.acos(float(to_dominant[place])))
            )
            for place in np.flatnonzero(~kept)
        ]
        called = names_in_order(names, centres.names)
        gone = sorted(set(labels.tolist()) - set(cleaned.classes.tolist()))
        return CleanedSet(
            packed,
            len(used),
            len(labels.unique()),
            tuple(sorted(dropped, key=lambda one: -one.degrees)),
            tuple(str(label) if called is None else called[label] for label in gone),
            len(original.bad),
        )


def _stored(source: Source) -> Callable[[int], bytes]:
    """What gives the bytes of a picture."""
    if isinstance(source, RecordSource):
        return lambda index: source.record(index).image
    if isinstance(source, FolderSource):
        return lambda index: read_picture_file(source.path(index))
    raise BadInputError("Drawn patterns cannot be cleaned.", advice="Give a .rec file or a folder of people.")


def _embed(
    trained: TrainedRun,
    centres: RunCentres,
    source: Source,
    batch_size: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[np.ndarray, Tensor]:
    """The numbers of the pictures that can be used, and the cosines with their own sub-centres."""
    device = next(trained.model.parameters()).device
    used: list[int] = []
    cosines: list[Tensor] = []
    for batch in _batches(source, trained.options.data.image_size, batch_size):
        numbers = [index for index, image in batch if image is not None]
        if numbers:
            with torch.no_grad():
                images = to_input([image for _, image in batch if image is not None]).to(device)
                embeddings = trained.model(images).float().cpu()
            labels = torch.from_numpy(source.labels[numbers])
            cosines.append(own_cosines(embeddings, labels, centres.table, centres.sub_centres))
            used += numbers
        if progress is not None:
            progress(batch[-1][0] + 1, len(source))
    if not used:
        raise DataSetError(f"None of the {len(source):,} pictures can be used.")
    return np.asarray(used, np.int64), torch.cat(cosines)


def _batches(source: Source, size: int, batch_size: int) -> Iterator[list[tuple[int, np.ndarray | None]]]:
    """Pictures of the right size with their numbers; None for those that cannot be used, which are counted."""

    def read(index: int) -> tuple[int, np.ndarray | DataSetError]:
        try:
            return index, fit_to_square(source.read(index)[0], size)
        except ImageError as error:
            return index, picture_error(source.place(index), str(error))
        except DataSetError as error:
            return index, error

    batch: list[tuple[int, np.ndarray | None]] = []
    for index, image in map_in_order(read, range(len(source))):
        if isinstance(image, DataSetError):
            source.bad.add(index, image)
            batch.append((index, None))
        else:
            batch.append((index, image))
        if len(batch) == batch_size:
            yield batch
            batch = []
    if batch:
        yield batch
