from __future__ import annotations

import contextlib
import json
import logging
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_threads import on_threads

from ostinato.errors import BadInputError, StateError
from ostinato.extensions import StackDump
from ostinato.loop import Extension, IntervalTrigger, LimitTrigger, Trainer, report
from ostinato.loop.triggers import EarlyStoppingTrigger


class Killed(BaseException):
    pass


def test_a_plain_function_is_an_extension(counting_updater) -> None:
    seen = []
    trainer = Trainer(counting_updater(), (3, "iteration"))
    trainer.extend(lambda trainer: seen.append(trainer.updater.state.iteration))
    trainer.run()
    assert seen == [1, 2, 3]
    assert trainer.status == "finished"


def test_constructing_and_registering_create_nothing(counting_updater, tmp_path) -> None:
    trainer = Trainer(counting_updater(), (3, "iteration"), out=tmp_path / "a" / "b")
    trainer.extend(print)
    assert list(tmp_path.iterdir()) == []
    trainer.observation["x"] = 1  # not shared with anything
    assert Trainer(counting_updater(), (3, "iteration")).observation == {}


def test_every_iteration_has_an_observation_of_its_own(counting_updater) -> None:
    kept = []

    class Reporting(counting_updater):
        def update(self) -> None:
            super().update()
            report("loss", self.state.iteration)

    trainer = Trainer(Reporting(), (2, "iteration"))
    trainer.extend(lambda t: report("extra", -t.updater.state.iteration), name="first", priority=200)
    trainer.extend(lambda t: kept.append(t.observation), name="second")
    trainer.run()
    report("lost", 1)
    assert kept == [{"loss": 1, "extra": -1}, {"loss": 2, "extra": -2}]


def test_a_trainer_within_an_extension_of_another_keeps_to_its_own_observation(counting_updater) -> None:
    kept = []

    class Reporting(counting_updater):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def update(self) -> None:
            super().update()
            report(self.name, self.state.iteration)

    def train_another(trainer: Any) -> None:
        inner = Trainer(Reporting("inner"), (2, "iteration"), "inner")
        inner.extend(lambda t: kept.append(t.observation), name="look")
        inner.run()
        report("after", trainer.updater.state.iteration)

    trainer = Trainer(Reporting("outer"), (2, "iteration"))
    trainer.extend(train_another, priority=200)
    trainer.extend(lambda t: kept.append(t.observation), name="look")
    trainer.run()
    inside = [{"inner": 1}, {"inner": 2}]
    assert kept == [*inside, {"outer": 1, "after": 1}, *inside, {"outer": 2, "after": 2}]


def test_an_error_of_a_trainer_within_another_is_one_of_both(counting_updater) -> None:
    def fail(trainer: Any) -> None:
        raise ValueError("no")

    def train_another(trainer: Any) -> None:
        Trainer(counting_updater(), None, "inner", [fail]).run()

    trainer = Trainer(counting_updater(), None, extensions=[train_another])
    with pytest.raises(ValueError, match="no") as caught:
        trainer.run()
    assert trainer.status == "failed"
    assert caught.value.__notes__ == ["at iteration 1, extension 'fail'", "at iteration 1, extension 'train_another'"]


def test_what_has_the_name_of_a_hook_and_cannot_be_called_is_none(counting_updater) -> None:
    class Odd:
        restore = initialize = finalize = on_error = state_dict = load_state_dict = None
        fails = False

        def __call__(self, trainer: Any) -> None:
            if self.fails:
                raise ValueError("no")

    odd = Odd()
    trainer = Trainer(counting_updater(), (2, "iteration"), extensions=[odd])
    trainer.load_state_dict(trainer.state_dict())
    trainer.run()
    odd.fails = True
    with pytest.raises(ValueError, match="no") as caught:
        Trainer(counting_updater(), (2, "iteration"), extensions=[odd]).run()
    assert caught.value.__notes__ == ["at iteration 1, extension 'Odd'"]


