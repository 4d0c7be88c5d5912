"""Tables cut by rows: written in any cuts, read in any ranges, and checked for whatever does not fit together."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import ArgumentTypeError, ArgumentValueError, DamagedRunError
from ostinato.runs import GenerationContent, LoadedGeneration, RowCut, RowCutTable, RunFolder
from ostinato.runs.atomic import Files
from ostinato.runs.commit import PackedContent, pack
from ostinato.runs.manifest import Manifest
from ostinato.runs.part_names import PartName
from ostinato.runs.shared_files import SharedFiles, row_metadata
from ostinato.runs.tensor_file import read_header, tensor_pieces
from ostinato.runs.verification import read_generation

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8]


def _table(rows: int, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(rows * width) % 251).reshape(rows, width).to(dtype)


def _write(folder: Path, cuts: list[RowCut]) -> RowCutTable:
    """A table in one file for each cut, as so many ranks write it."""
    files = Files()
    records = {}
    for rank, cut in enumerate(cuts):
        name = str(PartName(cut.file, rank, len(cuts)))
        metadata = row_metadata({"table": (cut.first_row, cut.total_rows)})
        records[name] = files.write(
            folder / name, lambda cut=cut, metadata=metadata: tensor_pieces({"table": cut.tensor}, metadata)
        )
    manifest = Manifest("00000001", 1, ("latest",), world_size=len(cuts), files=records)
    return SharedFiles(folder, manifest).table("rows", "table")


def _cuts(table: torch.Tensor, borders: list[int]) -> list[RowCut]:
    places = [0, *sorted(borders), len(table)]
    return [RowCut(table[a:b], a, len(table)) for a, b in pairwise(places)]


@given(
    rows=st.integers(0, 40),
    width=st.integers(0, 5),
    dtype=st.sampled_from(DTYPES),
    data=st.data(),
)
def test_any_range_comes_back_from_any_cuts(
    tmp_path_factory: pytest.TempPathFactory, rows: int, width: int, dtype: torch.dtype, data: st.DataObject
) -> None:
    table = _table(rows, width, dtype)
    borders = data.draw(st.lists(st.integers(0, rows), max_size=5))
    stored = _write(tmp_path_factory.mktemp("cut"), _cuts(table, borders))
    assert stored.shape == (rows, width)
    assert stored.dtype == dtype
    assert stored.read().equal(table)
    first = data.draw(st.integers(0, rows))
    last = data.draw(st.integers(first, rows))
    assert stored.read(first, last).equal(table[first:last])
    pieces = list(stored.pieces(7))
    assert torch.cat([piece for _, piece in pieces] or [table]).equal(table)
    assert [first for first, _ in pieces] == list(range(0, rows, 7))


@given(rows=st.integers(2, 30), data=st.data())
def test_every_gap_and_every_overlap_is_found_and_its_files_are_named(
    tmp_path_factory: pytest.TempPathFactory, rows: int, data: st.DataObject
) -> None:
    from ostinato.runs.generation_files import DamagedGenerationError

    table = _table(rows, 3)
    cuts = _cuts(table, data.draw(st.lists(st.integers(1, rows - 1), min_size=1, max_size=4, unique=True)))
    index = data.draw(st.integers(0, len(cuts) - 1))
    first, last = cuts[index].first_row, cuts[index].first_row + len(cuts[index].tensor)
    begin = data.draw(st.integers(0, rows))
    end = data.draw(st.integers(begin, rows))
    cuts[index] = RowCut(table[begin:end], begin, rows)
    folder = tmp_path_factory.mktemp("cut")
    if (begin, end) == (first, last):
        _write(folder, cuts)
        return
    with pytest.raises(DamagedGenerationError) as caught:
        _write(folder, cuts)
    assert "rows-0000" in str(caught.value)


def test_a_table_of_several_dimensions_keeps_them(tmp_path: Path) -> None:
    table = torch.randn(6, 2, 3)
    stored = _write(tmp_path, _cuts(table, [4]))
    assert stored.row_shape == (2, 3)
    assert stored.read(3, 6).equal(table[3:6])


def test_a_flat_tensor_is_a_table_of_single_numbers(tmp_path: Path) -> None:
    flat = torch.arange(9, dtype=torch.float32)
    stored = _write(tmp_path, _cuts(flat, [2, 2, 7]))
    assert stored.shape == (9,)
    assert stored.read(1, 8).equal(flat[1:8])


def test_what_is_no_range_or_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentTypeError):
        RowCut(torch.tensor(1.0), 0, 1)
    with pytest.raises(ArgumentValueError, match="3 to 5 do not lie in a table of 4"):
        RowCut(torch.zeros(2, 1), 3, 4)
    for name in ("model", "rank", "../rows", "", "Rows", "a-b"):
        with pytest.raises(ArgumentValueError, match="file of rows"):
            RowCut(torch.zeros(2, 1), 0, 2, file=name)
    stored = _write(tmp_path, [RowCut(torch.zeros(2, 1), 0, 2)])
    for first, last in ((0, 3), (-1, 1), (2, 1)):
        with pytest.raises(ArgumentValueError, match="cannot be read"):
            stored.read(first, last)


# --- in a run ---------------------------------------------------------------------------------------------------------


def _content(iteration: int, *cuts: RowCut) -> GenerationContent:
    return GenerationContent(iteration, {"scale": torch.ones(1)}, None, {"heads": list(cuts)})


def _packed(content: GenerationContent, rank: int, size: int) -> PackedContent:
    return pack(content, sessions=(), options={}, time="", rank=rank, world_size=size)


def _save(run: RunFolder, contents: list[GenerationContent]) -> Path:
    """What ranks do, one after the other: the others write their files, rank 0 takes them in."""
    size = len(contents)

    def take_in(folder: Path):
        records = {}
        for rank in range(1, size):
            packed = _packed(contents[rank], rank, size)
            for name in packed.tensor_files:
                metadata = row_metadata(packed.row_ranges[name])
                records[name] = run.files.write(
                    folder / name, lambda p=packed, n=name, m=metadata: tensor_pieces(p.tensors_of(n), m)
                )
        return records

    manifest = run.commit(_packed(contents[0], 0, size), take_in).manifest
    return run.generations_path / manifest.generation


def _tables(loaded: LoadedGeneration | None) -> list[RowCutTable]:
    assert loaded is not None
    return loaded.state["heads"]


def test_one_process_saves_and_reads_a_table_like_many(run: RunFolder) -> None:
    table = _table(10, 4)
    _save(run, [_content(1, RowCut(table, 0, 10, file="centres"))])
    (stored,) = _tables(run.load_newest())
    assert stored.read(2, 5).equal(table[2:5])
    assert (run.generations_path / "00000001" / "centres-00000-of-00001.safetensors").is_file()


def test_several_tables_share_a_file_and_the_library_reads_it(run: RunFolder) -> None:
    from safetensors.torch import load_file

    weight, momentum = _table(9, 4), -_table(9, 4)
    folder = _save(
        run,
        [
            _content(1, RowCut(weight[:5], 0, 9, file="centres"), RowCut(momentum[:5], 0, 9, file="centres")),
            _content(1, RowCut(weight[5:], 5, 9, file="centres"), RowCut(momentum[5:], 5, 9, file="centres")),
        ],
    )
    loaded = run.load_newest()
    assert [table.read().equal(whole) for table, whole in zip(_tables(loaded), (weight, momentum), strict=True)]
    assert loaded is not None
    assert loaded.manifest.world_size == 2
    assert run.verify() == {"00000001": []}
    part = load_file(folder / "centres-00001-of-00002.safetensors")
    assert part["heads.1"].equal(momentum[5:])
    _, metadata = read_header(folder / "centres-00001-of-00002.safetensors")
    assert json.loads(metadata["rows"]) == {"heads.0": [5, 9], "heads.1": [5, 9]}


def test_rows_of_the_optimizer_are_carried_on_with_its_state(run: RunFolder) -> None:
    from ostinato.runs import KEEP_OPTIMIZER

    moments = _table(6, 2)

    def content(iteration: int, optimizer: object) -> GenerationContent:
        return GenerationContent(iteration, {"scale": torch.ones(1)}, optimizer, {"x": iteration})

    _save(run, [content(1, {"m": RowCut(moments, 0, 6)})])
    _save(run, [content(2, KEEP_OPTIMIZER)])
    loaded = run.load_newest()
    assert loaded is not None
    assert loaded.manifest.optimizer_iteration == 1
    assert loaded.optimizer["m"].read().equal(moments)
    assert "optimizer-rows-00000-of-00001.safetensors" in loaded.manifest.files


def test_rows_that_are_no_numbers_are_not_saved(run: RunFolder) -> None:
    from ostinato.errors import SaveError

    table = _table(4, 2)
    table[1, 1] = float("inf")
    with pytest.raises(SaveError, match=r"not finite numbers \(heads\.0\)"):
        _save(run, [_content(1, RowCut(table, 0, 4))])


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (RowCut(torch.zeros(2, 4), 4, 8), "rows 3 to 4 after rows-00000-of-00002.safetensors lack"),
        (RowCut(torch.zeros(6, 4), 2, 8), "which rows-00000-of-00002.safetensors holds up to 3"),
        (RowCut(torch.zeros(4, 4), 3, 8), "is followed by no file with rows 7 to 8"),
        (RowCut(torch.zeros(5, 4, dtype=torch.float64), 3, 8), "numbers of type torch.float64"),
        (RowCut(torch.zeros(5, 3), 3, 8), r"rows of shape [3]"),
        (RowCut(torch.zeros(5, 4), 3, 9), "a total of rows of 9"),
    ],
)
def test_parts_that_do_not_fit_together_are_damage_and_the_state_before_is_used(
    run: RunFolder, second: RowCut, says: str
) -> None:
    table = _table(8, 4)
    _save(run, [_content(1, RowCut(table, 0, 8))])
    _save(run, [_content(2, RowCut(table[:3], 0, 8)), _content(2, second)])
    with pytest.raises(DamagedRunError) as caught:
        run.read(2)
    assert says in str(caught.value)
    assert "rows-0000" in str(caught.value)
    loaded = run.load_newest()
    assert _tables(loaded)[0].read().equal(table)
    assert loaded is not None
    assert loaded.iteration == 1
    assert any(says in notice for notice in run.notices)


def test_a_file_of_rows_that_changed_or_is_gone_is_damage(run: RunFolder) -> None:
    table = _table(8, 4)
    for damage in ("flip", "cut", "remove"):
        folder = _save(run, [_content(1, RowCut(table[:3], 0, 8)), _content(1, RowCut(table[3:], 3, 8))])
        path = folder / "rows-00001-of-00002.safetensors"
        content = bytearray(path.read_bytes())
        if damage == "flip":
            content[-1] ^= 1
            path.write_bytes(content)
        elif damage == "cut":
            path.write_bytes(content[:-4])
        else:
            path.unlink()
        assert [found.file for found in run.verify()[folder.name]] == [path.name]
        with pytest.raises(DamagedRunError, match=r"rows-00001-of-00002\.safetensors"):
            run.read(folder.name)


def test_a_rank_checks_its_share_and_all_of_them_check_everything(run: RunFolder) -> None:
    from ostinato.runs.generation_files import DamagedGenerationError

    table = _table(8, 4)
    folder = _save(run, [_content(1, RowCut(table[:3], 0, 8)), _content(1, RowCut(table[3:], 3, 8))])
    path = folder / "rows-00001-of-00002.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    read_generation(folder, 0, 2)  # rank 1 has this file in its share
    with pytest.raises(DamagedGenerationError):
        read_generation(folder, 1, 2)
    with pytest.raises(DamagedGenerationError):
        read_generation(folder, 0, 1)


def test_a_file_that_is_cut_off_after_loading_is_an_error_and_not_the_end_of_the_process(run: RunFolder) -> None:
    table = _table(8, 4)
    folder = _save(run, [_content(1, RowCut(table, 0, 8))])
    (stored,) = _tables(run.load_newest())
    path = folder / "rows-00000-of-00001.safetensors"
    path.write_bytes(path.read_bytes()[:-40])
    assert stored.read(0, 2).equal(table[:2])
    with pytest.raises(DamagedRunError, match="ends before its rows do"):
        stored.read()
    path.unlink()
    with pytest.raises(DamagedRunError, match="is missing"):
        stored.read(0, 1)


def test_reading_a_range_reads_that_range_and_no_more(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    from ostinato.runs import row_cut

    table = _table(4096, 8)
    _save(run, [_content(1, RowCut(table[:150], 0, 4096)), _content(1, RowCut(table[150:], 150, 4096))])
    (stored,) = _tables(run.load_newest())
    sizes: list[int] = []
    read_at = row_cut._read_at

    def note(path: Path, offset: int, target: memoryview) -> None:
        sizes.append(len(target))
        read_at(path, offset, target)

    monkeypatch.setattr(row_cut, "_read_at", note)
    assert stored.read(100, 164).equal(table[100:164])
    assert sizes == [50 * 8 * 4, 14 * 8 * 4]
