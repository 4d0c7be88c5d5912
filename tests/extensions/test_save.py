from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_stand_ins import CountingUpdater
from torch import nn

from ostinato.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    BadInputError,
    DamagedRunError,
    SaveError,
    StateError,
)
from ostinato.extensions.save import Snapshot
from ostinato.extensions.state_parts import join_state, split_state
from ostinato.loop import Extension
from ostinato.loop.reporter import report
from ostinato.loop.standard_updater import StandardUpdater
from ostinato.loop.trainer import Trainer
from ostinato.runs import GenerationContent, RunFolder, RunStore
from ostinato.runs.atomic import Files, set_hook

UPDATES_PER_EPOCH = 7


class _Updater(StandardUpdater):
    """Trains a small model; reports the losses it is told to, where it is told to."""

    losses: list[float] | None = None

    def update_core(self, batch: Any) -> None:
        model, optimizer = self.models["main"], self.optimizers["main"]
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        told = self.losses[self.state.iteration] if self.losses else loss.detach()
        report("loss", torch.as_tensor(told))


def _trainer(out: Path, limit: int, *extensions: Any, losses: list[float] | None = None, **settings: Any) -> Trainer:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(1)
    updater = _Updater(model, optimizer, [torch.randn(8, 4, generator=generator) for _ in range(UPDATES_PER_EPOCH)])
    updater.losses = losses
    trainer = Trainer(updater, (limit, "iteration"), out=out, extensions=extensions)
    trainer.extend(Snapshot(**{"every": (2, "iteration"), **settings}))
    return trainer


def _parameters(trainer: Trainer) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.updater.models["main"].parameters()]


def _saved(out: Path) -> list[int]:
    return [name.iteration for name in RunFolder(out).names() if not name.error]


def _reasons(out: Path) -> dict[int, tuple[str, ...]]:
    return {m.iteration: m.reasons for m in RunFolder(out).scan().manifests}


def _journal(out: Path) -> list[dict[str, Any]]:
    return [entry for entry in RunFolder(out).journal.read()[0] if entry["event"] == "commit"]


# --- going on --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_at", [1, 3, 4, 7, 8, 13])
def test_a_run_in_two_pieces_equals_a_run_in_one(tmp_path: Path, stop_at: int) -> None:
    straight = _trainer(tmp_path / "one", 15, monitor="loss")
    straight.run()
    _trainer(tmp_path / "two", stop_at, monitor="loss").run()
    resumed = _trainer(tmp_path / "two", 15, monitor="loss")
    resumed.run()
    assert resumed.updater.state == straight.updater.state
    for first, second in zip(_parameters(straight), _parameters(resumed), strict=True):
        assert torch.equal(first, second)
    sessions = RunFolder(tmp_path / "two").read(15).sessions
    assert [session.iterations for session in sessions] == [stop_at, 15 - stop_at]


def test_a_run_in_pieces_is_asked_for_its_state_after_the_same_updates(tmp_path: Path) -> None:
    class Asked:
        """Notes when it is asked, as a state does that then brings itself up to date."""

        name = "asked"

        def __init__(self) -> None:
            self.updater: Any = None
            self.at: list[int] = []

        def __call__(self, trainer: Any) -> None: ...

        def state_dict(self) -> dict[str, Any]:
            self.at.append(self.updater.state.iteration)
            return {}

        def load_state_dict(self, state: Any) -> None: ...

    def asked_at(out: Path, limit: int) -> set[int]:
        asked = Asked()
        trainer = _trainer(out, limit, asked, every=(4, "iteration"))
        asked.updater = trainer.updater
        trainer.run()
        return set(asked.at)

    straight = asked_at(tmp_path / "one", 12)
    assert straight == {1, 4, 8, 12}
    pieces = [asked_at(tmp_path / "two", limit) for limit in (4, 8, 12)]
    assert pieces == [{1, 4}, {4, 8}, {8, 12}]


def test_every_initialize_sees_the_restored_state(tmp_path: Path) -> None:
    _trainer(tmp_path, 5).run()
    seen: list[int] = []

    class Watcher:
        def __call__(self, trainer: Any) -> None: ...

        def initialize(self, trainer: Any) -> None:
            seen.append(trainer.updater.state.iteration)

    _trainer(tmp_path, 6, Watcher()).run()
    assert seen == [5]