def test_the_message_says_iteration_phase_and_name(counting_updater, caplog) -> None:
    trainer = Trainer(counting_updater(), (5, "iteration"))

    def breaks(trainer: Trainer) -> None:
        raise ValueError("no")

    trainer.extend(breaks, trigger=(3, "iteration"))
    with pytest.raises(ValueError, match="no") as caught:
        trainer.run()
    assert caught.value.__notes__ == ["at iteration 3, extension 'breaks'"]
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "ValueError: no (at iteration 3, extension 'breaks')"
    ]


def test_a_failing_trigger_counts_as_its_extension(counting_updater) -> None:
    trainer = Trainer(counting_updater(), (5, "iteration"))

    def breaks(trainer: Trainer) -> bool:
        raise KeyError("loss")

    trainer.extend(print, name="plot", trigger=breaks, priority=-200)
    with pytest.raises(KeyError) as caught:
        trainer.run()
    assert caught.value.__notes__ == ["at iteration 1, extension 'plot'"]


@settings(max_examples=150)
@given(
    failing=st.dictionaries(
        st.tuples(st.integers(0, 3), st.sampled_from(["restore", "initialize", "call", "on_error", "finalize"])),
        st.sampled_from([ValueError, KeyboardInterrupt, SystemExit]),
        max_size=6,
    ),
    update_fails=st.booleans(),
)
def test_every_initialized_extension_is_finalized_once_whatever_fails(counting_updater, failing, update_fails) -> None:
    events: list[tuple[int, str]] = []

    class Failing(Extension):
        def __init__(self, number: int) -> None:
            self.number = number

        def _event(self, name: str) -> None:
            if (self.number, name) in failing:
                events.append((self.number, f"failed {name}"))
                raise failing[self.number, name](f"{self.number} {name}")
            events.append((self.number, name))

        def restore(self, trainer: Any) -> None:
            self._event("restore")

        def initialize(self, trainer: Any) -> None:
            self._event("initialize")

        def __call__(self, trainer: Any) -> None:
            self._event("call")

        def on_error(self, trainer: Any, error: BaseException, traceback: Any) -> None:
            self._event("on_error")

        def finalize(self, trainer: Any) -> None:
            self._event("finalize")

    class Updater(counting_updater):
        finalized = 0

        def update(self) -> None:
            if update_fails:
                raise OSError("update")
            super().update()

        def finalize(self) -> None:
            self.finalized += 1
            events.append((-1, "finalize"))

    updater = Updater()
    trainer = Trainer(updater, (2, "iteration"), extensions=[Failing(number) for number in range(4)])
    logging.disable(logging.CRITICAL)
    try:
        trainer.run()
    except BaseException as error:
        left: BaseException | None = error
    else:
        left = None
    finally:
        logging.disable(logging.NOTSET)
    failed = left is not None
    for number in range(4):
        mine = [name.removeprefix("failed ") for who, name in events if who == number]
        initialized = (number, "initialize") in events
        waiting = (number, "restore") in events and "initialize" not in mine
        assert mine.count("finalize") == (1 if initialized or waiting else 0)
        assert mine.count("on_error") <= (1 if initialized else 0)
    assert updater.finalized == 1
    assert failed == (trainer.status == "failed")
    assert failed == (update_fails or any(name.startswith("failed") for _, name in events))
    finalized = [number for number, name in events if name.removeprefix("failed ") == "finalize"]
    entered = [number for number, name in events if name == "initialize"]
    assert finalized[: len(entered)] == entered  # in order, then who has only restored, the updater last
    assert finalized[-1] == -1
    # What leaves the run is the first thing that went wrong; a failing on_error never comes first.
    wrong = [(number, name.removeprefix("failed ")) for number, name in events if name.startswith("failed")]
    main = [f"{number} {name}" for number, name in wrong if name in ("restore", "initialize", "call")]
    if update_fails and not main:
        main = ["update"] if len(entered) == 4 else main
    closing = [f"{number} {name}" for number, name in wrong if name == "finalize"]
    assert (str(left) if failed else None) == next(iter([*main, *closing]), None)


