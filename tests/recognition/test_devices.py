from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ostinato.dist import Alone
from ostinato.errors import UsageError
from ostinato.recognition.devices import choose_device, computes_half_precision_fast


def _group(size: int, local_rank: int) -> Any:
    return SimpleNamespace(size=size, rank=local_rank, local_rank=local_rank)


def test_a_machine_without_a_graphics_card_computes_on_its_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device(None, Alone()) == torch.device("cpu")
    assert choose_device("cpu", _group(2, 1)) == torch.device("cpu")


def test_each_rank_takes_the_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)  # as if there were such devices
    assert choose_device(None, _group(4, 3)) == torch.device("cuda", 3)
    assert choose_device("cuda", _group(4, 2)) == torch.device("cuda", 2)
    assert choose_device("cuda:1", Alone()) == torch.device("cuda", 1)
    with pytest.raises(UsageError, match="names one device, and 4 ranks train"):
        choose_device("cuda:1", _group(4, 2))


@pytest.mark.parametrize("asked", ["cuda:99", "abacus", "meta"])
def test_a_device_that_is_not_here_is_refused(asked: str) -> None:
    with pytest.raises(UsageError, match=f"--device {asked} cannot be used"):
        choose_device(asked, Alone())


def test_half_precision_is_taken_to_be_fast_on_graphics_cards() -> None:
    assert computes_half_precision_fast(torch.device("cuda"))
    assert isinstance(computes_half_precision_fast(torch.device("cpu")), bool)
