import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ostinato.faces.augmentation.transform import invert, transform_image, transform_matrices, transform_points


def _matrix(rotation=0.0, zoom=1.0, shift=(0.0, 0.0), flip=False, size=8):
    return transform_matrices(np.array([rotation]), np.array([zoom]), np.array([shift]), np.array([flip]), size)


@given(
    st.floats(-180, 180), st.floats(0.5, 2), st.floats(-20, 20), st.floats(-20, 20), st.booleans(), st.integers(1, 300)
)
def test_inverse_takes_points_back(rotation, zoom, x, y, flip, size):
    matrices = _matrix(rotation, zoom, (x, y), flip, size)
    points = np.array([[[0.0, 0.0], [3.0, 70.0], [-5.0, 12.0]]])
    back = transform_points(transform_points(points, matrices), invert(matrices))
    np.testing.assert_allclose(back, points, atol=1e-8)


def test_the_centre_stays_under_rotation_and_zoom():
    np.testing.assert_allclose(transform_points(np.array([[[3.5, 3.5]]]), _matrix(33, 1.2)), [[[3.5, 3.5]]])


def test_a_quarter_turn_is_counter_clockwise():
    image = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    out = np.empty_like(image)
    transform_image(image, invert(_matrix(90))[0], out)
    np.testing.assert_array_equal(out, np.rot90(image))


def test_mirroring_is_exact_and_comes_after_the_shift():
    image = np.random.default_rng(0).integers(0, 256, (8, 8)).astype(np.uint8)
    out = np.empty_like(image)
    transform_image(image, invert(_matrix(shift=(2, 0), flip=True))[0], out)
    # Shifted to the right with the edge going on, then mirrored.
    expected = np.concatenate([image[:, :1], image[:, :1], image[:, :-2]], axis=1)[:, ::-1]
    np.testing.assert_array_equal(out, expected)


def test_points_follow_the_image():
    image = np.zeros((65, 65), dtype=np.uint8)
    image[20, 45] = 255
    matrices = _matrix(10, 1.05, (2.5, -3), True, 65)
    out = np.empty_like(image)
    transform_image(image, invert(matrices)[0], out)
    y, x = np.unravel_index(out.argmax(), out.shape)
    np.testing.assert_allclose(transform_points(np.array([[[45.0, 20.0]]]), matrices)[0, 0], [x, y], atol=0.8)
