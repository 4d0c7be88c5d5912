"""The preview sheet: its layout for any number of sides and faces, mask, brackets, and values out of range."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.errors import ArgumentValueError
from ostinato.swap.preview_sheet import SheetColumns, SheetStyle, draw_sheet, shown_names

PLAIN = SheetStyle(show_mask=False)


def _side(name: str, others: tuple[str, ...], count: int, cell: int, out: int, grey: float = 0.5) -> SheetColumns:
    return SheetColumns(
        name=name,
        patches=np.full((count, cell, cell, 3), 40, np.uint8),
        masks=None,
        predictions={decoder: np.full((count, out, out, 3), grey, np.float32) for decoder in (name, *others)},
    )


@pytest.mark.parametrize(
    ("sides", "faces", "size"),
    [
        # the recorded layout: two sides, fourteen faces become two blocks of seven
        (("a", "b"), 14, (7 * 64 + 14, 12 * 64)),
        (("a",), 2, (2 * 64 + 14, 2 * 64)),
        (("a",), 3, (2 * 64 + 14, 4 * 64)),
        (("a", "b", "c"), 4, (4 * 64 + 14, 12 * 64)),
        (("a", "b"), 7, (4 * 64 + 14, 12 * 64)),
    ],
)
def test_the_layout_follows_sides_and_faces(sides: tuple[str, ...], faces: int, size: tuple[int, int]) -> None:
    columns = [_side(side, tuple(s for s in sides if s != side), faces, 64, 64) for side in sides]
    assert draw_sheet(columns, PLAIN).shape == (*size, 3)


def test_an_odd_number_of_rows_is_cut_between_rows_and_filled_with_white() -> None:
    sheet = draw_sheet([_side("a", ("b",), 7, 64, 64), _side("b", ("a",), 7, 64, 64)], PLAIN)
    left, right = sheet[14:, : 6 * 64], sheet[14:, 6 * 64 :]
    assert (left != 255).all()
    assert (right[: 3 * 64] != 255).all()
    assert (right[3 * 64 :] == 255).all()


def test_sides_may_have_different_numbers_of_faces() -> None:
    sheet = draw_sheet([_side("a", ("b",), 3, 64, 64), _side("b", ("a",), 1, 64, 64)], PLAIN)
    assert sheet.shape == (3 * 64 + 14, 6 * 64, 3)
    assert (sheet[14 + 64 :, 3 * 64 :] == 255).all()
    assert (sheet[14:, : 3 * 64] != 255).all()


@pytest.mark.parametrize(("value", "shown"), [(1.7, 255), (-0.4, 0), (float("nan"), 0), (0.5, 128)])
def test_predictions_outside_the_range_are_clipped(value: float, shown: int) -> None:
    sheet = draw_sheet([_side("a", (), 1, 64, 64, value)], PLAIN)
    assert (sheet[14:, 64:] == shown).all()


def test_the_corners_of_the_trained_area_carry_one_pixel_brackets() -> None:
    sheet = draw_sheet([_side("a", (), 1, 80, 64)], SheetStyle(coverage=0.8, show_mask=False, mask_colour="#20c0ff"))
    cell = sheet[int(80 / 4.5) :, 80:]
    colour = (cell == (0x20, 0xC0, 0xFF)).all(axis=-1)
    # The box is 66 pixels wide from 7 on; each corner keeps two lines of 20 pixels that share one.
    assert colour.sum() == 4 * (20 + 20 - 1)
    assert colour[7, 7:27].all()
    assert colour[72, 53:73].all()
    assert not colour[8:72, 8:72].any()


def test_the_tint_lies_outside_the_mask() -> None:
    masks = np.zeros((1, 64, 64), np.uint8)
    masks[:, :, :32] = 255
    side = SheetColumns("a", np.zeros((1, 64, 64, 3), np.uint8), masks, {"a": np.zeros((1, 64, 64, 3))})
    sheet = draw_sheet([side], SheetStyle(mask_opacity=100, mask_colour="#ff0000"))[14:]
    assert (sheet[:, :32] == 0).all()
    assert (sheet[:, 32:64] == (255, 0, 0)).all()
    untinted = draw_sheet([side], SheetStyle(show_mask=False, mask_opacity=100))[14:]
    assert (untinted == 0).all()


def test_a_predicted_mask_replaces_the_patch_mask_in_predictions_alone() -> None:
    patch_mask = np.full((1, 80, 80), 255, np.uint8)
    prediction = np.zeros((1, 64, 64, 4), np.float32)
    prediction[..., 32:, 3] = 1
    side = SheetColumns("a", np.zeros((1, 80, 80, 3), np.uint8), patch_mask, {"a": prediction})
    style = SheetStyle(coverage=0.8, mask_opacity=100, mask_colour="#0000ff")
    original, rebuilt = np.split(draw_sheet([side], style)[int(80 / 4.5) :], 2, axis=1)
    assert (original[8:72, 8:72] == 0).all()
    assert (rebuilt[8:72, 40:72] == 0).all()
    assert (rebuilt[8:72, 8:40] == (0, 0, 255)).all()
    assert (rebuilt[:7] == (0, 0, 255)).all()


def test_no_faces_and_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ArgumentValueError, match="at least one face"):
        draw_sheet([], PLAIN)
    with pytest.raises(ArgumentValueError, match="middle of 64"):
        draw_sheet([_side("a", (), 1, 64, 63)], PLAIN)
    with pytest.raises(ArgumentValueError, match="masks of side a"):
        draw_sheet([SheetColumns("a", np.zeros((1, 8, 8, 3), np.uint8), np.zeros((1, 4, 4), np.uint8), {})], PLAIN)


@pytest.mark.parametrize("cell", [48, 64, 128, 300])
def test_headers_carry_letters_that_stay_in_their_cells(cell: int) -> None:
    sheet = draw_sheet([_side("a_rather_long_name", ("b",), 1, cell, cell)], PLAIN)
    header = sheet[: int(cell / 4.5)]
    assert header.min() < 128
    assert (header[:, [0, cell, 2 * cell]] > 200).all()


@pytest.mark.parametrize("cell", [64, 256])
def test_names_are_shown_whole_where_they_can_be_read_and_cut_short_where_not(cell: int) -> None:
    assert shown_names(["a", "b", "carol"], cell) == {"a": "A", "b": "B", "carol": "CAROL"}
    shown = shown_names(["a", "maximilian_the_second", "christopherson"], cell)
    assert shown["a"] == "A"
    for name, place in (("maximilian_the_second", "MAXI"), ("christopherson", "CHRI")):
        assert shown[name].startswith(place)
    assert shown["maximilian_the_second"].endswith(".")
    assert 5 <= len(shown["maximilian_the_second"]) <= cell / 8


def test_long_names_that_begin_alike_are_told_apart_by_their_place() -> None:
    assert shown_names(["a", "second_person_1", "second_person_2"], 64) == {
        "a": "#1",
        "second_person_1": "#2",
        "second_person_2": "#3",
    }


@pytest.mark.parametrize(("value", "shown"), [(1.7, 0), (-3.0, 255), (float("nan"), 255)])
def test_a_predicted_mask_outside_the_range_is_clipped(value: float, shown: int) -> None:
    prediction = np.zeros((1, 64, 64, 4), np.float32)
    prediction[..., 3] = value
    side = SheetColumns("a", np.zeros((1, 64, 64, 3), np.uint8), np.full((1, 64, 64), 255, np.uint8), {"a": prediction})
    rebuilt = draw_sheet([side], SheetStyle(mask_opacity=50, mask_colour="#ffffff"))[14:, 64:]
    assert (rebuilt == (128 if shown else 0)).all()
