from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore.compression import (
    CompressionScheme,
    add_decoded,
    decode,
    decode_plainly,
    is_finite,
    quantise,
    quantise_plainly,
)
from ostinato.kvstore.compression import quantising as quantising_module
from ostinato.kvstore.compression.one_pass import quantise_in_one_pass

SCHEMES = [
    CompressionScheme("2bit", 0.5),
    CompressionScheme("2bit", 0.1),
    CompressionScheme("1bit", 0.5),
    CompressionScheme("1bit", 0.0),
    CompressionScheme("1bit", -0.25),
]


@given(
    scheme=st.sampled_from(SCHEMES),
    rounds=st.integers(0, 70).flatmap(
        lambda n: st.lists(
            st.lists(st.floats(-2, 2, width=32) | st.sampled_from([0.5, -0.5, 0.0]), min_size=n, max_size=n),
            min_size=1,
            max_size=3,
        )
    ),
)
def test_fast_and_plain_agree_to_the_last_bit_over_rounds(scheme: CompressionScheme, rounds: list[list[float]]) -> None:
    n = len(rounds[0])
    fast, one_pass, plain = torch.zeros(n), torch.zeros(n), [0.0] * n
    for gradient in rounds:
        words, plain = quantise_plainly(scheme, gradient, plain)
        packed = quantise(scheme, torch.tensor(gradient), fast)
        assert bytes(packed.numpy()) == words
        assert fast.tolist() == plain
        again = torch.full((len(words),), 7, dtype=torch.uint8)
        quantise_in_one_pass(scheme, torch.tensor(gradient), one_pass, again)
        assert bytes(again.numpy()) == words
        assert one_pass.tolist() == plain
        assert decode(scheme, packed, n).tolist() == decode_plainly(scheme, words, n)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("excess", [-17, -1, 0, 1, 16, 31])
def test_lengths_around_a_block_agree_with_the_plain_version(
    scheme: CompressionScheme, excess: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantising_module, "_BLOCK", 256)
    n = 3 * 256 + excess
    gradient = torch.randn(n, generator=torch.Generator().manual_seed(1))
    residual = torch.zeros(n)
    words, after = quantise_plainly(scheme, gradient.tolist(), residual.tolist())
    assert bytes(quantise(scheme, gradient, residual).numpy()) == words
    assert residual.tolist() == after


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("excess", [0, 5])
def test_large_arrays_lose_nothing(scheme: CompressionScheme, excess: int) -> None:
    n = (1 << 18) + excess  # several blocks of quantising and of decoding
    gradient = torch.randn(n, generator=torch.Generator().manual_seed(2))
    residual = torch.zeros(n)
    kept = gradient.clone()
    packed = quantise(scheme, gradient, residual)
    assert torch.equal(gradient, kept)
    torch.testing.assert_close(decode(scheme, packed, n) + residual, gradient, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_does_not_stay_in_the_residual(scheme: CompressionScheme, wrong: float) -> None:
    gradient = torch.tensor([wrong, 0.6, -0.6, 0.1])
    for run in (quantise, lambda s, g, r: quantise_in_one_pass(s, g, r, torch.empty(4, dtype=torch.uint8))):
        residual = torch.zeros(4)
        run(scheme, gradient, residual)
        assert residual[0] == 0
        clean = torch.zeros(4)
        run(scheme, torch.tensor([0, 0.6, -0.6, 0.1]), clean)
        assert torch.equal(residual[1:], clean[1:])
    assert not is_finite(gradient)
    assert is_finite(torch.tensor([3e38, 3e38]))  # whose sum of squares is not finite


def test_decoding_adds_to_what_is_there_and_passes_over_the_unused_code() -> None:
    scheme = CompressionScheme("2bit", 0.5)
    packed = torch.tensor([0b11_10_01_00, 0, 0, 0], dtype=torch.uint8)
    assert add_decoded(scheme, packed, torch.ones(4)).tolist() == [1.5, 0.5, 1, 1]


def test_every_rank_compares_with_the_same_threshold() -> None:
    assert CompressionScheme("2bit", 0.1).threshold == float(np.float32(0.1))
    assert CompressionScheme("2bit", 1e-7).threshold == float(np.float32(1e-7))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"type": "3bit"},
        {"type": "2bit", "threshold": 0},
        {"type": "2bit", "threshold": -1.0},
        {"type": "2bit", "threshold": math.nan},
        {"type": "1bit", "threshold": math.inf},
        {"type": "2bit", "threshold": 1e-60},
    ],
    ids=str,
)
def test_parameters_that_cannot_work_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ArgumentValueError):
        CompressionScheme.from_params(params)


def test_unknown_parameters_are_passed_over_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    assert CompressionScheme.from_params({"type": "1bit", "treshold": 3}) == CompressionScheme("1bit", 0.5)
    assert "treshold" in caplog.text


def test_only_float32_is_compressed() -> None:
    with pytest.raises(ArgumentTypeError, match="float16"):
        quantise(CompressionScheme("2bit"), torch.zeros(3, dtype=torch.float16), torch.zeros(3))


def test_sizes_that_do_not_fit_are_refused() -> None:
    scheme = CompressionScheme("2bit")
    with pytest.raises(ArgumentValueError, match="flat"):
        quantise(scheme, torch.zeros(3), torch.zeros(4))
    with pytest.raises(ArgumentValueError, match="room"):
        quantise(scheme, torch.zeros(3), torch.zeros(3), torch.zeros(8, dtype=torch.uint8))
    with pytest.raises(ArgumentValueError, match="bytes"):
        decode(scheme, torch.zeros(8, dtype=torch.uint8), 3)


def test_sixteen_or_thirty_two_elements_share_a_word() -> None:
    assert [CompressionScheme("2bit").packed_bytes(n) for n in (0, 1, 16, 17)] == [0, 4, 4, 8]
    assert [CompressionScheme("1bit").packed_bytes(n) for n in (0, 1, 32, 33)] == [0, 4, 4, 8]
