import numpy as np
import pytest

from ostinato.faces.augmentation.transform import invert, transform_matrices, transform_points
from ostinato.faces.augmentation.warp import enlarge_lattice, lattice_weights, source_lattices, warp_image

STILL = np.eye(3)[None, :2]


@pytest.mark.parametrize("size", [8, 64, 66, 90, 128, 250])
def test_a_lattice_without_noise_is_the_identity_at_any_size(size):
    positions = enlarge_lattice(source_lattices(np.zeros((1, 2, 5, 5)), STILL, size)[0], size)
    line = np.arange(size)
    np.testing.assert_allclose(positions[..., 0], np.broadcast_to(line, (size, size)), atol=1e-4)
    np.testing.assert_allclose(positions[..., 1], np.broadcast_to(line[:, None], (size, size)), atol=1e-4)


@pytest.mark.parametrize("size", [8, 64, 256])
def test_the_quick_way_for_multiples_of_eight_gives_the_same_numbers(size):
    lattice = np.random.default_rng(0).normal(size=(5, 5, 2)).astype(np.float32)
    weights = lattice_weights(size)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    slow = np.einsum("yi,ijc,xj->yxc", weights, lattice, weights)
    np.testing.assert_allclose(enlarge_lattice(lattice, size), slow, atol=1e-5)


def test_transforming_control_points_transforms_the_whole_map():
    size = 64
    noise = np.random.default_rng(0).normal(0, 2, (1, 2, 5, 5))
    inverse = invert(
        transform_matrices(np.array([9.0]), np.array([1.04]), np.array([[2.0, -1.0]]), np.array([True]), size)
    )
    composed = enlarge_lattice(source_lattices(noise, inverse, size)[0], size)
    plain = enlarge_lattice(source_lattices(noise, STILL, size)[0], size)
    expected = transform_points(plain.reshape(1, -1, 2).astype(float), inverse).reshape(size, size, 2)
    np.testing.assert_allclose(composed, expected, atol=1e-4)


def test_beyond_the_border_the_edge_goes_on():
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)
    positions = np.stack(np.meshgrid(np.arange(16.0) - 5, np.arange(16.0)), axis=-1).astype(np.float32)
    out = np.empty_like(image)
    warp_image(image, positions, out)
    np.testing.assert_array_equal(out[:, 5:], image[:, :-5])
    np.testing.assert_array_equal(out[:, :5], np.repeat(image[:, :1], 5, axis=1))
