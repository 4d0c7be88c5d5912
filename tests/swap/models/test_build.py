from __future__ import annotations

import pytest
import torch

from ostinato.config import InitializationOptions, ModelOptions, NetworkOptions
from ostinato.errors import ArgumentValueError
from ostinato.swap.models import SwapModel, build_model


def build(name: str = "lightweight", *, lowmem: bool = False, learn_mask: bool = False, **arguments) -> SwapModel:  # type: ignore[no-untyped-def]
    return build_model(
        name,
        model=ModelOptions(name=name, lowmem=lowmem),  # type: ignore[arg-type]
        initialization=InitializationOptions(),
        network=NetworkOptions(),
        learn_mask=learn_mask,
        seed=arguments.pop("seed", 1),
        **arguments,
    )


@pytest.mark.parametrize(
    ("name", "lowmem", "learn_mask", "count"),
    [
        ("original", False, False, 82_062_470),
        ("original", False, True, 94_455_560),
        ("original", True, False, 60_565_126),
        ("lightweight", False, False, 51_066_374),
        ("lightweight", False, True, 72_313_608),
    ],
)
def test_parameter_counts(name: str, lowmem: bool, learn_mask: bool, count: int) -> None:
    model = build(name, lowmem=lowmem, learn_mask=learn_mask)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert model.name == name
    assert (model.input_size, model.output_sizes, model.color_order) == (64, (64,), "rgb")


def test_layers_carry_the_names_of_faceswap_through_all_sides() -> None:
    assert build(sides=("a", "b", "c")).keras_layer_names() == [
        "encoder/conv_128_0_conv2d",
        "encoder/conv_256_0_conv2d",
        "encoder/conv_512_0_conv2d",
        "encoder/dense",
        "encoder/dense_1",
        "encoder/upscale_256_0_conv2d_conv2d",
        "decoder_a/upscale_512_0_conv2d_conv2d",
        "decoder_a/upscale_256_1_conv2d_conv2d",
        "decoder_a/upscale_128_0_conv2d_conv2d",
        "decoder_a/face_out_a_0_conv2d",
        "decoder_b/upscale_512_1_conv2d_conv2d",
        "decoder_b/upscale_256_2_conv2d_conv2d",
        "decoder_b/upscale_128_1_conv2d_conv2d",
        "decoder_b/face_out_b_0_conv2d",
        "decoder_c/upscale_512_2_conv2d_conv2d",
        "decoder_c/upscale_256_3_conv2d_conv2d",
        "decoder_c/upscale_128_2_conv2d_conv2d",
        "decoder_c/face_out_c_0_conv2d",
    ]


def test_one_seed_is_one_model_and_another_seed_another() -> None:
    one, same, other = (build(seed=seed) for seed in (3, 3, 4))
    name = "decoder_b.face_out_b_0_conv2d.weight"
    assert torch.equal(one.state_dict()[name], same.state_dict()[name])
    assert not torch.equal(one.state_dict()[name], other.state_dict()[name])


def test_a_single_side_can_be_trained() -> None:
    model = build(sides=("only",))
    (outputs,) = model(torch.rand(1, 1, 3, 64, 64))
    assert outputs[0].shape == (1, 3, 64, 64)
    outputs[0].mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("sides", [(), ("a", "a"), ("a.b",), ("",), ("a/b",)])
def test_unusable_sides_are_refused(sides: tuple[str, ...]) -> None:
    with pytest.raises(ArgumentValueError):
        build(sides=sides)


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(ArgumentValueError, match="lightweight, original"):
        build_model(
            "dfaker",
            model=ModelOptions(),
            initialization=InitializationOptions(),
            network=NetworkOptions(),
            learn_mask=False,
            seed=1,
        )