def test_a_finished_run_does_nothing_and_writes_nothing(tmp_path: Path) -> None:
    _trainer(tmp_path, 5).run()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "generations").rglob("*")}
    for limit in (5, 4, 1):
        again = _trainer(tmp_path, limit)
        again.run()
        assert again.updater.state.iteration == 5
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "generations").rglob("*")} == before


def test_the_newest_damaged_the_one_before_is_used_and_training_repeats_exactly(tmp_path: Path) -> None:
    straight = _trainer(tmp_path / "one", 8)
    straight.run()
    _trainer(tmp_path / "two", 6).run()
    path = tmp_path / "two" / "generations" / "00000006" / "model.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    resumed = _trainer(tmp_path / "two", 8)
    resumed.run()
    for first, second in zip(_parameters(straight), _parameters(resumed), strict=True):
        assert torch.equal(first, second)


def test_nothing_readable_is_an_error_and_never_a_fresh_start(tmp_path: Path) -> None:
    _trainer(tmp_path, 3).run()
    for path in (tmp_path / "generations").rglob("model.safetensors"):
        path.unlink()
    with pytest.raises(DamagedRunError):
        _trainer(tmp_path, 8).run()
    RunFolder(tmp_path).open().close()  # the lock was given back


def test_a_start_without_the_memory_for_copies_gives_the_lock_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _trainer(tmp_path, 3).run()

    def fail(store: RunStore, state: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(RunStore, "prepare", fail)
        with pytest.raises(MemoryError):
            _trainer(tmp_path, 8).run()
    assert _trained(_trainer(tmp_path, 8)) == 8


def test_going_back_to_a_named_generation_sets_the_newer_ones_aside(tmp_path: Path) -> None:
    straight = _trainer(tmp_path / "one", 9)
    straight.run()
    _trainer(tmp_path / "two", 6, max_size=-1).run()
    resumed = _trainer(tmp_path / "two", 9, max_size=-1, resume_from=4)
    resumed.run()
    assert torch.equal(_parameters(straight)[0], _parameters(resumed)[0])
    assert _saved(tmp_path / "two") == [2, 4, 6, 8, 9]
    ((_, aside),) = RunFolder(tmp_path / "two").set_aside().items()
    assert [name.iteration for name in aside] == [6]


@pytest.mark.parametrize("place", ["updater", "extensions"])
def test_a_state_that_does_not_fit_is_told_with_its_generation(tmp_path: Path, place: str) -> None:
    with RunFolder(tmp_path).open() as run:
        trainer = _trainer(tmp_path / "other", 2)
        parts = split_state(trainer.state_dict(), trainer.updater)
        rest = {**parts.rest, "trainer": {**parts.rest["trainer"], place: 5}}
        run.commit(run.pack(GenerationContent(2, parts.model, parts.optimizer, rest)))
    with pytest.raises(StateError, match=r"Generation 00000002 is whole, and its state does not fit this program"):
        _trainer(tmp_path, 4).run()
    assert _saved(tmp_path) == [2]


def test_without_autoload_a_folder_with_a_run_is_refused(tmp_path: Path) -> None:
    _trainer(tmp_path, 3, autoload=False).run()
    with pytest.raises(StateError, match="already holds a run"):
        _trainer(tmp_path, 8, autoload=False).run()


# --- what is saved when ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_size", "left"), [(-1, [2, 4, 6, 8, 10]), (1, [10]), (2, [8, 10]), (3, [6, 8, 10]), (5, [2, 4, 6, 8, 10])]
)
def test_at_most_max_size_saves_stay(tmp_path: Path, max_size: int, left: list[int]) -> None:
    _trainer(tmp_path, 10, max_size=max_size).run()
    assert _saved(tmp_path) == left


@pytest.mark.parametrize("wrong", [0, -2])
def test_a_size_that_keeps_nothing_is_refused(wrong: int) -> None:
    with pytest.raises(ArgumentValueError):
        Snapshot(wrong)


