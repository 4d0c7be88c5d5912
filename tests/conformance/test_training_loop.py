"""The rule tables of the training loop, and the rows of existing systems with which they agree."""

from __future__ import annotations

import json
import logging
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_stand_ins import CountingUpdater, ListOfSnapshots

from ostinato.extensions import Snapshot, StandardEvaluator
from ostinato.loop import (
    DictSummary,
    Extension,
    OnceTrigger,
    StandardUpdater,
    Summary,
    Trainer,
    UpdaterState,
    make_extension,
    report,
    scope,
)

ERRORS = {"ValueError": ValueError, "TypeError": TypeError, "RuntimeError": RuntimeError}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cases(golden: Path):
    def read(name: str) -> list[dict[str, Any]]:
        return json.loads((golden / "training-loop" / f"{name}.json").read_text())["cases"]

    return read


def number(value: Any) -> Any:
    return {"nan": math.nan, "inf": math.inf, "{}": {}}.get(value, value) if isinstance(value, str) else value


# --- trainer and extensions ---------------------------------------------------------------------------------------


def test_order_of_one_iteration(cases) -> None:
    for case in cases("extension_order.rule"):
        trace: list[str] = []

        def note(text: str, answer: Any, trace: list[str] = trace) -> Any:
            trace.append(text)
            return answer

        updater = CountingUpdater()
        trainer = Trainer(updater, lambda t, note=note: note("test stop", t.updater.state.iteration >= 1))
        for name, priority in case["priorities"].items():
            trainer.extend(
                lambda t, name=name, note=note: note(f"call {name}", None),
                name=name,
                trigger=lambda t, name=name, note=note, case=case: note(f"test {name}", case["fires"][name]),
                priority=priority,
            )
        trainer.run()
        assert trace[1:] == case["trace"]  # the first is the check before the first update


def test_order_agrees_with_paddlespeech(cases) -> None:
    for case in cases("extension_order.paddlespeech"):
        orders: dict[str, list[str]] = {"initialize_order": [], "call_order": [], "finalize_order": []}

        class Noting(Extension):
            def __init__(self, letter: str, orders: dict[str, list[str]]) -> None:
                self.letter, self.orders = letter, orders

            def initialize(self, trainer: Any) -> None:
                self.orders["initialize_order"].append(self.letter)

            def __call__(self, trainer: Any) -> None:
                self.orders["call_order"].append(self.letter)

            def finalize(self, trainer: Any) -> None:
                self.orders["finalize_order"].append(self.letter)

        trainer = Trainer(CountingUpdater(), (1, "iteration"))
        for letter, priority in case["priorities"].items():
            trainer.extend(Noting(letter, orders), priority=priority)
        trainer.run()
        for name, order in orders.items():
            if name in case:
                assert order == case[name], case


class ExtA(Extension):
    def __call__(self, trainer: Any) -> None: ...


class ExtB(ExtA):
    @property
    def default_name(self) -> str:
        return "bee"


class ExtC(ExtA):
    name = "cee"


class Plain:
    def __call__(self, trainer: Any) -> None: ...

    def meth(self, trainer: Any) -> None: ...


def _log_function() -> Any:
    def log(trainer: Any) -> None: ...

    return log


def _registrations(texts: list[str]) -> list[tuple[Any, Any]]:
    """What the sentences of the table mean: (extension, name)."""
    result: list[tuple[Any, Any]] = []
    for text in texts:
        extension: Any
        what, _, name = text.partition(" name=")
        if what.startswith("name="):
            what, name = "ExtA()", what[len("name=") :]
        if what in ("same object", "same"):
            extension = result[0][0]
        elif what == "another":
            extension = type(result[0][0])()
        elif what.startswith("object with name attribute"):
            extension = Plain()
            extension.name = "plain"
        elif what.startswith("object of class Plain"):
            extension = Plain()
        elif what == "function training":

            def training(trainer: Any) -> None: ...

            extension = training
        elif what.startswith(("function log", "same function log")):
            extension = _log_function()
        elif what == "lambda":
            extension = lambda trainer: None  # noqa: E731
        elif what == "bound method meth":
            extension = Plain().meth
        elif what == "functools.partial":
            extension = partial(print)
        elif what == "not callable object":
            extension = object()
        else:
            extension = {"ExtA()": ExtA, "ExtB()": ExtB, "ExtC()": ExtC, "same ExtA object": ExtA}[what]()
        given: Any = {"": None, "empty string": "", "7 (an int)": 7}.get(name, name)
        result.append((extension, "a\nb" if text == "name with a line break" else given))
    return result


