from __future__ import annotations

import copy
import logging
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_threads import on_ranks
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ostinato.loop import StandardUpdater, Trainer


class Recorder(StandardUpdater):
    """Notes batches and trains nothing."""

    def __init__(self, loader: Any) -> None:
        super().__init__({}, {}, loader)
        self.seen: list[Any] = []

    def update_core(self, batch: Any) -> None:
        self.seen.append(batch)


class Stream:
    """Passes whose lengths are found out by reading."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths, self.started = list(lengths), 0

    def __iter__(self) -> Any:
        length = self.lengths[min(self.started, len(self.lengths) - 1)]
        self.started += 1
        return iter([(self.started - 1, position) for position in range(length)])


class Overrated(Stream):
    """A stream that claims a length."""

    def __len__(self) -> int:
        return 5


def regression(seed: int) -> StandardUpdater:
    """Two models with dropout, two optimizers, two schedules, a shuffling loader on the global generator."""
    torch.manual_seed(seed)
    models = {
        "main": nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.3), nn.Linear(5, 1)),
        "head": nn.Linear(1, 1),
    }

    class Both(StandardUpdater):
        def compute_losses(self, batch: Any) -> dict[str, torch.Tensor]:
            x, y = batch
            first = self.models["main"](x)
            return {"main": (first - y).square().mean() + (self.models["head"](first) - y).abs().mean()}

    optimizers = {
        "main": torch.optim.Adam(models["main"].parameters(), lr=0.02),
        "head": torch.optim.SGD(models["head"].parameters(), lr=0.05, momentum=0.9),
    }
    data = TensorDataset(torch.randn(22, 3), torch.randn(22, 1))
    return Both(
        models,
        optimizers,
        DataLoader(data, batch_size=4, shuffle=True),
        schedulers={
            "main": (torch.optim.lr_scheduler.StepLR(optimizers["main"], 3, 0.7), "iteration"),
            "head": (torch.optim.lr_scheduler.ExponentialLR(optimizers["head"], 0.9), "epoch"),
        },
    )


def parameters(updater: StandardUpdater) -> list[torch.Tensor]:
    return [value for model in updater.models.values() for value in model.state_dict().values()]


@settings(max_examples=25)
@given(cuts=st.sets(st.integers(1, 19), max_size=4))
def test_killed_and_continued_anywhere_it_has_the_same_parameters_bit_for_bit(cuts: set[int]) -> None:
    straight = regression(3)
    for _ in range(20):
        straight.update()
    updater = regression(3)
    for iteration in range(1, 21):
        updater.update()
        if iteration in cuts:
            state = copy.deepcopy(updater.state_dict())
            updater = regression(iteration + 100)  # another seed: everything has to come from the state
            data = straight._reader.loader.dataset
            updater._reader.loader = DataLoader(data, batch_size=4, shuffle=True)
            updater.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(parameters(updater), parameters(straight), strict=True))
    assert updater.state == straight.state
    rates = [optimizer.param_groups[0]["lr"] for optimizer in updater.optimizers.values()]
    assert rates == [optimizer.param_groups[0]["lr"] for optimizer in straight.optimizers.values()]


def test_the_resume_reads_no_data_to_find_its_place() -> None:
    read: list[int] = []

    class Data(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> torch.Tensor:
            read.append(index)
            return torch.tensor([index])

    first = Recorder(DataLoader(Data(), batch_size=2))
    for _ in range(3):
        first.update()
    second = Recorder(DataLoader(Data(), batch_size=2))
    second.load_state_dict(first.state_dict())
    read.clear()
    second.update()
    assert read == [6, 7]


def test_a_loader_that_keeps_its_own_place_is_asked_to_find_it() -> None:
    class Placed:
        def __init__(self) -> None:
            self.place = 0

        def __len__(self) -> int:
            return 5

        def __iter__(self) -> Any:
            while self.place < 5:
                self.place += 1
                yield self.place
            self.place = 0

        def state_dict(self) -> dict[str, int]:
            return {"place": self.place}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.place = state["place"]

    first = Recorder(Placed())
    for _ in range(3):
        first.update()
    second = Recorder(Placed())
    second.load_state_dict(first.state_dict())
    second.update()
    assert second.seen == [4]


@settings(max_examples=30)
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=5), cut=st.integers(1, 11))
def test_a_loader_without_length_that_keeps_its_own_place_gives_every_batch_once(lengths, cut) -> None:
    """It is read one batch ahead of what was consumed, and so is its own idea of its place."""

    class Placed:
        def __init__(self) -> None:
            self.number, self.place = 0, 0

        def __iter__(self) -> Any:
            while self.place < lengths[self.number % len(lengths)]:
                self.place += 1
                yield self.number, self.place
            self.number, self.place = self.number + 1, 0

        def state_dict(self) -> dict[str, int]:
            return {"number": self.number, "place": self.place}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.number, self.place = state["number"], state["place"]

    straight, first, second = Recorder(Placed()), Recorder(Placed()), Recorder(Placed())
    for _ in range(12):
        straight.update()
    for _ in range(cut):
        first.update()
    second.load_state_dict(first.state_dict())
    for _ in range(12 - cut):
        second.update()
    assert first.seen + second.seen == straight.seen
    assert second.state == straight.state


@pytest.mark.parametrize("owner", ["loader", "sampler"])
@pytest.mark.parametrize("cut", [1, 4, 5, 7, 12])
def test_an_order_drawn_from_a_generator_of_the_loader_continues(owner: str, cut: int) -> None:
    data = TensorDataset(torch.arange(10))

    def make() -> Recorder:
        generator = torch.Generator().manual_seed(4)
        if owner == "loader":
            return Recorder(DataLoader(data, batch_size=2, shuffle=True, generator=generator))
        sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=10, generator=generator)
        return Recorder(DataLoader(data, batch_size=2, sampler=sampler))

    straight, first, second = make(), make(), make()
    for _ in range(15):
        straight.update()
    for _ in range(cut):
        first.update()
    second.load_state_dict(first.state_dict())
    for _ in range(15 - cut):
        second.update()
    seen = [batch[0].tolist() for batch in first.seen + second.seen]
    assert seen == [batch[0].tolist() for batch in straight.seen]


def test_a_loader_over_a_stream_reads_and_drops_to_find_its_place(caplog) -> None:
    class Numbers(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(10))

    first, second = (Recorder(DataLoader(Numbers(), batch_size=2)) for _ in range(2))
    for _ in range(3):
        first.update()
    second.load_state_dict(first.state_dict())
    second.update()
    assert second.seen[0].tolist() == [6, 7]
    assert "reading and dropping 3 batches" in caplog.text


def test_samples_are_counted_over_all_ranks_and_so_is_the_size_of_a_batch(caplog) -> None:
    data = TensorDataset(torch.zeros(24, 1))

    def ranks(number: int) -> Any:
        return SimpleNamespace(group=SimpleNamespace(size=number))  # no collective is needed

    two = Recorder(DataLoader(data, batch_size=3))
    two.initialize(ranks(2))
    for _ in range(3):
        two.update()
    assert (two.state.samples, two.state.samples_in_epoch) == (18, 18)
    saved = two.state_dict()
    again = Recorder(DataLoader(data, batch_size=3))
    again.load_state_dict(saved)
    again.initialize(ranks(2))
    again.update()
    assert again.state.iteration_in_epoch == 4
    assert not caplog.records
    four = Recorder(DataLoader(data, batch_size=3))
    four.load_state_dict(saved)
    four.initialize(ranks(4))
    assert (four.state.iteration_in_epoch, four.state.samples_in_epoch) == (1, 12)
    four.update()
    assert (four.state.iteration_in_epoch, four.state.samples_in_epoch) == (2, 24)
    assert "from 6 to 12; going on after 1 batches of this pass, 6 samples are seen again" in caplog.text
    assert len(caplog.records) == 1


@pytest.mark.parametrize("synchronize", [False, True])
def test_an_update_waits_for_the_device_only_if_that_is_wanted(monkeypatch, synchronize: bool) -> None:
    waited = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", list)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(True))
    model = nn.Linear(2, 1)
    updater = StandardUpdater(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        [torch.ones(3, 2)],
        loss_function=lambda out, batch: out.sum(),
        synchronize=synchronize,
    )
    updater.update()
    assert len(waited) == synchronize


def test_tokens_are_counted_where_they_are_asked_for() -> None:
    def updater(**settings: Any) -> StandardUpdater:
        return StandardUpdater(nn.Identity(), {}, [torch.ones(1, n, requires_grad=True) for n in (3, 5)], **settings)

    def loss(out: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        return out.sum()

    plain = updater(loss_function=loss)
    plain.update()
    assert plain.state.tokens is None
    counting = updater(loss_function=loss, count_tokens=lambda batch: batch.shape[1])
    counting.load_state_dict(plain.state_dict())
    for _ in range(2):
        counting.update()
    assert counting.state.tokens == 8
    resumed = updater(loss_function=loss, count_tokens=lambda batch: batch.shape[1])
    resumed.load_state_dict(counting.state_dict())
    assert resumed.state.tokens == 8

    def on_rank(group: Any) -> Any:
        mine = updater(loss_function=loss, count_tokens=lambda batch: batch.shape[1] + group.rank)
        mine.initialize(SimpleNamespace(group=group))
        mine.update()
        return mine.state.tokens, mine.state.samples

    assert on_ranks(3, on_rank) == [(3 + 4 + 5, 3)] * 3


@pytest.mark.parametrize("kind", [Stream, Overrated])
@settings(max_examples=40)
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=5), cut=st.integers(1, 11))
def test_passes_of_unknown_length_continue_where_they_stood(kind, lengths, cut) -> None:
    logging.disable(logging.WARNING)
    try:
        straight, first = Recorder(kind(lengths)), Recorder(kind(lengths))
        for _ in range(12):
            straight.update()
        for _ in range(cut):
            first.update()
        loader = kind(lengths)
        # A stream cannot be told its pass; give the new one what a set_epoch would have done.
        loader.started = first.state.epoch
        second = Recorder(loader)
        second.load_state_dict(first.state_dict())
        for _ in range(12 - cut):
            second.update()
    finally:
        logging.disable(logging.NOTSET)
    if kind is Stream or cut > lengths[0]:  # before that, the claim has not been found wrong, and the pass goes on late
        assert first.seen + second.seen == straight.seen
        assert second.state == straight.state


def test_a_loader_that_ends_early_ends_the_pass_one_update_late_and_is_told_once(caplog) -> None:
    updater = Recorder(Overrated([3]))
    epochs = []
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            updater.update()
            epochs.append(updater.state.epoch)
    assert epochs == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert len(caplog.records) == 1
    assert "says that it has 5 batches and ended after 3" in caplog.text


def test_a_loader_that_yields_nothing_names_both_numbers() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(3, 1)), batch_size=8, drop_last=True)
    with pytest.raises(RuntimeError, match=r"DataLoader yields no batch: 3 samples, 8 in a batch, incomplete batches"):
        Recorder(loader).update()
    with pytest.raises(RuntimeError, match="yields no batch"):
        Trainer(Recorder([]), (1, "epoch")).run()


def test_a_loader_is_asked_for_nothing_before_the_first_batch_is_read() -> None:
    class Loader:
        begun = 0

        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Any:
            self.begun += 1
            return iter([torch.ones(2, 4)] * 3)

    loader = Loader()
    updater = StandardUpdater({}, {}, loader)
    updater.update_core = lambda batch: None  # type: ignore[method-assign]
    saved = updater.state_dict()
    updater.load_state_dict(saved)
    updater.initialize(None)
    assert loader.begun == 0
    updater.update()
    assert loader.begun == 1


def test_set_epoch_is_called_before_every_pass_on_each_object_once() -> None:
    calls: list[tuple[str, int]] = []

    class Sampler:
        def set_epoch(self, epoch: int) -> None:
            calls.append(("sampler", epoch))

    class Loader:
        sampler = Sampler()

        class batch_sampler:
            pass

        def __len__(self) -> int:
            return 2

        def __iter__(self) -> Any:
            return iter([1, 2])

        def set_epoch(self, epoch: int) -> None:
            calls.append(("loader", epoch))

    Loader.batch_sampler.sampler = Loader.sampler  # type: ignore[attr-defined]
    updater = Recorder(Loader())
    assert calls == []
    for _ in range(5):
        updater.update()
    assert calls == [("loader", 0), ("sampler", 0), ("loader", 1), ("sampler", 1), ("loader", 2), ("sampler", 2)]


def test_a_failed_update_counts_nothing_and_keeps_its_batch() -> None:
    class Failing(Recorder):
        fails = True

        def update_core(self, batch: Any) -> None:
            if self.fails:
                raise MemoryError
            super().update_core(batch)

    updater = Failing([10, 20])
    with pytest.raises(MemoryError):
        updater.update()
    assert updater.state.iteration == 0
    updater.fails = False
    updater.update()
    assert updater.seen == [10]


def test_a_stray_stop_iteration_does_not_end_the_run_silently() -> None:
    class Stray(StandardUpdater):
        def update_core(self, batch: Any) -> None:
            next(iter([]))

    with pytest.raises(RuntimeError, match="StopIteration left update_core"):
        Stray({}, {}, [1]).update()


class Losses(nn.Module):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.result = result
        self.called: Any = None

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        self.called = (arguments, keywords)
        return self.result(self.weight)


@pytest.mark.parametrize(
    ("batch", "called"),
    [((1, 2), ((1, 2), {})), ([3], ((3,), {})), ({"x": 4}, ((), {"x": 4})), (5, ((5,), {}))],
)
def test_the_shape_of_the_batch_decides_how_the_model_is_called(batch: Any, called: Any) -> None:
    model = Losses(lambda w: w * 2)
    updater = StandardUpdater(model, torch.optim.SGD(model.parameters(), lr=0.1), [batch])
    seen: list[Any] = []
    trainer = Trainer(updater, (1, "iteration"), extensions=[lambda t: seen.append(dict(t.observation))])
    trainer.run()
    assert model.called == called
    assert float(seen[0]["main"]) == 2.0
    assert not seen[0]["main"].requires_grad
    assert float(model.weight.detach()) == pytest.approx(0.8)


def test_a_mapping_of_losses_without_main_is_summed() -> None:
    model = Losses(lambda w: {"a": w * 2, "b": w * 3})
    updater = StandardUpdater(model, torch.optim.SGD(model.parameters(), lr=0.1), [0])
    updater.update()
    assert float(model.weight.detach()) == pytest.approx(0.5)


def test_a_model_that_returns_no_loss_is_told_what_to_do() -> None:
    model = Losses(lambda w: [w])
    with pytest.raises(TypeError, match=r"returned list, not a loss\. .*loss_function"):
        StandardUpdater(model, torch.optim.SGD(model.parameters(), lr=0.1), [0]).update()
    updater = StandardUpdater(
        model, torch.optim.SGD(model.parameters(), lr=0.1), [0], loss_function=lambda result, batch: result[0] + batch
    )
    updater.update()


def test_loss_functions_may_have_names_and_a_schedule_may_stand_alone() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    updater = StandardUpdater(
        model,
        optimizer,
        [torch.ones(3, 2)],
        loss_function={"size": lambda out, batch: out.square().mean(), "sum": lambda out, batch: out.sum()},
        schedulers=(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5), "iteration"),
    )
    seen: list[Any] = []
    Trainer(updater, (1, "iteration"), extensions=[lambda t: seen.append(dict(t.observation))]).run()
    assert set(seen[0]) == {"size", "sum", "main"}
    assert float(seen[0]["main"]) == pytest.approx(float(seen[0]["size"] + seen[0]["sum"]))
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_a_state_of_another_set_of_models_is_refused_whole() -> None:
    updater = regression(1)
    state = copy.deepcopy(updater.state_dict())
    del state["models"]["head"]
    updater.update()
    before = [value.clone() for value in parameters(updater)]
    with pytest.raises(RuntimeError, match=r"has the models \['head', 'main'\], the saved state has \['main'\]"):
        updater.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(before, parameters(updater), strict=True))


def test_wrappers_leave_no_prefix_in_the_names() -> None:
    model = nn.Linear(1, 1)
    updater = StandardUpdater(nn.DataParallel(model), {}, [0])
    assert list(updater.state_dict()["models"]["main"]) == ["weight", "bias"]


def test_only_modules_that_are_not_training_are_switched() -> None:
    switched = []

    class Watched(nn.Linear):
        def train(self, mode: bool = True) -> Any:
            switched.append(mode)
            return super().train(mode)

    model = Watched(1, 1)
    updater = Recorder([1, 2, 3])
    updater.models = {"main": model}
    updater.update()
    model.eval()
    switched.clear()
    updater.update()
    updater.update()
    assert switched == [True]


def test_an_unknown_unit_of_a_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="'main' has the unit 'steps'"):
        StandardUpdater({}, {}, [], schedulers={"main": (None, "steps")})  # type: ignore[dict-item]


@pytest.mark.parametrize("stop", [(10, "iteration"), (2, "epoch"), (0.5, "epoch"), None])
@pytest.mark.parametrize("batches", ["dropped", "none"])
def test_an_empty_loader_is_told_as_what_it_is_whatever_ends_the_run(stop, batches) -> None:
    net = nn.Linear(1, 1)
    samples = TensorDataset(torch.zeros(3, 1))
    few = DataLoader(samples, batch_size=8, drop_last=True) if batches == "dropped" else []
    trainer = Trainer(StandardUpdater(net, torch.optim.SGD(net.parameters(), lr=0.1), few), stop)
    said = "3 samples, 8 in a batch" if batches == "dropped" else "list yields no batch"
    with pytest.raises(RuntimeError, match=said):
        trainer.run()


def test_a_pass_that_has_become_shorter_ends_and_its_length_stays_known(caplog) -> None:
    def updater(samples: int) -> StandardUpdater:
        net = nn.Linear(1, 1)
        data = DataLoader(TensorDataset(torch.zeros(samples, 1)), batch_size=1)
        return StandardUpdater(net, torch.optim.SGD(net.parameters(), lr=0.1), data)

    before, after = updater(8), updater(2)
    Trainer(before, (6, "iteration")).run()
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    trainer = Trainer(after, [(10, "iteration"), (3, "epoch"), (9.5, "epoch")])
    fired: list[int] = []
    trainer.extend(lambda t: fired.append(t.updater.state.iteration), "half", (0.5, "epoch"))
    trainer.run()
    assert (after.state.epoch, after.state.iteration_in_epoch, after.updates_per_epoch) == (3, 0, 2)
    assert "DataLoader has 2 batches now, and 6 of this pass were consumed when it had more" in caplog.text
    assert fired == [7, 8, 9, 10]
