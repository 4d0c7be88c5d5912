from __future__ import annotations

import pytest
import torch
from recognition_stand_ins import recognition_options

from ostinato.dist import Alone
from ostinato.errors import OutOfMemoryError
from ostinato.recognition.memory import memory_advice


def _advice(*overrides: str, classes: int = 100_000) -> str:
    with (
        pytest.raises(OutOfMemoryError) as caught,
        memory_advice(recognition_options(*overrides), classes, Alone()),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
    return str(caught.value)


def test_remedies_come_cheapest_first_and_name_the_very_options() -> None:
    text = _advice("batch_size=256", "backbone=r100")
    assert "an update of r100 with 256 images and 100,000 classes" in text
    wanted = ("close other programs", "-b 128", "mixed_precision=bf16", "checkpointing=true", "sampling_rate=0.1")
    places = [text.index(word) for word in wanted]
    assert places == sorted(places)


def test_what_is_switched_on_already_is_not_advised() -> None:
    text = _advice(
        "batch_size=2", "mixed_precision=fp16", "checkpointing=true", "head.sampling_rate=0.1", classes=1_000_000
    )
    for word in ("mixed_precision", "checkpointing", "sampling_rate", "-b "):
        assert word not in text
    assert "sampling_rate" not in _advice(classes=50)


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="shapes"), memory_advice(recognition_options(), 10, Alone()):
        raise RuntimeError("shapes do not fit")
