"""The operations that are compiled: the same bits as in blocks, and one kernel."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ostinato.kvstore.compression import CompressionScheme, quantise, quantise_plainly
from ostinato.kvstore.compression import one_pass as one_pass_module
from ostinato.kvstore.compression.one_pass import quantise_in_one_pass

TWO_BITS, ONE_BIT = CompressionScheme("2bit", 0.1), CompressionScheme("1bit", -0.25)
SCHEMES = [TWO_BITS, ONE_BIT, CompressionScheme("2bit", 0.5), CompressionScheme("1bit", 0.0)]
ODD = [math.inf, -math.inf, math.nan, 0.0, -0.0, 0.1, -0.1, 3e38, -3e38, 1e-45]


@pytest.fixture(autouse=True)
def nothing_known_of_compilers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What one test finds impossible is not so for the next one."""
    monkeypatch.setattr(one_pass_module, "_NOT_COMPILED", set())
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def drawn(size: int, seed: int) -> Tensor:
    """Numbers about the thresholds, some of them odd."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(size, generator=generator) * 0.3
    where = torch.rand(size, generator=generator) < 0.2
    return torch.where(where, torch.tensor(ODD)[torch.randint(len(ODD), (size,), generator=generator)], values)


def bits(tensor: Tensor) -> list[int]:
    return tensor.view(torch.int32).tolist()


def same_as_in_blocks(scheme: CompressionScheme, size: int, *, compiled: bool, offset: int = 0) -> None:
    """Three rounds, each on the residual of the one before."""
    expected, residual = torch.zeros(size), torch.zeros(size)
    for turn in range(3):
        gradient = drawn(size, size + turn)
        kept = gradient.clone()
        packed = torch.full((scheme.packed_bytes(size) + offset,), 7, dtype=torch.uint8)[offset:]
        quantise_in_one_pass(scheme, gradient, residual, packed, compiled=compiled)
        assert bytes(packed.numpy()) == bytes(quantise(scheme, gradient, expected).numpy())
        assert bits(residual) == bits(expected)
        assert bits(gradient) == bits(kept)


@given(scheme=st.sampled_from(SCHEMES), size=st.integers(0, 200), offset=st.sampled_from([0, 4, 1]))
def test_single_operations_give_the_bits_of_the_blocks(scheme: CompressionScheme, size: int, offset: int) -> None:
    same_as_in_blocks(scheme, size, compiled=False, offset=offset)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_unused_elements_of_the_last_word_are_zero(scheme: CompressionScheme) -> None:
    words, _ = quantise_plainly(scheme, [1.0] * 5, [0.0] * 5)
    packed = torch.full((4,), 7, dtype=torch.uint8)
    quantise_in_one_pass(scheme, torch.ones(5), torch.zeros(5), packed)
    assert bytes(packed.numpy()) == words


@pytest.fixture
def cpp_compiler() -> None:
    """A C++ compiler that torch can use; the test is skipped where there is none."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        subprocess.run([get_cpp_compiler(), "--version"], check=True, capture_output=True)
    except (InvalidCxxCompiler, OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"torch finds no C++ compiler here: {error}")


@pytest.mark.usefixtures("cpp_compiler")
@pytest.mark.parametrize("scheme", [TWO_BITS, ONE_BIT], ids=str)
def test_what_is_compiled_gives_the_bits_of_the_blocks(scheme: CompressionScheme) -> None:
    @settings(max_examples=60, deadline=None)
    @given(size=st.integers(0, 3000) | st.sampled_from([31, 32, 63, 64, 96, 1 << 17]))
    def holds(size: int) -> None:
        same_as_in_blocks(scheme, size, compiled=True)

    graphs = torch._dynamo.utils.counters["stats"]
    before = graphs["unique_graphs"]
    holds()
    assert graphs["unique_graphs"] == before + 1  # for all sizes
    same_as_in_blocks(CompressionScheme(scheme.type, 0.3), 500, compiled=True)
    assert not one_pass_module._NOT_COMPILED


class Counted(Exception):
    """Ends a compilation when it is known how many kernels there would be."""


@pytest.mark.parametrize("scheme", [TWO_BITS, ONE_BIT], ids=str)
def test_the_compiler_for_graphics_processors_makes_one_kernel(
    scheme: CompressionScheme, caplog: pytest.LogCaptureFixture
) -> None:
    # Triton's rules of what goes into one kernel do not look at the device, so they can be asked on a CPU. They are
    # asked, and the code that they would lead to is not made: that takes a graphics processor.
    import torch._inductor.config as inductor

    kernels: list[int] = []

    def count(nodes: list[Any]) -> list[Any]:
        kernels.append(len(nodes))
        raise Counted("counted")

    with inductor.patch({"cpu_backend": "triton", "_post_fusion_custom_pass": count, "fx_graph_cache": False}):
        same_as_in_blocks(scheme, 1000, compiled=True)
    assert kernels == [1]
    # What comes after a compilation that failed: one word in the log, and the same results.
    assert [record.levelno for record in caplog.records if record.name == one_pass_module.__name__] == [logging.WARNING]
    assert "single tensor operations" in caplog.text


def test_nothing_is_compiled_on_import_or_on_a_cpu() -> None:
    program = (
        "import sys, torch\n"
        "from ostinato.kvstore.compression import CompressionScheme, quantise\n"
        "from ostinato.kvstore.compression.one_pass import quantise_in_one_pass\n"
        "scheme, packed = CompressionScheme('2bit'), torch.empty(16, dtype=torch.uint8)\n"
        "quantise(scheme, torch.ones(64), torch.zeros(64))\n"
        "quantise_in_one_pass(scheme, torch.ones(64), torch.zeros(64), packed)\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
