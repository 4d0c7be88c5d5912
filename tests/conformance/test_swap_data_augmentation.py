"""Every stage of the augmentation against recorded numbers, given the recorded draws.

Recorded pictures are B, G, R; ours are R, G, B. Where the record shows a fault of its source, the comparison takes the
fault out of the record or puts it into the comparison, and says so.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from ostinato.faces.augmentation.augmenter import FaceAugmenter, batch_changes
from ostinato.faces.augmentation.colour import equalise, jitter_curve, jitter_tables
from ostinato.faces.augmentation.draws import AugmentationDraws, clahe_tiles
from ostinato.faces.augmentation.landmark_warp import anchored_points, piecewise_linear
from ostinato.faces.augmentation.neighbours import LandmarkNeighbours
from ostinato.faces.augmentation.transform import invert, transform_image, transform_matrices, transform_points
from ostinato.faces.augmentation.warp import enlarge_lattice, source_lattices, warp_image
from ostinato.faces.prepared_faces import PreparedFaces
from ostinato.faces.sample import CropSettings


@pytest.fixture(params=[64, 128])
def steps(request: pytest.FixtureRequest, golden: Path) -> dict[str, Any]:
    return _archive(golden, f"augmentation/steps_{request.param}.npz")


def _archive(golden: Path, name: str) -> dict[str, Any]:
    with np.load(golden / "swap-data" / name) as archive:
        return dict(archive)


def _assert_close(ours, recorded, *, largest: float, mean: float) -> None:
    difference = np.abs(np.asarray(ours, dtype=float) - np.asarray(recorded, dtype=float))
    assert difference.max() <= largest
    assert difference.mean() <= mean


def _matrices(steps: dict[str, Any], size: int, flip=None):
    count = len(steps["draw_rotation"])
    return transform_matrices(
        steps["draw_rotation"].astype(float),
        steps["draw_scale"].astype(float),
        steps["draw_shift"].astype(float),
        np.zeros(count, dtype=bool) if flip is None else flip,
        size,
    )


def test_lab_of_every_recorded_colour(golden):
    cube = _archive(golden, "augmentation/colour_cube.npz")
    rgb = np.ascontiguousarray(cube["bgr"][None, :, ::-1])
    _assert_close(cv2.cvtColor(rgb, cv2.COLOR_RGB2Lab)[0], cube["lab"], largest=2, mean=0.12)
    back = cv2.cvtColor(np.ascontiguousarray(cube["bgr"][None]), cv2.COLOR_Lab2RGB)[0, :, ::-1]
    _assert_close(back, cube["as_lab_to_bgr"], largest=1, mean=0.05)


def test_jitter(steps):
    curve = jitter_curve(steps["lab"].astype(float), steps["draw_lab"].astype(float))
    # The record was computed in float32, which may fall on the other side of a whole number.
    assert (np.trunc(curve) != steps["lab_jittered"]).mean() < 2e-4
    assert np.abs(np.trunc(curve) - steps["lab_jittered"]).max() <= 1
    # The record truncates; tables round to the nearest level.
    tables = jitter_tables(steps["draw_lab"].reshape(-1, 3).astype(float))
    for lab, table, recorded in zip(steps["lab"], tables, steps["lab_jittered"], strict=True):
        difference = cv2.LUT(lab, table).astype(int) - recorded
        assert difference.min() >= 0
        assert difference.max() <= 1


def test_contrast_equalisation(steps):
    size = steps["input"].shape[1]
    chosen = np.flatnonzero(steps["draw_clahe_select"] < 0.5)
    tiles = clahe_tiles(steps["draw_clahe_grid"].astype(np.int64), size)
    for index, count in zip(chosen, tiles, strict=True):
        ours = equalise(steps["lab_jittered"][index, ..., 0], int(count))
        _assert_close(ours, steps["lab_clahe"][index, ..., 0], largest=1, mean=0.001)


@pytest.mark.parametrize("size", [64, 90])
@pytest.mark.parametrize("tiles", [2, 3, 4, 5, 6])
def test_contrast_equalisation_for_all_grids(golden, size, tiles):
    recorded = _archive(golden, "augmentation/clahe.npz")
    _assert_close(equalise(recorded[f"L{size}"], tiles), recorded[f"L{size}_grid{tiles}"], largest=1, mean=0.001)


def test_affine_matrices_and_points(steps):
    size = steps["input"].shape[1]
    matrices = _matrices(steps, size)
    np.testing.assert_allclose(matrices, steps["transform_matrices"][:, :2], atol=2e-5)
    count = len(matrices)
    points = transform_points(steps["points_in"].reshape(count, 136, 2), matrices).reshape(count, 2, 68, 2)
    np.testing.assert_allclose(points, steps["points_transformed"], atol=5e-4)
    flipped = _matrices(steps, size, steps["draw_flip"] <= 0.5)
    points = transform_points(steps["points_in"].reshape(count, 136, 2), flipped).reshape(count, 2, 68, 2)
    np.testing.assert_allclose(points, steps["points_flipped"], atol=5e-4)


def test_affine_image_and_masks(steps):
    size = steps["input"].shape[1]
    inverse = invert(_matrices(steps, size))
    flipped = invert(_matrices(steps, size, steps["draw_flip"] <= 0.5))
    moved, mirrored = np.empty_like(steps["input"]), np.empty_like(steps["input"])
    picture, mask = np.empty((size, size, 3), dtype=np.uint8), np.empty((size, size), dtype=np.uint8)
    for matrices, result in ((inverse, moved), (flipped, mirrored)):
        for index, coloured in enumerate(steps["colour_out"]):
            transform_image(coloured, matrices[index], picture)
            result[index, ..., :3] = picture
            for channel in (3, 4, 5):
                transform_image(np.ascontiguousarray(steps["input"][index, ..., channel]), matrices[index], mask)
                result[index, ..., channel] = mask
    for ours, recorded in ((moved, steps["transform_out"]), (mirrored, steps["flip_out"])):
        _assert_close(ours[..., :3], recorded[..., :3], largest=3, mean=0.13)
        _assert_close(ours[..., 3:], recorded[..., 3:], largest=5, mean=0.04)


def test_warp_maps_and_image(steps):
    size = steps["input"].shape[1]
    count = len(steps["draw_warp"])
    still = np.tile(np.eye(3)[:2], (count, 1, 1))
    lattices = source_lattices(steps["draw_warp"].astype(float), still, size)
    for index in range(count):
        positions = enlarge_lattice(lattices[index], size)
        # The recorded maps are half a pixel off.
        shifted = positions.transpose(2, 0, 1) + 0.5
        np.testing.assert_allclose(shifted, steps["warp_maps"][index], atol=4e-5)
        ours = np.empty((size, size, 3), dtype=np.uint8)
        image = np.ascontiguousarray(steps["flip_out"][index, ..., :3])
        warp_image(image, np.ascontiguousarray(steps["warp_maps"][index].transpose(1, 2, 0)), ours)
        # The record is black where the map leaves the image, ours goes on with the edge.
        inside = ((steps["warp_maps"][index] >= 0) & (steps["warp_maps"][index] <= size - 1)).all(axis=0)
        assert inside.mean() > 0.9
        _assert_close(ours[inside], steps["warp_out"][index][inside], largest=1, mean=0.01)


def test_landmarks_and_neighbours_for_warp_to_landmarks(golden):
    recorded = _archive(golden, "augmentation/warp_to_landmarks_64.npz")
    faces = [golden / "swap-data" / "faces" / f"{name}.png" for name in ("f1_upright", "f2_rotated", "f3_yaw_edge")]
    found = np.stack([PreparedFaces(faces, CropSettings(64)).landmarks(number) for number in range(3)])
    np.testing.assert_allclose(found, recorded["aligned_landmarks"], atol=5e-4)
    neighbours = LandmarkNeighbours([found, found])
    assert neighbours.number == recorded["num_choices"]
    for side, name in enumerate(("closest_a", "closest_b")):
        for face, expected in enumerate(recorded[name]):
            assert set(neighbours.nearest(side, face, 1 - side).tolist()) == set(expected.tolist())


def test_warp_to_landmarks(golden):
    recorded = _archive(golden, "augmentation/warp_to_landmarks_64.npz")
    for image, own, plain, noise, output in zip(
        *(recorded[name] for name in ("input", "src", "dst", "draw_noise", "output")), strict=True
    ):
        target = plain + noise.astype(np.float32)
        sources, targets = anchored_points(own, target, 64)
        # The record leaves point 17 out, and exchanges the axes of the map.
        others = ~(targets == target[17]).all(axis=1)
        positions = piecewise_linear(sources[others], targets[others], 64)
        exchanged = np.ascontiguousarray(positions.transpose(1, 0, 2)[..., ::-1])
        ours = np.empty_like(image)
        warp_image(image, exchanged, ours)
        _assert_close(ours, output, largest=1, mean=0.01)


def test_a_whole_batch(golden):
    recorded = _archive(golden, "batch/collated_bgr.npz")
    items = _archive(golden, "batch/dataset_items_128.npz")
    size, count = 128, 8
    select = recorded["draw01_rand"] < 0.5
    tiles = np.zeros(count, dtype=np.int64)
    tiles[select] = clahe_tiles(recorded["draw02_randint"].astype(np.int64), size)
    # Draws are float32 in use.
    drawn = {key: value.astype(np.float32).astype(float) for key, value in recorded.items() if key.startswith("draw")}
    draws = AugmentationDraws(
        lab=drawn["draw00_uniform"].reshape(count, 3),
        clahe_tiles=tiles,
        rotation=drawn["draw03_uniform"],
        zoom=drawn["draw04_uniform"],
        shift=drawn["draw05_uniform"],
        flip=recorded["draw06_rand"] <= 0.5,
        warp=drawn["draw07_normal"] + 0.5,  # the record's half pixel
        neighbour=np.zeros((count, 2)),
        landmark_noise=None,
    )
    # The record cuts jittered levels off where ours rounds.
    cut = np.trunc(jitter_curve(np.arange(256.0)[None, :, None], draws.lab[:, None])).astype(np.uint8)[:, None]
    changes = dataclasses.replace(batch_changes(draws, size, color=True), tables=cut)
    augment = FaceAugmenter(size)
    for sample in range(count):
        side, row = divmod(sample, 4)
        item = items[f"item{recorded['rows'][row, side]}"]
        image = np.ascontiguousarray(item[..., 2::-1])
        masks = np.ascontiguousarray(item[..., 3:].transpose(2, 0, 1))
        inputs = np.empty((64, 64, 3), dtype=np.uint8)
        targets = [np.empty((n, n, 3), dtype=np.uint8) for n in (64, 128)]
        mask_outs = [[np.empty((n, n), dtype=np.uint8) for n in (64, 128)] for _ in range(3)]
        augment(image, masks, changes, sample, input_out=inputs, targets_out=targets, masks_out=mask_outs)
        for target, n in zip(targets, (64, 128), strict=True):
            _assert_close(target[..., ::-1], recorded[f"target_{n}"][row, side], largest=3, mean=0.2)
        for kind, outs in zip(("face", "eye", "mouth"), mask_outs, strict=True):
            for out, n in zip(outs, (64, 128), strict=True):
                _assert_close(out, recorded[f"mask_{kind}_{n}"][row, side, 0], largest=5, mean=0.04)
        # Ours is sampled once where the record is sampled twice; the last row and column are half black there.
        input_of_side = recorded["input_A" if side == 0 else "input_B"][row]
        difference = np.abs(inputs[1:-1, 1:-1, ::-1].astype(float) - input_of_side[1:-1, 1:-1])
        assert difference.mean() < 2.5
