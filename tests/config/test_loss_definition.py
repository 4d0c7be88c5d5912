"""When losses may be compared."""

from __future__ import annotations

import pytest

from ostinato.config import (
    FaceOptions,
    LossOptions,
    MaskOptions,
    NetworkOptions,
    OptimizerOptions,
    SwapOptions,
    loss_definition,
)

PLAIN = LossOptions(penalized_mask_loss=False)


def test_it_is_sixteen_hexadecimal_digits_and_stays_the_same() -> None:
    # Stored with runs: a change of these digits would judge every run's best state anew.
    assert loss_definition(SwapOptions()) == "45de46bd93bf29b6"


@pytest.mark.parametrize(
    "options",
    [
        SwapOptions(loss=LossOptions(loss_function="mae")),
        SwapOptions(loss=LossOptions(loss_function_2="mae")),
        SwapOptions(loss=LossOptions(loss_weight_2=50)),
        SwapOptions(loss=LossOptions(loss_function_3="mae", loss_weight_3=10)),
        SwapOptions(loss=LossOptions(loss_function_3="mse", loss_weight_3=10)),
        SwapOptions(loss=LossOptions(eye_multiplier=4)),
        SwapOptions(loss=LossOptions(mouth_multiplier=3)),
        SwapOptions(loss=LossOptions(penalized_mask_loss=False)),
        SwapOptions(mask=MaskOptions(mask_type="components")),
        SwapOptions(mask=MaskOptions(mask_dilation=1.0)),
        SwapOptions(mask=MaskOptions(mask_blur_kernel=5)),
        SwapOptions(mask=MaskOptions(mask_threshold=0)),
        SwapOptions(mask=MaskOptions(learn_mask=True)),
    ],
)
def test_it_differs_when_the_size_of_the_loss_does(options: SwapOptions) -> None:
    assert loss_definition(options) != loss_definition(SwapOptions())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SwapOptions(), SwapOptions(loss=LossOptions(loss_function_3="mae", loss_weight_3=0))),
        (SwapOptions(), SwapOptions(loss=LossOptions(loss_function_4="none", loss_weight_4=50))),
        (SwapOptions(), SwapOptions(loss=LossOptions(loss_weight_2=60, loss_function_3="mse", loss_weight_3=40))),
        (SwapOptions(), SwapOptions(loss=LossOptions(mask_loss_function="mae"))),
        (SwapOptions(), SwapOptions(optimizer=OptimizerOptions(learning_rate=1e-5))),
        (SwapOptions(), SwapOptions(face=FaceOptions(coverage=75.0), network=NetworkOptions(mixed_precision=True))),
        (SwapOptions(loss=PLAIN), SwapOptions(loss=PLAIN, mask=MaskOptions(mask_dilation=1.0))),
        (SwapOptions(loss=PLAIN), SwapOptions(loss=LossOptions(penalized_mask_loss=False, eye_multiplier=9))),
        (
            SwapOptions(loss=LossOptions(loss_function_2="none", loss_function_3="mae", loss_weight_3=20)),
            SwapOptions(loss=LossOptions(loss_function_2="mae", loss_weight_2=20)),
        ),
    ],
)
def test_it_does_not_differ_over_what_has_no_effect(one: SwapOptions, other: SwapOptions) -> None:
    assert loss_definition(one) == loss_definition(other)
