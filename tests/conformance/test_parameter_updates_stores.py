"""Gradient compression, placement of keys and store interleavings against the golden numbers, where those are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ostinato.kvstore.compression import CompressionScheme, add_decoded, decode, quantise, quantise_plainly


def read(golden: Path, name: str) -> Any:
    return json.loads((golden / "parameter-updates" / name).read_text())


def floats(values: list[Any]) -> torch.Tensor:
    return torch.tensor([float(value) for value in values])


def test_words_residuals_and_decoded_values_are_identical(golden: Path) -> None:
    cases = read(golden, "gradient_compression.json")["cases"]
    assert len(cases) > 40
    for case in cases:
        scheme = CompressionScheme(case["type"], case["threshold"])
        assert scheme.words(case["length"]) == case["words"]
        residual = torch.zeros(case["length"])
        for row in case["rounds"]:
            assert torch.equal(residual, floats(row["residual_before"]))
            gradient = floats(row["gradient"])
            words, plain = quantise_plainly(scheme, gradient.tolist(), residual.tolist())
            packed = quantise(scheme, gradient, residual)
            assert bytes(packed.numpy()) == words == bytes.fromhex(row["bytes"])
            assert packed.numpy().view(np.dtype("<u4")).tolist() == row["words_le_u32"]
            assert torch.equal(decode(scheme, packed, case["length"]), floats(row["dequantised"]))
            assert torch.equal(residual, floats(row["residual_after"]))
            assert plain == residual.tolist()


def test_the_sum_over_replicas(golden: Path) -> None:
    for case in read(golden, "gradient_compression.json")["replica_reduction"]:
        scheme = CompressionScheme(case["type"], case["threshold"])
        residuals = torch.zeros(case["replicas"], case["length"])
        for row in case["rounds"]:
            total = torch.zeros(case["length"])
            for residual, gradient in zip(residuals, row["gradients"], strict=True):
                add_decoded(scheme, quantise(scheme, floats(gradient), residual), total)
            assert torch.equal(total, floats(row["sum_of_dequantised"]))
            assert torch.equal(residuals, torch.stack([floats(row) for row in row["residuals_after"]]))


def test_what_is_not_finite_is_sent_alike_and_then_forgotten(golden: Path) -> None:
    for case in read(golden, "gradient_compression.json")["non_finite"]:
        scheme, residual = CompressionScheme(case["type"], case["threshold"]), torch.zeros(4)
        packed = quantise(scheme, floats(case["gradient"]), residual)
        assert packed.numpy().view(np.dtype("<u4")).tolist() == case["words_le_u32"]
        assert torch.equal(decode(scheme, packed, 4), floats(case["dequantised"]))
        assert residual[0] == 0  # the golden residual keeps the NaN or infinity for good, which is a fault
        assert torch.equal(residual[1:], floats(case["residual_rest"]))
