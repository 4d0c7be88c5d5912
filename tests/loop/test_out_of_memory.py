from __future__ import annotations

import pytest
import torch

from ostinato.loop.out_of_memory import is_out_of_memory


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), True),
        (RuntimeError("not enough memory: you tried to allocate 9 bytes"), True),
        (RuntimeError("shapes do not fit"), False),
        (ValueError("not enough memory"), False),
    ],
)
def test_what_counts_as_memory_that_ran_out(error: BaseException, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
