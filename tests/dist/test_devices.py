from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ostinato.dist.devices import choose_device, computes_half_precision_fast
from ostinato.errors import UsageError


def _group(size: int, local_rank: int) -> Any:
    return SimpleNamespace(size=size, rank=local_rank, local_rank=local_rank)


def test_a_device_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"--device cuda:99 cannot be used: .* Here are: cpu"):
        choose_device("cuda:99")
    with pytest.raises(
        UsageError, match=r"--device gpu cannot be used: there is no such kind of device\. Here are: cpu"
    ):
        choose_device("gpu")
    with pytest.raises(UsageError, match="--device meta cannot be used: models are not trained on meta"):
        choose_device("meta", _group(2, 1))
    assert choose_device("cpu") == torch.device("cpu")


def test_a_machine_without_a_graphics_card_computes_on_its_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device(None) == torch.device("cpu")
    assert choose_device("cpu", _group(2, 1)) == torch.device("cpu")


def test_each_rank_takes_the_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)  # as if there were such devices
    assert choose_device(None, _group(4, 3)) == torch.device("cuda", 3)
    assert choose_device("cuda", _group(4, 2)) == torch.device("cuda", 2)
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(UsageError, match="names one device, and 4 ranks train"):
        choose_device("cuda:1", _group(4, 2))


@pytest.mark.parametrize(("flags", "fast"), [("fpu avx2 fma", False), ("avx2 avx512_bf16", True), ("amx_bf16", True)])
def test_half_precision_is_fast_where_the_processor_has_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch, flags: str, fast: bool
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self, **kind: f"flags : {flags}\n")
    assert computes_half_precision_fast(torch.device("cpu")) is fast


def test_where_nothing_is_known_of_the_processor_half_precision_counts_as_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: Path, **kind: Any) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert computes_half_precision_fast(torch.device("cpu")) is False
    assert computes_half_precision_fast(torch.device("cuda")) is True
