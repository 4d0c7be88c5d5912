"""The 8-bit augmenter against a slow one in floating point that follows the description sentence by sentence."""

import cv2
import numpy as np
import pytest

from ostinato.config.swap import AugmentationOptions
from ostinato.data.counter_random import CounterRandom
from ostinato.faces.augmentation.augmenter import FaceAugmenter, batch_changes
from ostinato.faces.augmentation.draws import AugmentationSwitches, draw_augmentation
from ostinato.faces.augmentation.landmark_warp import landmark_map

# --- the slow version ------------------------------------------------------------------------------------------------


def slow_sample(image, x, y):
    """Bilinear; positions outside the image count as on its border."""
    height, width = image.shape[:2]
    x, y = np.clip(x, 0, width - 1), np.clip(y, 0, height - 1)
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    right, bottom = np.minimum(left + 1, width - 1), np.minimum(top + 1, height - 1)
    fx, fy = (x - left)[..., None], (y - top)[..., None]
    upper = image[top, left] * (1 - fx) + image[top, right] * fx
    lower = image[bottom, left] * (1 - fx) + image[bottom, right] * fx
    return upper * (1 - fy) + lower * fy


def slow_rgb_to_lab(rgb):
    value = rgb / 255.0
    linear = np.where(value > 0.04045, ((value + 0.055) / 1.055) ** 2.4, value / 12.92)
    xyz = (
        linear
        @ np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]]).T
    )
    xyz = xyz / [0.950456, 1.0, 1.088754]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    lightness = np.where(xyz[..., 1] > 0.008856, 116 * f[..., 1] - 16, 903.3 * xyz[..., 1])
    return np.stack(
        [lightness * 2.55, 500 * (f[..., 0] - f[..., 1]) + 128, 200 * (f[..., 1] - f[..., 2]) + 128], axis=-1
    )


def slow_lab_to_rgb(lab):
    lightness = lab[..., 0] / 2.55
    fy = np.where(lightness > 8, (lightness + 16) / 116, 7.787 * lightness / 903.3 + 16 / 116)
    f = np.stack([fy + (lab[..., 1] - 128) / 500, fy, fy - (lab[..., 2] - 128) / 200], axis=-1)
    xyz = np.where(f > 0.206893, f**3, (f - 16 / 116) / 7.787) * [0.950456, 1.0, 1.088754]
    matrix = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
    linear = np.clip(xyz @ np.linalg.inv(matrix).T, 0, 1)
    return 255 * np.where(linear > 0.0031308, 1.055 * linear ** (1 / 2.4) - 0.055, 12.92 * linear)


def slow_colour(image, lab_amounts):
    lab = slow_rgb_to_lab(image.astype(float))
    for channel, amount in enumerate(lab_amounts):
        level = lab[..., channel]
        lab[..., channel] = (255 - level) * amount + level if amount >= 0 else level * (1 + amount)
    return slow_lab_to_rgb(lab)


def slow_inverse(draws, index, size):
    """From a pixel of the result to its place in the source: undo mirror, shift, rotation and zoom."""
    centre = (size - 1) / 2
    angle = np.deg2rad(draws.rotation[index])
    rotation = draws.zoom[index] * np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])

    def place(x, y):
        if draws.flip[index]:
            x = size - 1 - x
        offset = np.stack([x, y], axis=-1) - draws.shift[index] - centre
        found = offset @ np.linalg.inv(rotation).T + centre
        return found[..., 0], found[..., 1]

    return place


def slow_warp(noise, size):
    """Positions before the transform is undone."""
    line = np.arange(5) * size / 4
    lattice = np.stack(np.meshgrid(line, line)) + noise
    place = 4 * (np.arange(size) + 0.5) / size
    result = np.empty((2, size, size))
    for row in range(size):
        for column in range(size):
            i, j = min(int(place[row]), 3), min(int(place[column]), 3)
            fy, fx = place[row] - i, place[column] - j
            cell = lattice[:, i : i + 2, j : j + 2]
            upper = cell[:, 0, 0] * (1 - fx) + cell[:, 0, 1] * fx
            lower = cell[:, 1, 0] * (1 - fx) + cell[:, 1, 1] * fx
            result[:, row, column] = upper * (1 - fy) + lower * fy
    return result - 0.5


