from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ostinato.errors import UsageError
from ostinato.swap.devices import choose_device, computes_half_precision_fast


def test_a_device_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(UsageError, match=r"--device cuda:99 cannot be used: .* Here are: cpu"):
        choose_device("cuda:99")
    with pytest.raises(
        UsageError, match=r"--device gpu cannot be used: there is no such kind of device\. Here are: cpu"
    ):
        choose_device("gpu")
    with pytest.raises(UsageError, match="--device meta cannot be used: models are not trained on meta"):
        choose_device("meta")
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(("flags", "fast"), [("fpu avx2 fma", False), ("avx2 avx512_bf16", True), ("amx_bf16", True)])
def test_half_precision_is_fast_where_the_processor_has_instructions_for_it(monkeypatch, flags, fast):
    monkeypatch.setattr(Path, "read_text", lambda self, **kind: f"flags : {flags}\n")
    assert computes_half_precision_fast(torch.device("cpu")) is fast


def test_where_nothing_is_known_of_the_processor_half_precision_counts_as_slow(monkeypatch):
    def refuse(self, **kind):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert computes_half_precision_fast(torch.device("cpu")) is False
    assert computes_half_precision_fast(torch.device("cuda")) is True
