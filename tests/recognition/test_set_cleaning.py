"""Training sets without the pictures that a run takes for mislabelled."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from record_sets import write_people
from torch import Tensor, nn

from ostinato.config import RecognitionOptions
from ostinato.data.jpeg import encode_jpeg
from ostinato.data.recordio import RecordFile
from ostinato.errors import BadInputError, DataSetError
from ostinato.recognition.data import open_source
from ostinato.recognition.data.image_folder import scan_identities
from ostinato.recognition.data.packing import PackOptions, pack_folder
from ostinato.recognition.data.record_set import open_record_set
from ostinato.recognition.data.record_source import RecordSource
from ostinato.recognition.set_cleaning import RunCentres, clean_set
from ostinato.recognition.trained_run import TrainedRun

SIZE = 16


class Brightness(nn.Module):
    """Embeds a picture at an angle that grows with its brightness: 0 degrees when black, 180 when white."""

    def __init__(self) -> None:
        super().__init__()
        self.half_turn = nn.Parameter(torch.tensor(math.pi))

    def forward(self, images: Tensor) -> Tensor:
        angles = (images.mean((1, 2, 3)) + 1) / 2 * self.half_turn
        return 2.0 * torch.stack([angles.cos(), angles.sin()], 1)


def trained() -> TrainedRun:
    options = RecognitionOptions()
    data = options.data.model_copy(update={"image_size": SIZE})
    return TrainedRun(Brightness().eval(), options.model_copy(update={"data": data}), 5, "run")  # pyrefly: ignore


def grey(level: int) -> bytes:
    return encode_jpeg(np.full((SIZE, SIZE, 3), level, np.uint8), 95)


def centres(*degrees: float, names: tuple[str, ...] | None = None) -> RunCentres:
    """Two sub-centres for each class."""
    angles = torch.tensor(degrees) * math.pi / 180
    return RunCentres(torch.stack([angles.cos(), angles.sin()], 1), 2, names)


# a: two dark pictures and a white stranger, b: white ones, c: a grey picture, far from both of its centres.
LEVELS = {"a": (0, 8, 255), "b": (250, 255), "c": (128,)}
CENTRES = (170, 0, 180, 90, 0, 1)


@pytest.fixture
def people(tmp_path: Path) -> Path:
    folder = write_people(tmp_path / "people", dict.fromkeys(LEVELS, 0))
    for name, levels in LEVELS.items():
        for number, level in enumerate(levels):
            (folder / name / f"{number}.jpg").write_bytes(grey(level))
    return folder


def images_of(path: Path) -> list[tuple[int, bytes]]:
    found = open_record_set(path)
    with closing(found.file):
        source = RecordSource(found)
        return [(int(source.labels[index]), source.record(index).image) for index in range(len(source))]


@pytest.mark.parametrize("packed", [False, True])
def test_strangers_are_dropped_and_the_others_stored_as_they_were(people: Path, tmp_path: Path, packed: bool) -> None:
    data, names = people, tuple(LEVELS)
    if packed:
        data, names = tmp_path / "train.rec", None
        pack_folder(scan_identities(people), data, PackOptions(image_size=None))
    (tmp_path / "clean").mkdir()
    out = tmp_path / "clean" / "clean.rec"
    done: list[tuple[int, int]] = []
    cleaned = clean_set(
        trained(),
        centres(*CENTRES, names=names),
        data,
        out,
        batch_size=4,
        progress=lambda now, total: done.append((now, total)),
    )
    assert images_of(out) == [(0, grey(0)), (0, grey(8)), (1, grey(250)), (1, grey(255))]
    assert (cleaned.images, cleaned.people, cleaned.unusable, cleaned.packed.images) == (6, 3, 0, 4)
    assert [(one.label, round(one.degrees)) for one in cleaned.dropped] == [(0, 180), (2, 89)]
    assert ("train.rec" if packed else "a/2.jpg") in cleaned.dropped[0].place
    assert cleaned.people_gone == (("2",) if packed else ("c",))
    assert done == [(4, 6), (6, 6)]
    with closing(open_source(out)) as source:
        assert source.classes == 2
    with closing(RecordFile(out)):
        pass


def test_people_keep_the_class_numbers_of_the_run(people: Path, tmp_path: Path) -> None:
    by_name = centres(180, 90, 170, 0, 88, 1, names=("b", "a", "c"))
    (tmp_path / "clean").mkdir()
    cleaned = clean_set(trained(), by_name, people, tmp_path / "clean" / "clean.rec")
    assert [one.label for one in cleaned.dropped] == [1]
    kept = images_of(tmp_path / "clean" / "clean.rec")
    assert kept == [(0, grey(250)), (0, grey(255)), (1, grey(0)), (1, grey(8)), (2, grey(128))]


def test_a_damaged_picture_is_counted_and_left_out(people: Path, tmp_path: Path) -> None:
    (people / "b" / "2.jpg").write_bytes(b"no picture")
    (tmp_path / "clean").mkdir()
    out = tmp_path / "clean" / "clean.rec"
    cleaned = clean_set(trained(), centres(*CENTRES), people, out, batch_size=1)
    assert (cleaned.unusable, cleaned.packed.images) == (1, 4)
    with pytest.raises(DataSetError, match="at most 0"):
        clean_set(trained(), centres(*CENTRES), people, out, max_bad_records=0, overwrite=True)


def test_what_does_not_fit_is_refused_and_nothing_is_written(people: Path, tmp_path: Path) -> None:
    (tmp_path / "clean").mkdir()
    out = tmp_path / "clean" / "clean.rec"

    def refuse(found: RunCentres, data: Any = people, **options: Any) -> str:
        with pytest.raises(BadInputError) as caught:
            clean_set(trained(), found, data, out, **options)
        return str(caught.value)

    assert "The run has 2 classes, and the data has 3." in refuse(centres(0, 1, 2, 3))
    assert "people are missing" in refuse(centres(*CENTRES, 0, 0))
    assert "within 0.001 degrees" in refuse(centres(40, 40, 40, 40, 40, 40), degrees=0.001)
    assert "Drawn patterns" in refuse(centres(*CENTRES), "synthetic")
    assert list(out.parent.iterdir()) == []
