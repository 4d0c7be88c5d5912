import numpy as np
import pytest

from ostinato.faces.augmentation.colour import ColourAugmenter, equalise, jitter_curve, jitter_tables


def slow_clahe(lightness, tiles):
    """Contrast-limited adaptive histogram equalisation, pixel by pixel."""
    size = lightness.shape[0]
    padding = -size % tiles
    padded = np.pad(lightness, (0, padding), mode="reflect") if padding else lightness
    width = padded.shape[0] // tiles
    tables = np.empty((tiles, tiles, 256))
    for row in range(tiles):
        for column in range(tiles):
            tile = padded[row * width : (row + 1) * width, column * width : (column + 1) * width]
            counts = np.bincount(tile.ravel(), minlength=256)
            cap = max(int(2 * width * width / 256), 1)
            excess = np.maximum(counts - cap, 0).sum()
            counts = np.minimum(counts, cap) + excess // 256
            rest = excess % 256
            if rest:
                step = max(256 // rest, 1)
                counts[np.arange(0, 256, step)[:rest]] += 1
            tables[row, column] = np.rint(np.cumsum(counts) * 255 / (width * width))
    result = np.empty(lightness.shape)
    for y in range(size):
        for x in range(size):
            v, u = y / width - 0.5, x / width - 0.5
            i, j = int(np.floor(v)), int(np.floor(u))
            fy, fx = v - i, u - j
            rows, columns = np.clip([i, i + 1], 0, tiles - 1), np.clip([j, j + 1], 0, tiles - 1)
            corner = tables[np.ix_(rows, columns)][..., lightness[y, x]]
            result[y, x] = (1 - fy) * ((1 - fx) * corner[0, 0] + fx * corner[0, 1]) + fy * (
                (1 - fx) * corner[1, 0] + fx * corner[1, 1]
            )
    return np.rint(result)


@pytest.mark.parametrize(("size", "tiles"), [(32, 2), (32, 3), (30, 4), (17, 6), (4, 6)])
def test_equalisation_agrees_with_the_slow_version(size, tiles):
    lightness = np.random.default_rng(0).integers(80, 150, (size, size)).astype(np.uint8)
    difference = np.abs(equalise(lightness, tiles).astype(float) - slow_clahe(lightness, min(size, tiles)))
    assert difference.max() <= 1


def test_jitter_moves_levels_towards_either_end():
    levels = np.array([0.0, 100.0, 255.0])
    np.testing.assert_allclose(jitter_curve(levels, np.array(0.2)), [51, 131, 255])
    np.testing.assert_allclose(jitter_curve(levels, np.array(-0.2)), [0, 80, 204])
    np.testing.assert_allclose(jitter_curve(levels, np.array(0.0)), levels)


def test_jitter_rounds_to_the_nearest_level():
    # 10 * 0.75 + 63.75 = 71.25 and 11 * 0.75 + 63.75 = 72; 1 * 0.7 = 0.7 becomes 1 where cutting off gives 0.
    tables = jitter_tables(np.array([[0.25, -0.3, 0.0]]))
    assert tables.shape == (1, 1, 256, 3)
    assert tables[0, 0, [10, 11], 0].tolist() == [71, 72]
    assert tables[0, 0, 1, 1] == 1
    np.testing.assert_array_equal(tables[0, 0, :, 2], np.arange(256))


def test_only_the_lightness_is_equalised():
    image = np.random.default_rng(0).integers(100, 140, (32, 32, 3)).astype(np.uint8)
    table = jitter_tables(np.zeros((1, 3)))[0]
    plain, equalised = np.empty_like(image), np.empty_like(image)
    augment = ColourAugmenter(32)
    augment(image, table, 0, plain)
    augment(image, table, 2, equalised)
    assert np.abs(plain.astype(int) - image).max() <= 4
    assert equalised.std() > 1.5 * plain.std()


def test_a_first_image_chosen_alone_is_equalised():
    # Elsewhere the choice of image number 0 alone counts as no choice.
    image = np.random.default_rng(0).integers(100, 140, (32, 32, 3)).astype(np.uint8)
    out = np.empty_like(image)
    ColourAugmenter(32)(image, jitter_tables(np.zeros((1, 3)))[0], 4, out)
    assert out.std() > 1.5 * image.std()