@pytest.mark.parametrize("wrong", [1.5, True, "3"])
def test_a_size_that_is_no_number_is_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentTypeError):
        Snapshot(wrong)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"best_size": -1}, ArgumentValueError),
        ({"best_size": 1.5}, ArgumentTypeError),
        ({"mode": "most"}, ArgumentValueError),
        ({"save_optimizer": "sometimes"}, ArgumentValueError),
        ({"patience": 0}, ArgumentValueError),
        ({"patience": float("nan")}, ArgumentValueError),
        ({"patience": "long"}, ArgumentTypeError),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(settings))):
        Snapshot(**settings)


@pytest.mark.parametrize(
    ("period", "save_last", "iterations", "kinds"),
    [
        (4, True, [4, 8, 10], ["regular", "regular", "last"]),
        (5, True, [5, 10], ["regular", "regular"]),
        (4, False, [4, 8], ["regular", "regular"]),
    ],
)
def test_the_last_state_is_saved_once(
    tmp_path: Path, period: int, save_last: bool, iterations: list[int], kinds: list[str]
) -> None:
    _trainer(tmp_path, 10, every=(period, "iteration"), save_last=save_last).run()
    entries = _journal(tmp_path)
    assert [entry["iteration"] for entry in entries] == iterations
    assert [entry["kind"] for entry in entries] == kinds


def test_snapshots_are_made_when_due_and_labelled_with_their_own_iteration(tmp_path: Path) -> None:
    for limit in (5, 9, 16):  # odd session lengths, and a snapshot interval that no save interval divides
        _trainer(tmp_path, limit, every=(4, "iteration"), snapshot_every=(7, "iteration")).run()
    snapshots = [i for i, reasons in _reasons(tmp_path).items() if "snapshot" in reasons]
    assert snapshots == [7, 14]
    straight = _trainer(tmp_path / "straight", 7)
    straight.run()
    weights = RunFolder(tmp_path).read(7)
    assert weights.state["trainer"]["updater"]["state"]["iteration"] == 7
    for name, parameter in straight.updater.models["main"].named_parameters():
        assert torch.equal(weights.model[name], parameter)


def test_a_requested_save_is_made_after_this_iteration(tmp_path: Path) -> None:
    def ask(trainer: Any) -> None:
        if trainer.updater.state.iteration == 3:
            trainer.get_extension("snapshot").request_save()

    _trainer(tmp_path, 6, ask, every=(100, "iteration")).run()
    assert [entry["iteration"] for entry in _journal(tmp_path)] == [3, 6]


@pytest.mark.parametrize(("reason", "kind"), [("SIGTERM", "signal"), ("signal", "signal"), ("request", "last")])
def test_a_stopped_run_is_saved(tmp_path: Path, reason: str, kind: str) -> None:
    def stop(trainer: Any) -> None:
        if trainer.updater.state.iteration == 3:
            trainer.request_stop(reason)

    _trainer(tmp_path, 10, stop, every=(2, "iteration")).run()
    assert [(e["iteration"], e["kind"]) for e in _journal(tmp_path)] == [(2, "regular"), (3, kind)]


# --- the best state --------------------------------------------------------------------------------------------------


def test_the_best_state_is_kept_whatever_is_no_number(tmp_path: Path) -> None:
    nan, inf = math.nan, math.inf
    losses = [nan, nan, 3, 3, 2, 2, 2, nan, inf, 1, 1, 1, 5, 5, 6, 6]
    _trainer(tmp_path, 16, losses=losses, monitor="loss", max_size=2).run()
    best = [e["iteration"] for e in _journal(tmp_path) if "best" in e["reasons"]]
    assert best == [4, 6, 12]
    assert _saved(tmp_path) == [12, 14, 16]


@pytest.mark.parametrize("stop_at", range(1, 12))
def test_the_bar_survives_a_resume(tmp_path: Path, stop_at: int) -> None:
    losses = [4.0, 4, 3, 3, 3.5, 3.5, 2, 2, 9, 9, 2.5, 2.5]
    _trainer(tmp_path, stop_at, losses=losses, monitor="loss").run()
    resumed = _trainer(tmp_path, 12, losses=losses, monitor="loss")
    resumed.run()
    assert resumed.get_extension("snapshot").bar.lowest == 2  # type: ignore[attr-defined]