def test_who_has_restored_is_finalized_even_if_its_turn_to_initialize_never_came(counting_updater) -> None:
    events: list[str] = []

    class Store(Extension):
        priority = -100

        def restore(self, trainer: Any) -> None:
            events.append("restore")

        def initialize(self, trainer: Any) -> None:
            events.append("initialize")

        def on_error(self, trainer: Any, error: BaseException, traceback: Any) -> None:
            events.append("on_error")

        def finalize(self, trainer: Any) -> None:
            events.append("finalize")

        def __call__(self, trainer: Any) -> None: ...

    class Breaks(Extension):
        def initialize(self, trainer: Any) -> None:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Trainer(counting_updater(), None, extensions=[Breaks(), Store()]).run()
    assert events == ["restore", "finalize"]


def test_a_handler_that_fails_is_noted_and_does_not_hide_the_error(counting_updater, caplog) -> None:
    class Bad(Extension):
        def __call__(self, trainer: Any) -> None:
            raise ValueError("first")

        def on_error(self, trainer: Any, error: BaseException, traceback: Any) -> None:
            raise KeyError("second")

    trainer = Trainer(counting_updater(), (5, "iteration"), extensions=[Bad()])
    with pytest.raises(ValueError, match="first") as caught:
        trainer.run()
    assert caught.value.__notes__[-1] == "then on_error of extension 'Bad' raised KeyError: 'second'"


def test_a_stop_request_lets_the_iteration_end_with_all_its_extensions(counting_updater) -> None:
    seen = []
    trainer = Trainer(counting_updater(), None)
    trainer.extend(lambda t: t.request_stop("enough"), name="stop", trigger=(3, "iteration"), priority=300)
    trainer.extend(lambda t: seen.append(t.updater.state.iteration), name="late", priority=-100)
    trainer.run()
    assert (seen, trainer.status, trainer.stop_reason) == ([1, 2, 3], "stopped", "enough")


def test_a_stop_requested_before_the_run_means_no_update(counting_updater) -> None:
    trainer = Trainer(counting_updater(), (5, "iteration"))
    trainer.request_stop()
    trainer.run()
    assert (trainer.updater.state.iteration, trainer.status) == (0, "stopped")


def test_a_stop_can_be_requested_from_another_thread(counting_updater) -> None:
    trainer = Trainer(counting_updater(), None)
    timer = threading.Timer(0.05, trainer.request_stop)
    timer.start()
    trainer.run()
    timer.join()
    assert trainer.status == "stopped"


def test_a_stop_at_the_limit_is_an_ordinary_end(counting_updater) -> None:
    trainer = Trainer(counting_updater(), (1, "iteration"), extensions=[lambda t: t.request_stop()])
    trainer.run()
    assert trainer.status == "finished"


def test_one_trigger_object_for_two_extensions_answers_both_alike(counting_updater) -> None:
    fired: dict[str, list[int]] = {"a": [], "b": [], "late": []}
    shared = IntervalTrigger(2, "iteration")
    trainer = Trainer(counting_updater(), (5, "iteration"))
    for name, priority in (("a", 100), ("b", 50), ("late", -100)):
        trainer.extend(
            lambda t, mine=fired[name]: mine.append(t.updater.state.iteration),
            name=name,
            trigger=shared,
            priority=priority,
        )
    trainer.run()
    assert fired == {"a": [2, 4], "b": [2, 4], "late": [2, 4]}


def test_late_extensions_save_the_triggers_of_each_other_after_they_were_asked(
    counting_updater, list_of_snapshots
) -> None:
    first: list[dict[str, Any]] = []
    second: list[dict[str, Any]] = []
    trainer = Trainer(counting_updater(), (4, "iteration"))
    trainer.extend(list_of_snapshots(first), "first", trigger=(2, "iteration"))
    trainer.extend(list_of_snapshots(second), "second", trigger=(4, "iteration"))
    trainer.run()
    assert first[-1]["triggers"]["second"]["baseline"] == 4
    resumed = Trainer(counting_updater(), (5, "iteration"))
    again: list[dict[str, Any]] = []
    resumed.extend(list_of_snapshots(first), "first", trigger=(2, "iteration"))
    resumed.extend(list_of_snapshots(again), "second", trigger=(4, "iteration"))
    resumed.run()
    assert again == []


