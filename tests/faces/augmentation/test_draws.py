import numpy as np
import pytest

from ostinato.config.swap import AugmentationOptions
from ostinato.data.counter_random import CounterRandom
from ostinato.faces.augmentation.draws import AugmentationSwitches, clahe_tiles, draw_augmentation

FIELDS = ("lab", "clahe_tiles", "rotation", "zoom", "shift", "flip", "warp", "neighbour")


def _draw(positions, sides=0, *, options=None, switches=None, size=128, seed=1):
    positions = np.asarray(positions)
    return draw_augmentation(
        CounterRandom(seed, "augmentation"),
        positions,
        np.broadcast_to(sides, positions.shape),
        options=options or AugmentationOptions(),
        switches=switches or AugmentationSwitches(),
        size=size,
    )


def test_a_sample_s_draws_do_not_depend_on_the_rest_of_the_batch():
    together = _draw(np.arange(20), 1)
    for position in (0, 7, 19):
        alone = _draw([position], 1)
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(alone, field)[0], getattr(together, field)[position])


def test_sides_and_positions_draw_differently():
    draws = [_draw([3], 0), _draw([3], 1), _draw([4], 0), _draw([3], 0, seed=2)]
    assert len({draw.rotation[0] for draw in draws}) == 4


def test_draws_fill_the_ranges_of_the_options():
    draws = _draw(np.arange(20_000))
    for values, reach in (
        (draws.lab[:, 0], 0.30),
        (draws.lab[:, 1], 0.08),
        (draws.lab[:, 2], 0.08),
        (draws.rotation, 10),
        (draws.zoom - 1, 0.05),
        (draws.shift[:, 0], 6.4),
        (draws.shift[:, 1], 6.4),
    ):
        assert -reach <= values.min() < -0.99 * reach
        assert 0.99 * reach < values.max() <= reach
        assert abs(values.mean()) < 0.03 * reach
    assert abs(draws.flip.mean() - 0.5) < 0.02
    assert abs((draws.clahe_tiles > 0).mean() - 0.5) < 0.02
    assert set(draws.clahe_tiles.tolist()) == {0, 2, 3, 4, 5, 6}
    assert abs(draws.warp.std() - 2.5) < 0.02
    assert abs(draws.warp.mean()) < 0.02


def test_noise_of_landmarks_has_its_own_width():
    draws = _draw(np.arange(500), switches=AugmentationSwitches(warp_to_landmarks=True))
    assert draws.warp is None
    assert draws.landmark_noise.shape == (500, 68, 2)
    assert abs(draws.landmark_noise.std() - 1.0) < 0.02


@pytest.mark.parametrize(
    ("switch", "changed"), [("color", {"lab", "clahe_tiles"}), ("flip", {"flip"}), ("warp", {"warp"})]
)
def test_a_step_switched_off_leaves_all_other_draws(switch, changed):
    on, off = _draw(np.arange(64)), _draw(np.arange(64), switches=AugmentationSwitches(**{switch: False}))
    for field in FIELDS:
        if field not in changed:
            np.testing.assert_array_equal(getattr(on, field), getattr(off, field))
    if switch == "warp":
        assert off.warp is None
    else:
        assert not any(np.any(getattr(off, field)) for field in changed)


def test_without_warp_there_is_no_warp_to_landmarks_either():
    draws = _draw([0], switches=AugmentationSwitches(warp=False, warp_to_landmarks=True))
    assert draws.warp is None
    assert draws.landmark_noise is None


def test_a_changed_option_changes_no_other_draw():
    before = _draw(np.arange(64))
    after = _draw(np.arange(64), options=AugmentationOptions(rotation_range=5, color_clahe_chance=0))
    np.testing.assert_allclose(after.rotation, before.rotation / 2)
    assert not after.clahe_tiles.any()
    for field in ("lab", "zoom", "shift", "flip", "warp"):
        np.testing.assert_array_equal(getattr(after, field), getattr(before, field))


@pytest.mark.parametrize(("size", "expected"), [(64, [2, 3, 6]), (383, [2, 3, 6]), (512, [4, 6, 12])])
def test_larger_images_are_equalised_in_more_tiles(size, expected):
    assert clahe_tiles(np.array([0, 1, 4]), size).tolist() == expected
