"""The head against the plain one, where sizes, margins, sampling and the number of passes in a step are drawn."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_head import plain_loss

from ostinato.recognition.margins import Margin
from ostinato.recognition.partial_fc import PartialFC

MARGINS = st.builds(
    Margin,
    scale=st.sampled_from([1.0, 16.0, 64.0]),
    m1=st.sampled_from([1.0, 0.9, 2.0]),
    m2=st.sampled_from([0.0, 0.3, 1.2]),
    m3=st.sampled_from([0.0, 0.4]),
    interclass_threshold=st.sampled_from([0.0, 0.3]),
    gradient=st.sampled_from(["exact", "straight_through"]),
    wrap=st.sampled_from(["none", "easy", "linear"]),
)
PASS = st.tuples(st.integers(0, 6), st.sampled_from([None, 0.0, 0.3, 1.0]), st.sampled_from([1, 2]))
"""Samples, sampling rate, backward passes."""


@settings(max_examples=40, deadline=None)
@given(
    classes=st.integers(1, 40),
    width=st.integers(2, 9),
    sub_centres=st.integers(1, 3),
    rate=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    margin=MARGINS,
    update=st.sampled_from(["frozen", "dense_lazy"]),
    steps=st.lists(st.lists(PASS, max_size=3), min_size=1, max_size=6),
    seed=st.integers(0, 2**32),
)
def test_sgd_on_the_head_is_sgd_on_the_plain_one(
    classes: int, width: int, sub_centres: int, rate: float, margin: Margin, update: Any, steps: Any, seed: int
) -> None:
    head = PartialFC(
        classes,
        width,
        margin,
        sampling_rate=rate,
        sub_centres=sub_centres,
        update=update,
        weight_decay=0.01,
        seed=seed,
        dtype=torch.float64,
    )
    weight, momentum = head.weight.clone(), torch.zeros_like(head.weight)
    generator = torch.Generator().manual_seed(seed)
    for number, passes in enumerate(steps):
        gradient, moves = torch.zeros_like(weight), torch.full((classes,), update == "dense_lazy")
        for size, rate_here, backward in passes:
            embeddings = torch.randn((size, width), generator=generator, dtype=torch.float64).requires_grad_()
            labels = torch.randint(classes, (size,), generator=generator)
            loss = head(embeddings, labels, sampling_rate=rate_here)
            for _ in range(backward):
                loss.backward(retain_graph=True)
            rows = head._passes[-1].gradient.classes
            rows = torch.arange(classes) if rows is None else rows
            assert set(labels.tolist()) <= set(rows.tolist())
            moves[rows] = True
            if not size:
                assert loss.item() == 0.0
                continue
            plain, table = embeddings.detach().clone().requires_grad_(), weight.clone().requires_grad_()
            expected = plain_loss(plain, table, labels, margin, sub_centres=sub_centres, rows=rows)
            (backward * expected).backward()
            assert table.grad is not None
            torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-7)
            torch.testing.assert_close(embeddings.grad, plain.grad, rtol=1e-5, atol=1e-6)
            gradient += table.grad
        learning_rate = (0.1, 0.02, 0.0)[number % 3]
        head.step(learning_rate, scale=4.0)
        lines = moves.repeat_interleave(sub_centres).unsqueeze(1)
        moved = 0.9 * momentum + gradient / 4.0 + 0.01 * weight
        momentum = torch.where(lines, moved, momentum)
        weight = torch.where(lines, weight - learning_rate * moved, weight)
        if number % 2:
            torch.testing.assert_close(head.weight, weight, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(head.weight, weight, rtol=1e-5, atol=1e-6)
