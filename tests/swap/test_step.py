from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ostinato.config import LossOptions
from ostinato.swap.losses import SwapLoss
from ostinato.swap.models import SwapModel
from ostinato.swap.models.blocks import Blocks
from ostinato.swap.models.initializers import initialize
from ostinato.swap.models.sub_model import SubModel
from ostinato.swap.step import training_step

SIDES = ("a", "b", "c")


def small_model() -> SwapModel:
    blocks = Blocks()
    encoder = SubModel([[*blocks.halvings((3, 8)), *blocks.upscale(8, 8)]])
    decoders = {side: SubModel([blocks.output(8, 3, f"face_out_{side}")]) for side in SIDES}
    model = SwapModel("small", encoder, decoders, input_size=16, output_sizes=(16,))
    initialize(model, torch.Generator().manual_seed(0))
    return model


def draw(channels: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (3, 2, 16, 16, channels), dtype=torch.uint8, generator=generator)


INPUTS, TARGETS = draw(3, 1), [draw(3, 2)]
MASKS = {name: [draw(1, seed)] for name, seed in (("face", 3), ("eye", 4), ("mouth", 5))}


def gradients(model: SwapModel) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def test_it_equals_every_side_computed_by_itself() -> None:
    model, alone = small_model(), small_model()
    loss = SwapLoss(LossOptions(), False, (16,))

    losses = training_step(model, loss, INPUTS, TARGETS, MASKS)

    def floats(images: Tensor) -> Tensor:
        return images.permute(0, 3, 1, 2).float() / 255

    total = torch.zeros(())
    for index, side in enumerate(SIDES):
        predictions = alone.decode(alone.encode(floats(INPUTS[index])), side)
        masks = {name: [floats(sizes[0][index])] for name, sizes in MASKS.items()}
        expected = loss(predictions, [floats(TARGETS[0][index])], masks)
        torch.testing.assert_close(losses.sides[side].total, expected.total.detach())
        assert losses.sides[side].weighted[0].keys() == {"ssim", "mse"}
        total = total + expected.total
    total.backward()
    torch.testing.assert_close(losses.total, total.detach())
    for one, other in zip(gradients(model), gradients(alone), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)


def test_two_halves_of_an_update_add_up_to_their_mean() -> None:
    whole, halves = small_model(), small_model()
    loss = SwapLoss(LossOptions(), False, (16,))
    once = training_step(whole, loss, INPUTS, TARGETS, MASKS)
    for _ in range(2):
        half = training_step(halves, loss, INPUTS, TARGETS, MASKS, scale=0.5)
    assert torch.equal(once.total, half.total)
    for one, other in zip(gradients(whole), gradients(halves), strict=True):
        torch.testing.assert_close(one, other)


def test_losses_hold_no_graph() -> None:
    losses = training_step(small_model(), SwapLoss(LossOptions(), False, (16,)), INPUTS, TARGETS, MASKS)
    assert not losses.total.requires_grad
    assert not any(side.total.requires_grad for side in losses.sides.values())


def test_bfloat16_is_close_to_float32() -> None:
    model = small_model()
    loss = SwapLoss(LossOptions(), False, (16,))
    exact = training_step(model, loss, INPUTS, TARGETS, MASKS)
    rough = training_step(model, loss, INPUTS, TARGETS, MASKS, precision=torch.bfloat16)
    assert rough.total.dtype == torch.float32
    assert rough.total.item() == pytest.approx(exact.total.item(), rel=0.02)


def test_the_same_batch_gives_the_same_gradients_bit_for_bit() -> None:
    one, other = small_model(), small_model()
    loss = SwapLoss(LossOptions(), False, (16,))
    for model in (one, other):
        training_step(model, loss, INPUTS, TARGETS, MASKS)
    for a, b in zip(gradients(one), gradients(other), strict=True):
        assert torch.equal(a, b)