def test_another_loss_definition_resets_the_bar(tmp_path: Path) -> None:
    _trainer(tmp_path, 4, losses=[1.0] * 9, monitor="loss", loss_definition="old").run()
    _trainer(tmp_path, 8, losses=[5.0] * 9, monitor="loss", loss_definition="new").run()
    assert [e["iteration"] for e in _journal(tmp_path) if "best" in e["reasons"]] == [2, 6]


def test_a_mean_over_few_iterations_sets_no_bar(tmp_path: Path) -> None:
    losses = [4.0, 4, 4, 4, 0.1, 3, 3, 3]
    settings = {"monitor": "loss", "minimum_iterations": 3, "every": (4, "iteration"), "losses": losses}
    _trainer(tmp_path, 5, **settings).run()  # ends with a mean over the one lucky batch
    _trainer(tmp_path, 8, **settings).run()
    assert [e["iteration"] for e in _journal(tmp_path) if "best" in e["reasons"]] == [4, 8]


# --- trouble ---------------------------------------------------------------------------------------------------------


def _store(path: Path) -> RunStore:
    return RunStore(RunFolder(path, files=Files(attempts=2, first_wait=0.0)))


class _FullDisk:
    """A disk without room for some generations."""

    def __init__(self) -> None:
        self.refused: tuple[int, ...] = ()
        self.refuses_manifest_of = ""

    def __call__(self, moment: str, operation: str, path: Path) -> None:
        folder = path.parent.name
        is_refused = folder in [f".tmp-{iteration:08d}" for iteration in self.refused]
        if operation == "write" and (is_refused or folder == self.refuses_manifest_of):
            raise OSError(28, "No space left on device", str(path))


@pytest.fixture
def disk():
    disk = _FullDisk()
    set_hook(disk)
    yield disk
    set_hook(None)


