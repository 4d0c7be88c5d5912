from __future__ import annotations

import random

import numpy as np
import torch

from ostinato.loop import capture_random_state, restore_random_state


def draw() -> list[float]:
    return [
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        float(torch.rand(())),
        float(torch.randn(())),
    ]


def test_the_same_numbers_come_again_even_if_some_were_drawn_while_saving() -> None:
    draw()
    state = capture_random_state()
    expected = [draw() for _ in range(3)]
    restore_random_state(state)
    assert [draw() for _ in range(3)] == expected
