from __future__ import annotations

import pytest
import torch

from ostinato.errors import OutOfMemoryError
from ostinato.swap.memory import memory_advice


def test_the_cpu_allocators_own_error_becomes_advice():
    with (
        pytest.raises(OutOfMemoryError, match=r"-b 8 instead of -b 16") as caught,
        memory_advice("original", 16, False),
    ):
        torch.empty(1 << 60, dtype=torch.uint8)
    assert "lowmem" in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_what_is_already_done_is_not_advised():
    with pytest.raises(OutOfMemoryError) as caught, memory_advice("lightweight", 1, True):
        raise MemoryError
    text = str(caught.value)
    assert "smaller batch" not in text
    assert "half precision" not in text
    assert "-t lightweight" not in text


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="shape mismatch"), memory_advice("original", 16, False):
        raise RuntimeError("shape mismatch")