def _names(registrations: list[tuple[Any, Any]]) -> list[str]:
    trainer = Trainer(CountingUpdater(), (1, "iteration"))
    names = []
    for extension, name in registrations:
        before = set(trainer.state_dict()["triggers"])
        try:
            trainer.extend(extension, name=name)
        except (ValueError, TypeError) as error:
            names.append(f"error:{'ValueError' if isinstance(error, ValueError) else 'TypeError'}")
            assert set(trainer.state_dict()["triggers"]) == before
        else:
            (new,) = set(trainer.state_dict()["triggers"]) - before
            names.append(new)
    return names


def test_extension_names(cases) -> None:
    for case in cases("extension_names.rule"):
        texts = case["registrations"]
        if texts[0].startswith("trainer 1"):
            e1, e2 = ExtA(), ExtA()
            assert [_names([(e1, None), (e2, None)]), _names([(e2, None), (e1, None)])] == case["names"]
            continue
        texts = ["ExtA()" if text == "name with a line break" else text for text in texts]
        registrations = _registrations(texts)
        if "name with a line break" in case["registrations"]:
            registrations[-1] = (ExtA(), "a\nb")
        assert _names(registrations) == case["names"], case


def test_extension_names_agree_with_paddlespeech(cases) -> None:
    departures = ("same", "object with __call__ only", "bound method", "ExtA() name=empty string", "trainer 1")
    compared = 0
    for case in cases("extension_names.paddlespeech"):
        texts = case["registrations"]
        if texts[0].startswith(departures):
            continue
        compared += 1
        if texts[0] == "StandardEvaluator":  # the last of the row is upstream's own writer
            made = [StandardEvaluator(torch.nn.Identity(), []), StandardEvaluator(torch.nn.Identity(), [])]
            assert _names([(extension, None) for extension in [*made, Snapshot(), Snapshot()]]) == case["names"][:4]
        else:
            assert _names(_registrations(texts)) == case["names"], case
    assert compared == 12


def test_make_extension(cases) -> None:
    for case in cases("make_extension.paddlespeech"):
        arguments = dict(case["arguments"])
        if "trigger" in arguments:
            arguments["trigger"] = tuple(arguments["trigger"])

        def g(trainer: Any) -> None: ...

        made = make_extension(**arguments)(g)
        assert made is g
        assert list(made.trigger) == case["trigger"]
        assert (made.default_name, made.priority) == (case["default_name"], case["priority"])
        assert not any(hasattr(made, hook) for hook in ("initialize", "finalize", "on_error"))


class Err1(Exception):
    pass


class Err2(Exception):
    pass


KINDS: dict[str, type[BaseException]] = {
    "Err1": Err1,
    "Err2": Err2,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": SystemExit,
}


def _failures(scenario: str) -> dict[str, type[BaseException]]:
    """What raises what, as told by the sentence of the scenario: event -> exception."""
    failures: dict[str, type[BaseException]] = {}
    for part in scenario.split(","):
        words = part.split()
        if "raises" not in words:
            continue
        kind = KINDS[words[words.index("raises") + 1]]
        if words[0] == "update":
            failures[f"update {words[1] if words[1].isdigit() else 1}"] = kind
        elif words[0] == "extension":
            failures[f"call {words[1]}@1"] = kind
        elif words[0] == "restore":
            failures["restore"] = kind
        else:  # "finalize of a", "initialize of b", "on_error of a"
            failures[f"{words[0]} {words[2]}"] = kind
    return failures


