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


@pytest.mark.parametrize("result", [None, 3.0, [torch.zeros(())], {}])
def test_anything_else_is_refused_with_whose_it_was_and_what_to_do(result: Any) -> None:
    with pytest.raises(TypeError, match=rf"The model returned {type(result).__name__}, not a loss\. Do this\."):
        named_losses(result, "The model", advice="Do this.")
