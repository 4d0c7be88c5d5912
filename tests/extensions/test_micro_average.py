from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loop_stand_ins import CountingUpdater, ListOfSnapshots
from rank_threads import on_ranks

from ostinato.dist.per_rank import RankStates
from ostinato.extensions.micro_average import MicroAverage
from ostinato.loop import Trainer, report, scope


class Counting(CountingUpdater):
    """Reports how many words of each batch were right."""

    def __init__(self, batches, as_tensors=False) -> None:
        super().__init__()
        self.batches = batches
        self.as_tensors = as_tensors

    def update(self) -> None:
        batch = self.batches[self.state.iteration]
        if batch is not None:
            for name, value in zip(("right", "words"), batch, strict=True):
                report(name, torch.tensor(float(value)) if self.as_tensors else value)
        super().update()


def results(batches, every, until=None, kept=None, as_tensors=False):
    seen = {}

    def note(trainer):
        if "accuracy" in trainer.observation:
            seen[trainer.updater.state.iteration] = trainer.observation["accuracy"]

    trainer = Trainer(Counting(batches, as_tensors), (until or len(batches), "iteration"))
    trainer.extend(MicroAverage("right", "words", "accuracy", (every, "iteration")))
    trainer.extend(note)  # a reader sees what an editor has put there
    if kept is not None:
        trainer.extend(ListOfSnapshots(kept), trigger=(1, "iteration"))
    trainer.run()
    return seen


batches = st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 9), st.integers(1, 9))), min_size=1, max_size=12)


@given(batches=batches, every=st.integers(1, 4), cut=st.integers(1, 12), as_tensors=st.booleans())
def test_it_is_the_quotient_of_the_sums_whatever_the_resumes(batches, every, cut, as_tensors) -> None:
    expected = {}
    for end in range(every, len(batches) + 1, every):
        counted = [batch for batch in batches[end - every : end] if batch is not None]
        if counted:
            expected[end] = sum(right for right, _ in counted) / sum(words for _, words in counted)
    kept: list = []
    found = results(batches, every, min(cut, len(batches)), kept, as_tensors)
    found.update(results(batches, every, None, kept, as_tensors))
    assert found == pytest.approx(expected, rel=1e-12)


def test_nothing_below_the_line_is_no_number() -> None:
    assert math.isnan(results([(0, 0), (0, 0)], 2)[2])


def test_values_without_their_counterpart_do_not_count() -> None:
    extension = MicroAverage("right", "words", "accuracy", (3, "iteration"))

    class Halves(CountingUpdater):
        def update(self) -> None:
            report("right", 2)
            if self.state.iteration > 0:
                report("words", 4)
            super().update()

    trainer = Trainer(Halves(), (3, "iteration"), extensions=[extension])
    trainer.run()
    assert trainer.observation["accuracy"] == 0.5


def test_the_same_key_above_and_below_is_1() -> None:
    trainer = Trainer(Counting([(3, 4)]), (1, "iteration"), extensions=[MicroAverage("right", "right", "r", "1it")])
    trainer.run()
    assert trainer.observation["r"] == 1


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="denominator_key is empty"):
        MicroAverage("a", "", "c")
    with pytest.raises(TypeError, match="result_key must be a text"):
        MicroAverage("a", "b", 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unit is 'word'"):
        MicroAverage("a", "b", "c", (1, "word"))


def test_sums_of_other_values_are_dropped() -> None:
    extension = MicroAverage("a", "b", "c")
    state = extension.state_dict()
    with pytest.raises(ValueError, match="format 3"):
        extension.load_state_dict({**state, "format": 3})
    state["sums"] = {"a": {"weight": 1.0, "mean": 2.0, "squares": 0.0}}
    other = MicroAverage("x", "b", "c")
    other.load_state_dict(state)
    assert other.state_dict()["sums"] == {}


def test_every_rank_goes_on_with_its_own_sums() -> None:
    def average(group, state=None):
        extension = MicroAverage("right", "words", "accuracy", (2, "iteration"))
        if state is not None:
            extension.load_state_dict(state)
        return extension

    def begin(group):
        extension = average(group)
        trainer = SimpleNamespace(group=group, updater=CountingUpdater(), observation={})
        extension.initialize(trainer)
        trainer.updater.update()
        trainer.observation = {"right": 1 + group.rank, "words": 4}
        extension(trainer)
        return extension.state_dict()

    saved = on_ranks(2, begin)
    state = {**saved[0], "sums": RankStates(2, lambda rank: saved[rank]["sums"].state)}

    def go_on(group):
        extension = average(group, state)
        trainer = SimpleNamespace(group=group, updater=CountingUpdater(), observation={})
        trainer.updater.update()
        extension.initialize(trainer)
        trainer.updater.update()
        trainer.observation = {"right": 1, "words": 4}
        with scope(trainer.observation):
            extension(trainer)
        return trainer.observation["accuracy"]

    assert on_ranks(2, go_on) == [2 / 8, 3 / 8]
