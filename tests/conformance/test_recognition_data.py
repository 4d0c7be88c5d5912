"""Record files and samplers against files written by the established programs."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.data.pictures import decode_rgb, picture_size
from ostinato.data.recordio import (
    Located,
    RecordFile,
    RecordWriter,
    pack_image_record,
    read_index,
    unpack_image_record,
)
from ostinato.recognition.data import open_source
from ostinato.recognition.data.loader import rank_positions
from ostinato.recognition.data.order import ShuffledOrder
from ostinato.recognition.data.packing import shuffle_records
from ostinato.recognition.data.record_set import open_record_set

_PICTURES = {"jpeg": "JPEG", "png": "PNG"}


@pytest.fixture
def records(golden: Path) -> Path:
    return golden / "recognition" / "recordio"


@pytest.fixture
def contents(records: Path) -> dict[str, Any]:
    return json.loads((records / "contents.json").read_text())


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_every_record_is_read_as_it_was_written(records: Path, contents: dict[str, Any]) -> None:
    with RecordFile(records / "train.rec") as file:
        assert file.size == contents["file_bytes"]
        index = read_index(records / "train.idx", record_bytes=file.size)
        rows = contents["records"]
        assert index.keys.tolist() == [row["key"] for row in rows]
        assert index.offsets.tolist() == [row["offset"] for row in rows]
        for row in rows:
            payload = file.read(row["offset"], key=row["key"])
            assert (len(payload), _sha(payload)) == (row["record_bytes"], row["record_sha256"])
            record = unpack_image_record(payload)
            labels = row["label"] if row["flag"] == 0 else tuple(row["label"])
            assert (record.flag, record.labels, record.id, record.id2) == (row["flag"], labels, row["id"], row["id2"])
            assert len(record.image) == row["image_bytes"]


def test_every_picture_decodes_to_the_pixels_of_other_decoders(records: Path, contents: dict[str, Any]) -> None:
    with RecordFile(records / "train.rec") as file:
        for row in contents["records"]:
            if not row["image_bytes"]:
                continue
            image = unpack_image_record(file.read(row["offset"])).image
            assert _sha(image) == row["image_sha256"]
            assert picture_size(image).format == _PICTURES[row["format"]]
            pixels = decode_rgb(image)
            assert list(pixels.shape) == row["image_shape"]
            sums = pixels.reshape(-1, 3).sum(axis=0, dtype=np.int64)
            np.testing.assert_allclose(sums, row["channel_sums_rgb"], rtol=0.01)
            assert np.abs(pixels[0, 0].astype(int) - row["first_pixel_rgb"]).max() <= 4


def test_the_chunks_are_those_of_the_table(records: Path, contents: dict[str, Any]) -> None:
    with RecordFile(records / "train.rec") as file:
        chunks = [chunk for row in contents["records"] for chunk in file.chunks(row["offset"])]
        walked = [found for found in file.walk(24) if isinstance(found, Located)]
    assert [[chunk.offset, chunk.flag, chunk.length] for chunk in chunks] == contents["chunks_offset_flag_length"]
    assert [[found.offset, found.length] for found in walked] == [
        [row["offset"], row["record_bytes"]] for row in contents["records"]
    ]


@pytest.mark.parametrize("name", ["train", "plain"])
def test_the_writer_gives_the_same_bytes(records: Path, tmp_path: Path, name: str) -> None:
    with RecordFile(records / f"{name}.rec") as file, RecordWriter(tmp_path / f"{name}.rec") as writer:
        index = read_index(records / f"{name}.idx", record_bytes=file.size)
        for key, offset in zip(index.keys, index.offsets, strict=True):
            record = unpack_image_record(file.read(int(offset)))
            writer.write(int(key), pack_image_record(record.labels, record.image, id=record.id, id2=record.id2))
    for ending in ("rec", "idx"):
        assert (tmp_path / f"{name}.{ending}").read_bytes() == (records / f"{name}.{ending}").read_bytes()


def test_the_identity_set_is_understood(records: Path, contents: dict[str, Any]) -> None:
    source = open_source(records / "train.rec")
    with closing(source):
        assert source.classes == 6
        assert np.bincount(source.labels).tolist() == [7, 1, 12, 5, 9, 6]
        assert len(source.bad) == 0
        for index, row in enumerate(row for row in contents["records"] if row["image_bytes"]):
            image, label = source.read(index)
            assert label == int(row["label"] if row["flag"] == 0 else row["label"][0])
            assert list(image.shape) == row["image_shape"]


def test_the_plain_set_is_understood(records: Path) -> None:
    rows = json.loads((records / "plain_contents.json").read_text())
    source = open_source(records / "plain.rec")
    with closing(source):
        assert source.labels.tolist() == [int(row["label"]) for row in rows]
    with RecordFile(records / "plain.rec") as file:
        for row in rows:
            record = unpack_image_record(file.read(row["offset"]))
            assert (record.flag, record.id, _sha(record.image)) == (row["flag"], row["id"], row["image_sha256"])


@pytest.mark.parametrize("name", ["train", "plain"])
def test_a_missing_index_is_rebuilt_to_the_original(records: Path, tmp_path: Path, name: str) -> None:
    shutil.copy(records / f"{name}.rec", tmp_path / f"{name}.rec")
    found = open_record_set(tmp_path / f"{name}.rec")
    with closing(found.file):
        original = read_index(records / f"{name}.idx", record_bytes=found.file.size)
        assert found.index.keys.tolist() == original.keys.tolist()
        assert found.index.offsets.tolist() == original.offsets.tolist()


def test_shuffling_keeps_pictures_ids_and_first_labels(records: Path, contents: dict[str, Any], tmp_path: Path) -> None:
    shuffle_records(records / "train.rec", tmp_path / "train.rec")
    found = open_record_set(tmp_path / "train.rec")
    with closing(found.file):
        assert found.header is None
        assert found.keys.tolist() == list(range(40))
        shuffled = [unpack_image_record(found.file.read(int(offset))) for offset in found.scan.offsets]
    pictures = [row for row in contents["records"] if row["image_bytes"]]
    assert sorted((record.id, record.labels, _sha(record.image)) for record in shuffled) == sorted(
        (row["id"], row["label"] if row["flag"] == 0 else row["label"][0], row["image_sha256"]) for row in pictures
    )


def test_ranks_take_the_places_of_the_distributed_sampler(golden: Path) -> None:
    """The order of the pictures is drawn otherwise here; how a row of samples is cut over the ranks is the same."""
    cases = json.loads((golden / "recognition" / "samplers" / "sampler_cases.json").read_text())["distributed_sampler"]
    for case in cases:
        length, size = case["dataset_length"], case["world_size"]
        order = torch.arange(length)
        if case["shuffle"]:
            order = torch.randperm(length, generator=torch.Generator().manual_seed(case["seed"] + case["epoch"]))
        total = -(-length // size) * size
        row = order.repeat(-(-total // length))[:total]
        for rank, expected in enumerate(case["per_rank"]):
            assert row[rank_positions(0, total, rank, size)].tolist() == expected


def test_a_pass_holds_every_picture_once_where_that_sampler_repeats_some(golden: Path) -> None:
    cases = json.loads((golden / "recognition" / "samplers" / "sampler_cases.json").read_text())["distributed_sampler"]
    for case in cases:
        length, size = case["dataset_length"], case["world_size"]
        order = ShuffledOrder(length, case["seed"])
        ours = [order.indices(rank_positions(0, length, rank, size)) for rank in range(size)]
        assert sorted(np.concatenate(ours).tolist()) == list(range(length))