def test_trainer_events(cases) -> None:
    for case in cases("trainer_events.rule"):
        scenario, trace = case["scenario"], []
        failures = _failures(scenario)

        def event(text: str, failures: Any = failures, trace: list[str] = trace) -> None:
            trace.append(text)
            kind = failures.get(" ".join(text.split()[:2]) if text.startswith("on_error") else text)
            if kind is not None:
                raise kind

        class Updater(CountingUpdater):
            def update(self, event: Any = event) -> None:
                event(f"update {self.state.iteration + 1}")
                super().update()

            def finalize(self, event: Any = event) -> None:
                event("finalize updater")

        class Noting(Extension):
            def __init__(self, letter: str, event: Any, stops: bool) -> None:
                self.letter, self.event, self.stops = letter, event, stops

            def initialize(self, trainer: Any) -> None:
                self.event(f"initialize {self.letter}")

            def __call__(self, trainer: Any) -> None:
                if self.stops:
                    trainer.request_stop()
                self.event(f"call {self.letter}@{trainer.updater.state.iteration}")

            def on_error(self, trainer: Any, error: BaseException, traceback: Any) -> None:
                self.event(f"on_error {self.letter} {type(error).__name__}")

            def finalize(self, trainer: Any) -> None:
                self.event(f"finalize {self.letter}")

        class Restoring:
            """Restores, and marks where the triggers are initialized."""

            name = "restoring"

            def __init__(self, event: Any, at: int) -> None:
                self.event, self.at = event, at

            def restore(self, trainer: Any) -> None:
                self.event("restore")
                trainer.updater.state.iteration = self.at

            def __call__(self, trainer: Any) -> None: ...

        at_limit = "limit already reached" in scenario
        total = 3 if "of 3" in scenario else 2
        trainer = Trainer(Updater(), (total, "iteration"))
        trigger = OnceTrigger()
        trigger.initialize = lambda trainer, event=event: event("initialize triggers")  # type: ignore[method-assign]
        restoring = Restoring(event, total if at_limit else 0)
        trainer.extend(restoring, trigger=trigger, priority=1000)
        letters = sorted(
            {
                word
                for row in case["trace"]
                for word in row.replace("@", " ").split()
                if len(word) == 1 and word.isalpha()
            }
        )
        order = [row.split()[1] for row in case["trace"] if row.startswith("initialize ") and "triggers" not in row]
        for letter in letters:
            priority = 100 - (order.index(letter) if letter in order else len(order))
            trainer.extend(
                Noting(letter, event, stops=f"extension {letter} asks to stop" in scenario), letter, priority=priority
            )
        if not letters:
            trainer.extend(Noting("a", event, False), "a")

        raised: BaseException | None = None
        try:
            trainer.run()
        except BaseException as error:
            raised = error
        assert trace == case["trace"], scenario
        assert (type(raised).__name__ if raised else None) == case["raised"], scenario
        assert trainer.status == case["status"], scenario
        later = [note for note in getattr(raised, "__notes__", []) if note.startswith("then ")]
        assert len(later) == len(case["notes"]), scenario
        assert all(kind in note for kind, note in zip(case["notes"], later, strict=True))
        if "second_run" in case:
            with pytest.raises(ERRORS[case["second_run"]]):
                trainer.run()


class Killed(BaseException):
    pass


def test_whole_runs_over_kills_and_resumes(cases) -> None:
    logging.disable(logging.ERROR)  # the kills are on purpose
    try:
        for case in cases("resume.rule"):
            _walk_kills(case)
    finally:
        logging.disable(logging.NOTSET)


def _walk_kills(case: dict[str, Any]) -> None:
    kept: list[dict[str, Any]] = []
    on_kept_line: dict[str, list[int]] = {name: [] for name in case["triggers"]}
    for number_of_segment, segment in enumerate(case["segments"]):
        known = len(kept)
        fired: dict[str, list[int]] = {name: [] for name in case["triggers"]}
        updater = CountingUpdater(case["updates_per_epoch"])
        trainer = Trainer(updater, (case["total"], "iteration"))
        for name, trigger in case["triggers"].items():
            trainer.extend(
                lambda t, mine=fired[name]: mine.append(t.updater.state.iteration), name=name, trigger=tuple(trigger)
            )
        trainer.extend(ListOfSnapshots(kept), trigger=(case["snapshot_period"], "iteration"))

        def kill(t: Trainer, at: int | None = segment["killed_after"]) -> None:
            if t.updater.state.iteration == at:
                raise Killed

        trainer.extend(kill, name="kill", priority=-1000)
        if segment["killed_after"] is None:
            trainer.run()
        else:
            with pytest.raises(Killed):
                trainer.run()
        assert fired == segment["fired"], case
        assert [state["updater"]["state"]["iteration"] for state in kept[known:]] == segment["snapshots"], case
        assert updater.state.epoch == segment["epoch_after"], case
        following = case["segments"][number_of_segment + 1 :]
        kept_until = following[0]["starts_from"] if following else case["total"]
        for name, iterations in fired.items():
            on_kept_line[name] += [iteration for iteration in iterations if iteration <= kept_until]
    assert on_kept_line == case["fired_on_the_kept_line"], case


# --- reporter, summaries, data ------------------------------------------------------------------------------------


def test_reporter(cases) -> None:
    first, second, third = (case["result"] for case in cases("reporter.paddlespeech"))
    outer: dict[str, Any] = {}
    inner: dict[str, Any] = {}
    report("lost", 0)
    with scope(outer):
        report("x", 1)
        report("x", 2)
        with scope(inner):
            report("x", 3)
            report("y", 4)
        report("z", 5)
    report("lost", 6)
    assert {"outer": outer, "inner": inner} == first
    outer = {}
    try:
        with scope(outer):
            report("x", 1)
            raise Err1
    except Err1:
        pass
    report("y", 2)
    assert outer == second["outer"]
    outer = {}
    with scope(outer):
        report("p", 1)
        with scope(None):
            report("q", 2)
        report("r", 3)
    assert outer == third["outer"]


def _close(found: float, expected: Any, relative: float, absolute: float) -> bool:
    expected = number(expected)
    return (
        math.isnan(found)
        if expected is None or math.isnan(expected)
        else abs(found - expected) <= (relative * abs(expected) + absolute)
    )