# --- the comparison --------------------------------------------------------------------------------------------------


def _face(size, seed=0):
    # Colours as muted as skin: near the borders of what a screen shows, 8-bit Lab is coarse, here and elsewhere.
    random = np.random.default_rng(seed)
    coarse = random.integers(60, 196, (6, 6, 1)) + random.integers(-20, 21, (6, 6, 3))
    image = cv2.resize(coarse.astype(np.uint8), (size, size), interpolation=cv2.INTER_CUBIC)
    masks = np.zeros((2, size, size), dtype=np.uint8)
    masks[0, size // 4 : -size // 4, size // 3 : -size // 3] = 255
    return image, cv2.GaussianBlur(masks.transpose(1, 2, 0), (0, 0), size / 20).transpose(2, 0, 1)


def _draws(size, count=6, **switches):
    options = AugmentationOptions(color_clahe_chance=0)
    return draw_augmentation(
        CounterRandom(5, "test"),
        np.arange(count),
        np.zeros(count, dtype=int),
        options=options,
        switches=AugmentationSwitches(**switches),
        size=size,
    )


def _apply(changes, index, image, masks, *, input_size, output_sizes):
    outs = {
        "input_out": np.zeros((input_size, input_size, 3), dtype=np.uint8),
        "targets_out": [np.zeros((size, size, 3), dtype=np.uint8) for size in output_sizes],
        "masks_out": [[np.zeros((size, size), dtype=np.uint8) for size in output_sizes] for _ in masks],
    }
    FaceAugmenter(changes.size)(image, masks, changes, index, **outs)
    return outs["input_out"], outs["targets_out"], outs["masks_out"]


@pytest.mark.parametrize("size", [64, 60, 33])
def test_everything_together_agrees_with_the_slow_version(size):
    image, masks = _face(size)
    draws = _draws(size)
    assert draws.flip.any()
    assert not draws.flip.all()
    changes = batch_changes(draws, size, color=True)
    x, y = np.meshgrid(np.arange(size, dtype=float), np.arange(size, dtype=float))
    for index in range(6):
        inputs, (target,), mask_outs = _apply(changes, index, image, masks, input_size=size, output_sizes=[size])
        coloured = slow_colour(image, draws.lab[index])
        undo = slow_inverse(draws, index, size)
        for ours, expected in (
            (target, slow_sample(coloured, *undo(x, y))),
            (inputs, slow_sample(coloured, *undo(*slow_warp(draws.warp[index], size)))),
        ):
            difference = np.abs(ours - expected)
            assert difference.max() <= 6
            assert difference.mean() < 1
        for mask, out in zip(masks, mask_outs, strict=True):
            difference = np.abs(out[0] - slow_sample(mask[..., None].astype(float), *undo(x, y))[..., 0])
            assert difference.max() <= 1.5


def test_with_everything_off_the_face_comes_back_unchanged():
    image, masks = _face(48)
    options = AugmentationOptions(zoom_amount=0, rotation_range=0, shift_range=0)
    switches = AugmentationSwitches(color=False, flip=False, warp=False)
    draws = draw_augmentation(CounterRandom(0, "t"), [0], [0], options=options, switches=switches, size=48)
    changes = batch_changes(draws, 48, color=False)
    inputs, targets, mask_outs = _apply(changes, 0, image, masks, input_size=48, output_sizes=[48])
    np.testing.assert_array_equal(inputs, image)
    np.testing.assert_array_equal(targets[0], image)
    np.testing.assert_array_equal([outs[0] for outs in mask_outs], masks)


@pytest.mark.parametrize("size", [64, 66, 90])
def test_a_warp_without_noise_changes_nothing(size):
    # The half-pixel shift and the missing last row of other implementations would show here.
    image, masks = _face(size)
    options = AugmentationOptions(zoom_amount=0, rotation_range=0, shift_range=0)
    draws = draw_augmentation(
        CounterRandom(0, "t"),
        [0],
        [0],
        options=options,
        switches=AugmentationSwitches(color=False, flip=False),
        size=size,
    )
    draws.warp[:] = 0
    inputs, _, _ = _apply(
        batch_changes(draws, size, color=False), 0, image, masks, input_size=size, output_sizes=[size]
    )
    np.testing.assert_array_equal(inputs, image)


def test_the_warp_moves_the_input_only():
    image, masks = _face(64)
    draws = _draws(64)
    inputs, (target,), _ = _apply(
        batch_changes(draws, 64, color=True), 0, image, masks, input_size=64, output_sizes=[64]
    )
    draws.warp[:] = 0
    still, (same,), _ = _apply(batch_changes(draws, 64, color=True), 0, image, masks, input_size=64, output_sizes=[64])
    np.testing.assert_array_equal(target, same)
    assert np.abs(inputs.astype(int) - still).mean() > 1
    # Without warp, the input is the target.
    np.testing.assert_allclose(still, same, atol=1)


@pytest.mark.parametrize(
    ("input_size", "output_sizes"), [(32, [64, 16]), (64, [32]), (64, [64, 32, 16]), (32, [32, 64])]
)
def test_sizes_below_the_prepared_size_are_area_means_of_it(input_size, output_sizes):
    image, masks = _face(64)
    changes = batch_changes(_draws(64), 64, color=True)
    full_input, (full,), full_masks = _apply(changes, 1, image, masks, input_size=64, output_sizes=[64])
    inputs, targets, mask_outs = _apply(changes, 1, image, masks, input_size=input_size, output_sizes=output_sizes)

    def blocks(picture, size):
        step = 64 // size
        return picture.reshape(size, step, size, step, -1).astype(float).mean(axis=(1, 3)).squeeze()

    np.testing.assert_allclose(inputs, blocks(full_input, input_size), atol=0.51)
    for size, target, *outs in zip(output_sizes, targets, *mask_outs, strict=True):
        np.testing.assert_allclose(target, blocks(full, size), atol=0.51)
        for out, (mask,) in zip(outs, full_masks, strict=True):
            np.testing.assert_allclose(out, blocks(mask, size), atol=0.51)


def test_warp_to_landmarks_is_sampled_through_the_transform_once():
    size = 64
    image, masks = _face(size)
    random = np.random.default_rng(1)
    own = random.uniform(12, 52, (6, 68, 2)).astype(np.float32)
    landmarks = np.stack([own, own + random.normal(0, 1, own.shape).astype(np.float32)], axis=1)
    draws = _draws(size, color=False, warp_to_landmarks=True)
    changes = batch_changes(draws, size, color=False, landmarks=landmarks)
    for index in range(6):
        inputs, _, _ = _apply(changes, index, image, masks, input_size=size, output_sizes=[size])
        undo = slow_inverse(draws, index, size)
        # The points go through the forward transform: their places are what undo() takes back to the originals.
        moved = changes.shapes[index]
        np.testing.assert_allclose(np.stack(undo(*moved[0].T), axis=-1), landmarks[index, 0], atol=1e-4)
        np.testing.assert_allclose(
            np.stack(undo(*(moved[1] - draws.landmark_noise[index]).T), axis=-1), landmarks[index, 1], atol=1e-4
        )
        positions = landmark_map(moved[0], moved[1], size).astype(float)
        expected = slow_sample(image.astype(float), *undo(positions[..., 0], positions[..., 1]))
        difference = np.abs(inputs - expected)
        assert difference.max() <= 2
        assert difference.mean() < 0.4


def test_the_prepared_face_is_left_as_it_is():
    image, masks = _face(64)
    image.flags.writeable = masks.flags.writeable = False  # as the cache hands them out
    before = image.copy()
    _apply(batch_changes(_draws(64), 64, color=True), 0, image, masks, input_size=64, output_sizes=[64])
    np.testing.assert_array_equal(image, before)
