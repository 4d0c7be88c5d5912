from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ostinato.errors import ArgumentValueError
from ostinato.swap.models import SwapModel
from ostinato.swap.models.blocks import Blocks
from ostinato.swap.models.initializers import initialize
from ostinato.swap.models.sub_model import SubModel


def small_model(
    sides: tuple[str, ...] = ("a", "b"), *, learn_mask: bool = False, color_order: str = "rgb"
) -> SwapModel:
    """A model of the same kind, 16 pixels wide and a few thousand numbers large."""
    blocks = Blocks()
    encoder = [*blocks.halvings((3, 8, 16)), *blocks.flatten(), *blocks.dense(4 * 4 * 16, 8)]
    encoder += [*blocks.dense(8, 4 * 4 * 16), *blocks.reshape(16, 4), *blocks.upscale(16, 8)]
    decoders = {}
    for side in sides:
        branches = [[*blocks.upscale(8, 4), *blocks.output(4, 3, f"face_out_{side}")]]
        if learn_mask:
            branches.append([*blocks.upscale(8, 4), *blocks.output(4, 1, f"mask_out_{side}")])
        decoders[side] = SubModel(branches)
    model = SwapModel(
        "small",
        SubModel([encoder]),
        decoders,
        input_size=16,
        output_sizes=(16,),
        learn_mask=learn_mask,
        color_order=color_order,
    )
    initialize(model, torch.Generator().manual_seed(0))
    return model


def test_every_side_is_redrawn_by_its_own_decoder() -> None:
    model = small_model(("a", "b", "c"))
    faces = torch.rand(3, 2, 3, 16, 16)
    together = model(faces)
    assert len(together) == 3
    for index, side in enumerate(model.sides):
        (alone,) = model.decode(model.encode(faces[index]), side)
        torch.testing.assert_close(together[index][0], alone)
    assert not torch.allclose(together[0][0], model.decode(model.encode(faces[0]), "b")[0])


def test_the_encoder_is_called_once_for_all_sides() -> None:
    model = small_model()
    shapes: list[tuple[int, ...]] = []
    model.encoder.register_forward_hook(lambda _, inputs, __: shapes.append(tuple(inputs[0].shape)))
    model(torch.rand(2, 5, 3, 16, 16))
    assert shapes == [(10, 3, 16, 16)]


def test_a_learned_mask_is_the_last_output() -> None:
    model = small_model(learn_mask=True)
    for outputs in model(torch.rand(2, 2, 3, 16, 16)):
        assert [tuple(output.shape) for output in outputs] == [(2, 3, 16, 16), (2, 1, 16, 16)]


def test_the_colour_order_is_turned_at_the_edges_and_not_of_the_mask() -> None:
    rgb, bgr = small_model(learn_mask=True), small_model(learn_mask=True, color_order="bgr")
    bgr.load_state_dict(rgb.state_dict())
    faces = torch.rand(2, 2, 3, 16, 16)
    for ours, theirs in zip(rgb(faces), bgr(faces.flip(2)), strict=True):
        torch.testing.assert_close(ours[0], theirs[0].flip(1))
        torch.testing.assert_close(ours[1], theirs[1])


@pytest.mark.parametrize("color_order", ["rgb", "bgr"])
def test_the_inference_model_shows_the_other_side(color_order: str) -> None:
    model = small_model(learn_mask=True, color_order=color_order)
    face = torch.rand(2, 3, 16, 16)
    inference = model.inference_model("b")
    expected = model.decode(model.encode(face), "b")
    outputs = inference(face)
    assert len(outputs) == 2
    for output, wanted in zip(outputs, expected, strict=True):
        assert torch.equal(output, wanted)
        assert not output.requires_grad
    assert (inference.name, inference.side, inference.input_size) == ("small_inference", "b", 16)
    assert inference.output_sizes == (16,)
    assert inference.learn_mask
    assert not any("decoder_a" in name for name in inference.state_dict())


def gradients(model: SwapModel, faces: Tensor) -> list[Tensor]:
    sum(output.square().mean() for outputs in model(faces) for output in outputs).backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_both_memory_formats_compute_the_same() -> None:
    contiguous, last = small_model(), small_model().to(memory_format=torch.channels_last)
    faces = torch.rand(2, 4, 16, 16, 3).permute(0, 1, 4, 2, 3)
    for one, other in zip(gradients(contiguous, faces), gradients(last, faces), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_gradients_have_the_layout_of_their_weights() -> None:
    model = small_model()
    gradients(model, torch.rand(2, 4, 16, 16, 3).permute(0, 1, 4, 2, 3))
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.stride() == parameter.stride()


def test_autocast_gives_float32_faces_close_to_the_exact_ones() -> None:
    model = small_model()
    faces = torch.rand(2, 2, 3, 16, 16)
    exact = model(faces)[0][0]
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(faces)[0][0]
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=0, atol=0.03)


def test_a_wrong_number_of_sides_is_refused() -> None:
    with pytest.raises(ArgumentValueError, match="2 sides"):
        small_model()(torch.rand(3, 2, 3, 16, 16))


def test_an_unknown_side_is_refused() -> None:
    with pytest.raises(ArgumentValueError, match="no side 'c'"):
        small_model().inference_model("c")


def test_an_unknown_colour_order_is_refused() -> None:
    with pytest.raises(ArgumentValueError, match="rgb, bgr"):
        small_model(color_order="gbr")