def test_summary(cases) -> None:
    for case in cases("summary.paddlespeech"):
        values = [number(value) for value in case["values"]]
        summary = Summary()
        for value, weight in zip(values, case["weights"] or [1] * len(values), strict=True):
            summary.add(value, weight)
        mean, deviation = summary.make_statistics()
        scale = 1e-12 * max((abs(value) for value in values), default=0.0)
        assert _close(mean, case["exact_mean"], 0, scale), case
        assert _close(deviation, case["exact_std"], 1e-9, scale), case


def test_merged_summaries(cases) -> None:
    for case in cases("summary.rule"):
        cut = case.get("merged_from_parts_of", [len(case["values"])])[0]
        parts = Summary(), Summary()
        for place, (value, weight) in enumerate(zip(case["values"], case["weights"], strict=True)):
            parts[place >= cut].add(number(value), weight)
        parts[0].merge(parts[1])
        mean, deviation = parts[0].make_statistics()
        assert _close(mean, case["mean"], 1e-12, 1e-15), case
        assert _close(deviation, case["std"], 1e-12, 1e-15), case


def test_dict_summary(cases) -> None:
    for case in cases("dict_summary.paddlespeech"):
        summary = DictSummary()
        for row in case["added"]:
            summary.add({key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})
        assert summary.compute_mean() == pytest.approx(case["mean"], rel=1e-12)
        assert summary.make_statistics() == pytest.approx(case["statistics"], rel=1e-12)


def test_epoch_counting(cases) -> None:
    for case in cases("epoch_counting.paddlespeech"):
        if not isinstance(case["updates_per_epoch"], int):
            continue
        state = UpdaterState(updates_per_epoch=case["updates_per_epoch"])
        for expected in case["iteration_epoch_after_each_update"]:
            state.advance()
            assert [state.iteration, state.epoch] == expected


class SeeingUpdater(StandardUpdater):
    """Notes the batches it sees and learns nothing."""

    def __init__(self, loader: Any) -> None:
        super().__init__({}, {}, loader)
        self.seen: list[Any] = []

    def update_core(self, batch: Any) -> None:
        self.seen.append(batch)


class PassLoader:
    """Yields [pass, position], told the pass by set_epoch."""

    def __init__(self, length: int) -> None:
        self.length, self.epoch = length, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Any:
        return iter([[self.epoch, position] for position in range(self.length)])


class Stream:
    """Passes of different lengths, and no length."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = list(lengths)

    def __iter__(self) -> Any:
        return iter(range(self.lengths.pop(0)))


class Sized:
    """A loader that says how large its batches are."""

    def __init__(self, length: int, batch_size: int) -> None:
        self.length, self.batch_size = length, batch_size

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Any:
        return iter(range(self.length))


def test_order_of_data_over_resumes(cases) -> None:
    for case in cases("data_order.rule"):
        if "segments" not in case:
            continue
        saved: dict[int, dict[str, Any]] = {}
        for segment in case["segments"]:
            updater = SeeingUpdater(PassLoader(case["updates_per_epoch"]))
            if segment["starts_from"]:
                updater.load_state_dict(saved[segment["starts_from"]])
            for iteration in range(segment["starts_from"] + 1, (segment["killed_after"] or case["total"]) + 1):
                updater.update()
                if iteration % case["snapshot_period"] == 0:
                    saved[iteration] = updater.state_dict()
            assert updater.seen == segment["seen"], case
            state = saved[segment["saved"]["iteration"]]["state"]
            assert {name: state[name] for name in segment["saved"]} == segment["saved"]


def test_passes_of_a_loader_without_length(cases) -> None:
    for case in cases("data_order.rule"):
        if "loader_without_length_passes" not in case:
            continue
        updater = SeeingUpdater(Stream(case["loader_without_length_passes"]))
        for expected in case["iteration_epoch_after_each_update"]:
            updater.update()
            assert [updater.state.iteration, updater.state.epoch] == expected


def test_changed_batch_size(cases) -> None:
    for case in cases("data_order.rule"):
        if "global_batch_changed" not in case:
            continue
        old, new = case["global_batch_changed"]["old"], case["global_batch_changed"]["new"]
        updater = SeeingUpdater(Sized(old["L"], old["batch"]))
        updater.state.samples_in_epoch = case["samples_in_epoch"]
        updater.state.iteration_in_epoch = case["samples_in_epoch"] // old["batch"]
        resumed = SeeingUpdater(Sized(new["L"], new["batch"]))
        resumed.load_state_dict(updater.state_dict())
        assert resumed.state.iteration_in_epoch == case["skip_batches"]
        assert case["samples_in_epoch"] - resumed.state.samples_in_epoch == case["seen_again"]
        resumed.update()
        assert resumed.seen == [case["skip_batches"]]