def test_a_full_disk_costs_a_save_and_training_goes_on(
    tmp_path: Path, disk: _FullDisk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.refused = (4,)
    results: list[Any] = []
    trainer = _trainer(tmp_path, 8, store=_store(tmp_path), monitor="loss", on_result=results.append)
    trainer.run()
    assert [r.iteration for r in results if r.error is not None] == [4]
    assert [entry["iteration"] for entry in _journal(tmp_path)] == [2, 6, 8]
    # The losses of the save that failed belong to the next one.
    assert RunFolder(tmp_path).scan().manifests[-2].average_count == 4
    assert "Free some space" in caplog.text


def test_a_last_save_that_fails_is_an_error(tmp_path: Path, disk: _FullDisk) -> None:
    disk.refused = (4, 5)
    with pytest.raises(SaveError, match="iteration 5"):
        _trainer(tmp_path, 5, store=_store(tmp_path)).run()
    disk.refused = ()
    assert _saved(tmp_path) == [2]
    resumed = _trainer(tmp_path, 5, store=_store(tmp_path))
    resumed.run()
    assert _saved(tmp_path) == [4, 5]


def test_a_last_state_that_is_saved_and_cannot_be_marked_is_a_warning(
    tmp_path: Path, disk: _FullDisk, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = _trainer(tmp_path, 4, store=_store(tmp_path))
    disk.refuses_manifest_of = "00000004"
    trainer.run()
    assert "Generation 00000004 is saved, but not marked as session_end" in caplog.text
    assert trainer.status == "finished"
    assert _reasons(tmp_path)[4] == ("latest",)


def test_a_run_that_fails_saves_nothing_more_unless_asked(tmp_path: Path) -> None:
    def fail(trainer: Any) -> None:
        if trainer.updater.state.iteration == 5:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        _trainer(tmp_path / "plain", 9, fail).run()
    assert _saved(tmp_path / "plain") == [2, 4]
    with pytest.raises(ValueError, match="broken"):
        _trainer(tmp_path / "asked", 9, fail, snapshot_on_error=True).run()
    assert [str(n) for n in RunFolder(tmp_path / "asked").names()] == ["00000002", "00000004", "00000005-error"]
    resumed = _trainer(tmp_path / "asked", 4)
    resumed.run()
    assert resumed.updater.state.iteration == 4


def test_weights_that_are_no_numbers_are_not_saved(tmp_path: Path) -> None:
    def poison(trainer: Any) -> None:
        if trainer.updater.state.iteration == 3:
            with torch.no_grad():
                trainer.updater.models["main"][0].weight[0, 0] = math.nan

    with pytest.raises(SaveError, match="not finite"):
        _trainer(tmp_path, 6, poison).run()
    assert _saved(tmp_path) == [2]


def test_two_trainers_in_one_folder_are_refused(tmp_path: Path) -> None:
    from ostinato.errors import RunLockedError

    def second(trainer: Any) -> None:
        with pytest.raises(RunLockedError):
            _trainer(tmp_path, 3).run()

    _trainer(tmp_path, 3, second).run()
    _trainer(tmp_path, 4).run()


# --- the optimizer ---------------------------------------------------------------------------------------------------


def _optimizer_of(out: Path) -> dict[int, int | None]:
    return {m.iteration: m.optimizer_iteration for m in RunFolder(out).scan().manifests}


def test_exit_saves_it_at_the_end_and_never_loses_it_again(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"save_optimizer": "exit", "max_size": -1}
    _trainer(tmp_path, 4, **settings).run()
    assert _optimizer_of(tmp_path) == {2: None, 4: 4}
    _trainer(tmp_path, 7, **settings).run()
    assert _optimizer_of(tmp_path) == {2: None, 4: 4, 6: 4, 7: 7}


def test_an_older_optimizer_state_is_used_and_said_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _trainer(tmp_path, 4, save_optimizer="exit").run()
    _trainer(tmp_path, 7, save_optimizer="exit", save_last=False).run()
    resumed = _trainer(tmp_path, 6, save_optimizer="exit")
    resumed.run()
    assert "optimizer state is of iteration 4, the weights are of iteration 6" in caplog.text
    assert resumed.updater.optimizers["main"].state_dict()["state"][0]["step"] == 4


def test_never_starts_it_fresh_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _trainer(tmp_path, 4, save_optimizer="never").run()
    assert _optimizer_of(tmp_path) == {2: None, 4: None}
    resumed = _trainer(tmp_path, 5, save_optimizer="never")
    resumed.run()
    assert "start fresh" in caplog.text
    assert resumed.updater.optimizers["main"].state_dict()["state"][0]["step"] == 1


def test_state_follows_the_name_and_not_the_number() -> None:
    def updater(*frozen: str) -> StandardUpdater:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        trained = [p for name, p in model.named_parameters() if name not in frozen]
        return StandardUpdater(model, torch.optim.Adam(trained, lr=0.1), [])

    first = updater()
    for index, parameter in enumerate(first.models["main"].parameters()):
        parameter.grad = torch.full_like(parameter, index + 1.0)
    first.optimizers["main"].step()
    parts = split_state({"updater": first.state_dict()}, first)
    assert parts.optimizer is not None
    assert set(parts.optimizer["main"]["state"]) == {"0.weight", "0.bias", "1.weight", "1.bias"}

    second = updater("0.weight")
    second.load_state_dict(join_state(parts, second)["updater"])
    for name, parameter in second.models["main"].named_parameters():
        if name != "0.weight":
            index = ["0.weight", "0.bias", "1.weight", "1.bias"].index(name)
            state = second.optimizers["main"].state[parameter]
            assert torch.allclose(state["exp_avg"], torch.full_like(parameter, 0.1 * (index + 1)))


def test_several_models_keep_their_names_apart() -> None:
    models = {"a": nn.Linear(2, 2), "b": nn.Linear(2, 3)}
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for name, model in models.items()}
    updater = StandardUpdater(models, optimizers, [])
    parts = split_state({"updater": updater.state_dict()}, updater)
    assert set(parts.model) == {"a.weight", "a.bias", "b.weight", "b.bias"}
    joined = join_state(parts, updater)["updater"]
    assert {name: set(state) for name, state in joined["models"].items()} == {
        "a": {"weight", "bias"},
        "b": {"weight", "bias"},
    }
    updater.load_state_dict(joined)


def test_a_parameter_of_no_model_is_an_error() -> None:
    stray = nn.Parameter(torch.ones(1))
    updater = StandardUpdater(nn.Linear(2, 2), torch.optim.SGD([stray], lr=0.1), [])
    with pytest.raises(StateError, match="none of the updater's models"):
        split_state({"updater": updater.state_dict()}, updater)


# --- other things to save, other places to go on from -----------------------------------------------------------------


def test_a_plain_object_is_saved_in_place_of_the_trainer(tmp_path: Path) -> None:
    def run(limit: int) -> Trainer:
        trainer = _trainer(tmp_path / "trainer", 2)
        torch.manual_seed(limit)
        model = nn.Linear(2, 2)

        def train(_trainer: Any) -> None:
            with torch.no_grad():
                model.weight.add_(1)

        trainer = Trainer(trainer.updater, (limit, "iteration"), out=tmp_path / "other", extensions=[train])
        trainer.extend(Snapshot(target=model, every=(2, "iteration"), max_size=-1))
        trainer.run()
        return trainer

    run(5)
    first = RunFolder(tmp_path / "other").read(5)
    assert set(first.model) == {"weight", "bias"}
    # The trainer's own counters are not brought back; the object's iterations are counted on.
    run(3)
    assert _saved(tmp_path / "other") == [2, 4, 5, 7, 8]
    second = RunFolder(tmp_path / "other").read(8)
    assert torch.equal(second.model["weight"], first.model["weight"] + 3)


def test_an_object_with_any_other_state_is_saved_too(tmp_path: Path) -> None:
    class Counts:
        number = 0

        def state_dict(self) -> dict[str, Any]:
            return {"number": self.number, "list": [torch.ones(1)]}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.number = state["number"]

    def run() -> int:
        counts = Counts()

        def count(_trainer: Any) -> None:
            counts.number += 1

        trainer = Trainer(_trainer(tmp_path, 1).updater, (3, "iteration"), out=tmp_path, extensions=[count])
        trainer.extend(Snapshot(target=counts))
        trainer.run()
        return counts.number

    assert [run(), run()] == [3, 6]


@pytest.mark.parametrize("change", ["new", "gone"])
def test_strict_makes_a_difference_of_extensions_an_error(tmp_path: Path, change: str) -> None:
    class Remembers:
        name = "remembers"

        def __call__(self, trainer: Any) -> None: ...

        def state_dict(self) -> dict[str, Any]:
            return {}

    before, after = ([], [Remembers()]) if change == "new" else ([Remembers()], [])
    _trainer(tmp_path, 3, *before).run()
    with pytest.raises(StateError, match="remembers"):
        _trainer(tmp_path, 5, *after, strict=True).run()
    _trainer(tmp_path, 5, *after).run()
    _trainer(tmp_path, 6, *after, strict=True).run()


def test_a_state_of_an_error_can_be_named(tmp_path: Path) -> None:
    def fail(trainer: Any) -> None:
        if trainer.updater.state.iteration == 5:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        _trainer(tmp_path, 9, fail, snapshot_on_error=True).run()
    assert _trained(_trainer(tmp_path, 4)) == 4
    for name in ("00000005-error", tmp_path / "generations" / "00000005-error"):
        assert _trained(_trainer(tmp_path, 3, resume_from=name)) == 5


def test_the_last_state_is_saved_though_another_extension_fails_to_close(tmp_path: Path) -> None:
    class Closes(Extension):
        def __call__(self, trainer: Any) -> None: ...

        def finalize(self, trainer: Any) -> None:
            raise OSError("full")

    trainer = _trainer(tmp_path, 3, Closes())
    with pytest.raises(OSError, match="full"):
        trainer.run()
    assert trainer.status == "failed"
    assert _saved(tmp_path) == [2, 3]


def test_what_was_not_asked_before_an_error_fires_late_and_once(tmp_path: Path) -> None:
    """The state of an error may be saved before a trigger of its iteration was asked (IT-7)."""
    fired: list[int] = []

    def run(*, fails: bool, **settings: Any) -> None:
        trainer = _trainer(tmp_path, 9, snapshot_on_error=True, **settings)

        def fail(trainer: Any) -> None:
            if fails:
                raise ValueError("broken")

        trainer.extend(fail, trigger=(4, "iteration"), priority=200)
        trainer.extend(lambda t: fired.append(t.updater.state.iteration), "look", trigger=(4, "iteration"))
        trainer.run()

    with pytest.raises(ValueError, match="broken"):
        run(fails=True)
    assert fired == []
    run(fails=False, resume_from="00000004-error")
    assert fired == [5, 8]


def _trained(trainer: Trainer) -> int:
    trainer.run()
    return trainer.updater.state.iteration


def test_a_generation_is_also_named_by_its_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _trainer(tmp_path / "run", 6, max_size=-1).run()
    monkeypatch.chdir(tmp_path)
    assert _trained(_trainer(tmp_path / "run", 4, resume_from="run/generations/00000004")) == 4
    assert "set aside" in caplog.text
    assert "00000006" in caplog.text
    (aside,) = (tmp_path / "run" / "generations" / "set-aside").glob("*/00000006")
    assert _trained(_trainer(tmp_path / "run", 4, resume_from=aside)) == 6


def test_a_new_run_may_begin_with_a_generation_of_another(tmp_path: Path) -> None:
    straight = _trainer(tmp_path / "straight", 9)
    straight.run()
    _trainer(tmp_path / "one", 6).run()
    source = tmp_path / "one" / "generations" / "00000006"
    forked = _trainer(tmp_path / "two", 9, resume_from=source)
    forked.run()
    assert torch.equal(_parameters(straight)[0], _parameters(forked)[0])
    assert _saved(tmp_path / "one") == [2, 4, 6]
    assert _saved(tmp_path / "two") == [8, 9]
    with pytest.raises(BadInputError, match="has generations of its own"):
        _trainer(tmp_path / "two", 12, resume_from=source).run()
    with pytest.raises(BadInputError, match="is no generation"):
        _trainer(tmp_path / "three", 12, resume_from=tmp_path / "nowhere").run()


@pytest.mark.parametrize("mode", ["min", "max"])
def test_as_many_best_states_stay_as_were_asked_for(tmp_path: Path, mode: str) -> None:
    losses = [5.0, 5, 4, 4, 4, 4, 3, 3, 2, 2, 9, 9, 9, 9, 9, 9]  # 4 comes twice: the older one keeps its place
    told = losses if mode == "min" else [-loss for loss in losses]
    _trainer(tmp_path, 16, losses=told, monitor="loss", mode=mode, best_size=3, max_size=2).run()
    assert [e["iteration"] for e in _journal(tmp_path) if e["kind"] == "best"] == [2, 4, 8, 10]
    assert _saved(tmp_path) == [4, 8, 10, 14, 16]


def test_snapshots_beyond_the_number_go_also_when_they_ended_a_session(tmp_path: Path) -> None:
    for limit in (3, 5, 12):
        _trainer(tmp_path, limit, max_size=2).run()
    assert _saved(tmp_path) == [10, 12]


@pytest.mark.parametrize("wrong", [3, ["loss"], True])
def test_a_monitor_that_is_no_name_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"monitor must be the name of an observed value, not .*validation/loss"):
        Snapshot(monitor=wrong)


@pytest.mark.parametrize("wrong", [True, 1.5, ["00000100"]])
def test_what_names_no_generation_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"resume_from must be an iteration, or the name.*autoload does so"):
        Snapshot(resume_from=wrong)


@pytest.mark.parametrize("trigger", [None, (1, "iteration")])
def test_a_watched_value_may_be_a_pair_or_nothing_that_counts(tmp_path: Path, trigger: Any) -> None:
    class Reporting(CountingUpdater):
        def update(self) -> None:
            report("pair", (5.0 - self.state.iteration, 2))
            report("vector", torch.zeros(3))
            super().update()

    results: dict[str, list[Any]] = {"pair": [], "vector": []}
    for key, found in results.items():
        trainer = Trainer(Reporting(), (2, "iteration"), tmp_path / key)
        trainer.extend(Snapshot(monitor=key, every=(1, "iteration"), on_result=found.append), trigger=trigger)
        trainer.run()
    for key, best in (("pair", True), ("vector", False)):
        assert ["best" in result.reasons for result in results[key]] == [best, best]
