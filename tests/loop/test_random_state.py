from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from ostinato.loop import capture_random_state, restore_random_state, seed_random_state


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


def test_a_state_of_an_earlier_version_is_read_too() -> None:
    version, internal, gauss = random.getstate()
    state = {**capture_random_state(), "python": [version, list(internal), gauss]}
    expected = draw()
    restore_random_state(state)
    assert draw() == expected


def test_a_seed_decides_the_numbers_of_all_generators() -> None:
    seed_random_state(3)
    expected = draw()
    draw()
    seed_random_state(3)
    assert draw() == expected
    seed_random_state(4)
    assert all(a != b for a, b in zip(draw(), expected, strict=True))


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, True, "3"])
def test_what_cannot_be_a_seed_is_refused(seed: object) -> None:
    with pytest.raises(ValueError, match=r"from 0 to 2\*\*32 - 1"):
        seed_random_state(seed)  # type: ignore[arg-type]


def test_the_generator_of_apples_device_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [torch.tensor([1, 2], dtype=torch.uint8)]
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: states[-1])
    monkeypatch.setattr(torch.mps, "set_rng_state", states.append)
    saved = capture_random_state()
    assert saved["mps"][0].tolist() == [1, 2]
    restore_random_state(saved)
    assert len(states) == 2
    restore_random_state({name: state for name, state in saved.items() if name != "mps"})  # of an earlier version
    assert len(states) == 2
