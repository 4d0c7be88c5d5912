"""What the plan says, against what the head allocates and sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import run_on_ranks

from ostinato.errors import ArgumentValueError
from ostinato.recognition.margins import cosface
from ostinato.recognition.partial_fc import PartialFC
from ostinato.recognition.planning import HeadPlan


def _pass(head: PartialFC, batch_size: int, classes: int) -> None:
    labels = torch.arange(batch_size) * 7 % classes
    embeddings = torch.randn(batch_size, head.embedding_size, requires_grad=True)
    head(embeddings, labels).backward()


@pytest.mark.parametrize(("optimizer", "update"), [("sgd", "frozen"), ("sgd", "dense_lazy"), ("adamw", "frozen")])
def test_the_centres_are_as_large_as_planned(optimizer: Any, update: Any) -> None:
    head = PartialFC(1000, 48, cosface(), optimizer=optimizer, update=update)
    plan = HeadPlan(1000, 48, 8, optimizer=optimizer, counts_steps=update == "dense_lazy")
    held = [head.centres.weight, *head.centres.tables.values()]
    held += [] if head.centres.class_steps is None else [head.centres.class_steps]
    assert plan.centres == sum(tensor.nbytes for tensor in held)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.55, 1.0])
def test_a_step_holds_one_table_of_the_classes_that_take_part(rate: float) -> None:
    head = PartialFC(2000, 16, cosface(), sampling_rate=rate)
    _pass(head, 40, 2000)
    plan = HeadPlan(2000, 16, 40, sampling_rate=rate)
    (made,) = head._passes
    # The plan expects that a few of 40 random samples share a class; these do not.
    assert made.gradient.slopes.nbytes == pytest.approx(plan.logits, rel=0.03)
    assert made.gradient.samples.nbytes * 4 == plan.features


def _bytes_of_a_step(group: Any, classes: int, width: int, batch_size: int) -> dict[str, int]:
    head = PartialFC(classes, width, cosface(), sampling_rate=0.1, group=group)
    _pass(head, batch_size, classes)
    return dict(head._opened().handed_over)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_step_sends_what_is_planned(tmp_path: Path, ranks: int) -> None:
    results = run_on_ranks(_bytes_of_a_step, 600, 24, 10, folder=tmp_path, ranks=ranks)
    plan = HeadPlan(600, 24, 10, ranks, 0.1)
    for result in results:
        assert result.error is None, result.error
        calls = result.value
        sent = (ranks - 1) * calls.pop("all_gather")
        sent += 2 * (ranks - 1) * calls.pop("all_reduce") // ranks
        sent += (ranks - 1) * calls.pop("reduce_scatter") // ranks
        assert calls == {}
        assert sent == plan.sent


def test_traffic_does_not_depend_on_the_number_of_classes() -> None:
    assert len({HeadPlan(classes, ranks=8).sent for classes in (10**5, 10**7, 10**9)}) == 1


def test_positives_win_where_they_are_more_than_the_sample() -> None:
    # 128 samples of 1000 classes are about 120 different ones.
    assert HeadPlan(1000, sampling_rate=0.02).taking_part == 121
    assert HeadPlan(1000, sampling_rate=0.5).taking_part == 500
    assert HeadPlan(1, sampling_rate=0.0).taking_part == 1


def test_numbers_that_make_no_sense_are_named() -> None:
    with pytest.raises(ArgumentValueError, match="ranks is 0"):
        HeadPlan(10, ranks=0)
    with pytest.raises(ArgumentValueError, match=r"sampling rate is 1\.5"):
        HeadPlan(10, sampling_rate=1.5)
