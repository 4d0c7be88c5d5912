from __future__ import annotations

import pytest

from ostinato.swap.loss_names import explain_loss_names

_SMALL, _LARGE = "output 64 x 64 pixels, loss function", "output 128 x 128 pixels, loss function"


@pytest.mark.parametrize(
    ("names", "sizes", "sentence"),
    [
        (["loss/b", "loss/b/ssim", "loss/b/mse"], (64,), f"Side b: {_SMALL}s ssim, mse."),
        (["loss/a/ssim", "loss/b/mse"], (64,), f"Side a: {_SMALL} ssim; side b: {_SMALL} mse."),
        (
            ["loss/b", "loss/b/64/ssim", "loss/b/128/ssim", "loss/b/128/ffl"],
            (64, 128),
            f"Side b: {_SMALL} ssim; side b: {_LARGE}s ssim, ffl.",
        ),
        (["loss/b", "loss/b/mask"], (64,), "Side b: learned mask."),
        (["loss/c"], (64,), "Side c."),
        (["loss/total"], (64,), "It is the sum over the sides, each of which is finite."),
    ],
)
def test_names_become_side_output_and_loss_function(names: list[str], sizes: tuple[int, ...], sentence: str) -> None:
    assert explain_loss_names(names, sizes) == sentence