def test_everything_is_restored_before_anything_is_initialized(counting_updater, list_of_snapshots) -> None:
    kept: list[dict[str, Any]] = []
    Trainer(counting_updater(), (4, "iteration"), extensions=[list_of_snapshots(kept)]).run()
    seen = []

    class Looking(Extension):
        priority = 1000

        def initialize(self, trainer: Any) -> None:
            seen.append(trainer.updater.state.iteration)

        def __call__(self, trainer: Any) -> None: ...

    trainer = Trainer(counting_updater(), (4, "iteration"), extensions=[Looking(), list_of_snapshots(kept)])
    trainer.run()
    assert seen == [4]
    assert (trainer.status, len(kept)) == ("finished", 4)  # already at the end: no update, nothing saved


def test_a_raised_limit_lets_a_finished_run_go_on(counting_updater, list_of_snapshots) -> None:
    kept: list[dict[str, Any]] = []
    for limit, expected in ((3, 3), (3, 3), (5, 5), (4, 5)):
        trainer = Trainer(counting_updater(), (limit, "iteration"), extensions=[list_of_snapshots(kept)])
        trainer.run()
        assert trainer.updater.state.iteration == expected


def test_elapsed_time_adds_up_over_processes(counting_updater, list_of_snapshots) -> None:
    now = [100.0]
    kept: list[dict[str, Any]] = []

    class Slow(counting_updater):
        def update(self) -> None:
            now[0] += 2.0
            super().update()

    first = Trainer(Slow(), (3, "iteration"), extensions=[list_of_snapshots(kept)], clock=lambda: now[0])
    assert first.elapsed_time == 0.0
    first.run()
    assert first.elapsed_time == 6.0
    now[0] += 1000.0  # nothing runs
    assert first.elapsed_time == 6.0
    second = Trainer(Slow(), (5, "iteration"), extensions=[list_of_snapshots(kept)], clock=lambda: now[0])
    second.run()
    assert second.elapsed_time == 10.0


def test_a_new_extension_starts_fresh_and_a_missing_one_is_told(counting_updater, caplog) -> None:
    class Remembering(Extension):
        def __init__(self) -> None:
            self.value = 0

        def __call__(self, trainer: Any) -> None:
            self.value += 1

        def state_dict(self) -> dict[str, Any]:
            return {"value": self.value}

        def load_state_dict(self, state: Any) -> None:
            self.value = state["value"]

    old = Trainer(counting_updater(), (2, "iteration"))
    old.extend(Remembering(), "kept")
    old.extend(Remembering(), "gone")
    old.run()
    state = json.loads(json.dumps(old.state_dict()))
    new = Trainer(counting_updater(), (2, "iteration"))
    kept, added = Remembering(), Remembering()
    new.extend(kept, "kept")
    new.extend(added, "added")
    with pytest.raises(RuntimeError, match=r"New here: added\. Only in the saved state: gone"):
        new.load_state_dict(state, strict=True)
    assert new.updater.state.iteration == 0
    with caplog.at_level(logging.INFO):
        new.load_state_dict(state)
    assert (kept.value, added.value, new.updater.state.iteration) == (2, 0, 2)
    assert "starting fresh: added" in caplog.text
    assert "ignored: gone" in caplog.text


def test_a_state_of_another_format_is_refused(counting_updater) -> None:
    with pytest.raises(ValueError, match="format 99"):
        Trainer(counting_updater(), None).load_state_dict({"format": 99})


def test_call_before_training_runs_once_in_a_fresh_run_only(counting_updater, list_of_snapshots) -> None:
    kept: list[dict[str, Any]] = []
    seen = []
    for limit in (2, 4):
        trainer = Trainer(counting_updater(), (limit, "iteration"))
        trainer.extend(
            lambda t: seen.append((t.updater.state.iteration, dict(t.observation))),
            name="look",
            trigger=(2, "iteration"),
            call_before_training=True,
        )
        trainer.extend(list_of_snapshots(kept))
        trainer.run()
    assert seen == [(0, {}), (2, {}), (4, {})]


def test_registering_during_or_after_the_run_is_refused(counting_updater) -> None:
    trainer = Trainer(counting_updater(), (1, "iteration"))
    trainer.extend(lambda t: t.extend(print, "new"), name="registers")
    with pytest.raises(RuntimeError, match="this trainer is running"):
        trainer.run()
    with pytest.raises(RuntimeError, match="this trainer is failed"):
        trainer.extend(print)


