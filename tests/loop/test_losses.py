from __future__ import annotations

from typing import Any

import pytest
import torch

from ostinato.loop.losses import named_losses


def test_a_tensor_is_main_and_a_mapping_has_main_or_their_sum() -> None:
    one, two = torch.tensor(1.0), torch.tensor(2.0)
    assert named_losses(one, "It", advice="") == {"main": one}
    assert named_losses({"a": one, "main": two}, "It", advice="") == {"a": one, "main": two}
    assert {name: float(loss) for name, loss in named_losses({"a": one, "b": two}, "It", advice="").items()} == {
        "a": 1.0,
        "b": 2.0,
        "main": 3.0,
    }


def test_a_number_may_stand_beside_main_and_a_loss_may_have_dimensions_of_one() -> None:
    main = torch.tensor([[2.0]])
    assert named_losses({"main": main, "accuracy": 0.5}, "It", advice="") == {"main": main, "accuracy": 0.5}
    assert float(named_losses({"a": main, "b": torch.tensor(1.0)}, "It", advice="")["main"]) == 3.0


@pytest.mark.parametrize("result", [torch.zeros(4, 10), {"main": torch.zeros(4, 10)}, {"a": torch.zeros(4, 10)}])
def test_what_is_no_single_number_is_refused_with_its_shape(result: Any) -> None:
    with pytest.raises(ValueError, match=r"The model returned.* a tensor of shape \(4, 10\), and a loss is one number"):
        named_losses(result, "The model", advice="Do this.")


def test_a_number_that_would_have_to_be_back_propagated_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"The model returned 0\.5 as 'accuracy', which is no tensor"):
        named_losses({"loss": torch.zeros(()), "accuracy": 0.5}, "The model", advice="Do this.")


@pytest.mark.parametrize("result", [None, 3.0, [torch.zeros(())], {}])
def test_anything_else_is_refused_with_whose_it_was_and_what_to_do(result: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"The model returned (an empty )?{type(result).__name__}, not a loss\. Do this\."
    ):
        named_losses(result, "The model", advice="Do this.")
