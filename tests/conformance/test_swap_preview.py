"""Preview sheets against recorded ones: everything below the header strip, whose lettering is the drawing library's."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from ostinato.swap.preview_sheet import SheetColumns, SheetStyle, draw_sheet

SHEETS = ("sheet_cov80_mask", "sheet_cov80_nomask", "sheet_full_mask", "sheet_learnmask_14rows")


@pytest.mark.parametrize("name", SHEETS)
def test_a_sheet_equals_the_recorded_one_below_its_header(golden: Path, name: str) -> None:
    folder = golden / "swap-data" / "preview"
    with np.load(folder / f"{name}.npz") as recorded:
        data = {key: recorded[key] for key in recorded.files}
    expected = cv2.imread(str(folder / f"{name}.png"))[..., ::-1]
    predictions = data["predictions"].astype(np.float32) / 255
    predictions[..., :3] = predictions[..., 2::-1].copy()  # recorded as blue, green, red
    patches = data["targets"]
    names = ("a", "b")
    sides = [
        SheetColumns(
            name=side,
            patches=patches[index, ..., 2::-1],
            masks=patches[index, ..., 3],
            predictions={names[(index + step) % 2]: predictions[index, step] for step in range(2)},
        )
        for index, side in enumerate(names)
    ]
    style = SheetStyle(
        coverage=float(data["coverage"]),
        show_mask=bool(data["mask_shown"]),
        mask_opacity=int(data["opacity"]),
        mask_colour=str(data["mask_colour"]),
    )

    sheet = draw_sheet(sides, style)

    assert sheet.shape == expected.shape
    strip = int(patches.shape[2] / 4.5)
    difference = np.abs(sheet[strip:].astype(int) - expected[strip:].astype(int))
    assert difference.max() <= 1