def test_an_extension_of_rank_0_does_not_run_elsewhere_and_its_trigger_is_asked(counting_updater) -> None:
    class CountedTrigger(IntervalTrigger):
        def __call__(self, trainer: Any) -> bool:
            asked.append(trainer.group.rank)
            return super().__call__(trainer)

    asked: list[int] = []
    ran: list[int] = []

    def rank(group: Any) -> None:
        trainer = Trainer(counting_updater(), (2, "iteration"), group=group)
        trainer.extend(lambda t: ran.append(t.group.rank), "writer", trigger=CountedTrigger(1, "iteration"), ranks=0)
        trainer.run()

    assert on_threads(rank) == [None, None]
    assert (sorted(asked), ran) == ([0, 0, 1, 1], [0, 0])


@pytest.mark.parametrize("ranks", [1, True, False, "0", None, [0]])
def test_only_all_ranks_or_rank_0_can_be_asked_for(counting_updater, ranks) -> None:
    with pytest.raises(ValueError, match="ranks must be 'all' or 0, not"):
        Trainer(counting_updater(), None).extend(print, ranks=ranks)


def test_extensions_are_found_by_name_and_named_by_object(counting_updater) -> None:
    class Owner:
        def method(self, trainer: Any) -> None: ...

    owner = Owner()
    trainer = Trainer(counting_updater(), None, extensions=[owner.method, print])
    assert trainer.name_of(owner.method) == "method"
    assert trainer.get_extension("print") is print
    with pytest.raises(ValueError, match="Registered are: method, print"):
        trainer.get_extension("plot")
    with pytest.raises(ValueError, match="is not registered"):
        trainer.name_of(len)


@pytest.mark.parametrize(
    ("stop", "length", "expected"),
    [
        ((10, "iteration"), None, 10),
        ((1.5, "epoch"), 3, 5),
        ((2, "epoch"), None, None),
        (None, 3, None),
        ([(10, "iteration"), (2, "epoch"), "1sec"], None, 10),
        ([(10, "iteration"), (2, "epoch"), "1sec"], 3, 6),
        (LimitTrigger(10, "iteration") & LimitTrigger(2, "epoch"), 3, None),
        (EarlyStoppingTrigger(monitor="loss", max_trigger=(4, "epoch")), 5, 20),
        ([lambda trainer: False], 3, None),
    ],
)
def test_the_last_iteration_is_known_from_the_limit(counting_updater, stop, length, expected) -> None:
    assert Trainer(counting_updater(length), stop).max_iteration == expected


@pytest.mark.parametrize(
    "stop",
    [
        LimitTrigger(10, "iteration"),
        [(10, "iteration"), lambda trainer: False],
        [EarlyStoppingTrigger(monitor="loss"), (12, "iteration"), (10, "iteration")],
        LimitTrigger(10, "iteration") | LimitTrigger(3600, "second"),
        EarlyStoppingTrigger(monitor="loss", max_trigger="10it"),
    ],
)
def test_a_trigger_written_as_a_fraction_of_the_training_knows_the_limit(counting_updater, stop) -> None:
    fired, ends = [], []

    def note(trainer: Any) -> None:
        fired.append(trainer.updater.state.iteration)
        ends.append(trainer.max_iteration)

    trainer = Trainer(counting_updater(), stop)
    trainer.extend(note, name="f", trigger="0.3dur")
    trainer.run()
    assert (fired, ends) == ([3, 6, 9], [10, 10, 10])
    assert trainer.updater.state.iteration == 10


def test_a_limit_that_other_things_need_too_ends_nothing_by_itself(counting_updater) -> None:
    trainer = Trainer(counting_updater(), LimitTrigger(10, "iteration") & (lambda trainer: False))
    with pytest.raises(ValueError, match="the end of this training is not known"):
        trainer.extend(print, trigger="0.3dur")


@settings(max_examples=120)
@given(
    length=st.integers(1, 9),
    total=st.integers(1, 40),
    save_every=st.integers(1, 7),
    periods=st.lists(
        st.tuples(st.sampled_from([1, 2, 3, 5, 7]), st.sampled_from(["iteration", "epoch"])), min_size=1, max_size=3
    ),
    fraction=st.sampled_from([0.1, 0.25, 0.3, 0.5, 1.5]),
    kills=st.lists(st.integers(1, 40), max_size=5),
    lose_trigger_states=st.booleans(),
)
def test_every_boundary_fires_exactly_once_on_the_kept_line(
    counting_updater, list_of_snapshots, length, total, save_every, periods, fraction, kills, lose_trigger_states
) -> None:
    triggers = [*periods, (fraction, "epoch")]

    def run(kept: list[dict[str, Any]], kill_at: int | None) -> tuple[int, list[tuple[int, int]]]:
        fired: list[tuple[int, int]] = []
        trainer = Trainer(counting_updater(length), (total, "iteration"))
        for number, trigger in enumerate(triggers):
            trainer.extend(
                lambda t, number=number: fired.append((t.updater.state.iteration, number)),
                name=f"e{number}",
                trigger=trigger,
            )
        trainer.extend(list_of_snapshots(kept), trigger=(save_every, "iteration"))

        def kill(t: Any) -> None:
            if t.updater.state.iteration == kill_at:
                raise Killed

        trainer.extend(kill, priority=-1000)
        with contextlib.suppress(Killed):
            trainer.run()
        return trainer.updater.state.iteration, fired

    _, undisturbed = run([], None)
    kept: list[dict[str, Any]] = []
    line: list[tuple[int, int]] = []
    logging.disable(logging.CRITICAL)
    try:
        for kill_at in [*kills, None]:
            _, fired = run(kept, kill_at)
            line += fired
            if kill_at is not None:
                start = kept[-1]["updater"]["state"]["iteration"] if kept else 0
                line = [entry for entry in line if entry[0] <= start]
                if lose_trigger_states and kept:
                    kept[-1]["triggers"] = {}
    finally:
        logging.disable(logging.NOTSET)
    assert line == undisturbed


@pytest.mark.parametrize("updater", [None, object(), [1]])
def test_what_does_no_updates_is_refused_at_once(updater: Any) -> None:
    with pytest.raises(TypeError, match=f"The updater is a {type(updater).__name__}, which has no update"):
        Trainer(updater, None)


def test_what_is_no_group_is_refused_at_once(counting_updater) -> None:
    with pytest.raises(TypeError, match=r"The group is 2, not the ranks of a job\. Give what open_group"):
        Trainer(counting_updater(), None, group=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_named(counting_updater, tmp_path, out) -> None:
    (tmp_path / "file").write_text("")
    trainer = Trainer(counting_updater(), (1, "iteration"), tmp_path / out)
    with pytest.raises(BadInputError, match=rf"The folder .*{out}, which this trainer writes to, cannot be made"):
        trainer.run()
    assert trainer.status == "failed"


def test_what_is_opened_around_a_run_is_told_from_an_extension(counting_updater, tmp_path) -> None:
    with pytest.raises(TypeError, match=r"must be callable.*Open it around the run: with"):
        Trainer(counting_updater(), None).extend(StackDump(tmp_path))  # type: ignore[arg-type]


def test_a_saved_state_that_does_not_fit_is_named_with_its_extension(counting_updater) -> None:
    class First(Extension):
        def state_dict(self) -> dict[str, Any]:
            return {"a": 1}

        def __call__(self, trainer: Any) -> None: ...

    class Second(First):
        def load_state_dict(self, state: Any) -> None:
            state["b"]

    before, after = Trainer(counting_updater(), None), Trainer(counting_updater(), None)
    before.extend(First(), "log")
    after.extend(Second(), "log")
    with pytest.raises(StateError, match=r"saved for extension 'log' does not fit it: KeyError: 'b'\. .*another one"):
        after.load_state_dict(before.state_dict())


def test_a_saved_state_that_does_not_fit_the_stop_trigger_is_named(counting_updater) -> None:
    class Stops(IntervalTrigger):
        def load_state_dict(self, state: Any) -> None:
            state["b"]

    after = Trainer(counting_updater(), Stops(1, "epoch"))
    with pytest.raises(StateError, match=r"saved for the stop trigger does not fit it: KeyError: 'b'"):
        after.load_state_dict(Trainer(counting_updater(), IntervalTrigger(1, "epoch")).state_dict())
