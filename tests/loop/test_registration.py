"""Names and order of extensions, searched (EX-1 to EX-5)."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.loop import Extension, IntervalTrigger, OnceTrigger, Trainer
from ostinato.loop.registration import describe_trigger

NAMES = st.sampled_from(["plot", "plot_1", "plot_2", "plot_1_1", "Save", None])


class Plain(Extension):
    def __call__(self, trainer: Any) -> None: ...


class Default(Extension):
    default_name = "plot"  # type: ignore[assignment]

    def __call__(self, trainer: Any) -> None: ...


def plot(trainer: Any) -> None: ...


@given(st.lists(st.tuples(NAMES, st.sampled_from([Plain, Default, None])), max_size=12))
def test_names_are_distinct_found_again_and_the_same_in_every_process(counting_updater, wanted) -> None:
    def register() -> tuple[list[str], list[Any], Trainer]:
        trainer = Trainer(counting_updater(), None)
        extensions = [plot if kind is None else kind() for _, kind in wanted]
        for (name, _), extension in zip(wanted, extensions, strict=True):
            trainer.extend(extension, name)
        return list(trainer.state_dict()["triggers"]), extensions, trainer

    names, extensions, trainer = register()
    assert len(set(names)) == len(wanted)
    assert register()[0] == names
    for name, extension in zip(names, extensions, strict=True):
        assert trainer.get_extension(name) is extension
        if extension is not plot:  # an object stands there once
            assert trainer.name_of(extension) == name
            assert extension.name is None  # and is not changed
    for (asked, kind), name in zip(wanted, names, strict=True):
        base = asked or ("plot" if kind is not Plain else "Plain")
        assert name == base or name.startswith(f"{base}_")


@given(
    entries=st.lists(
        st.tuples(st.integers(-300, 300) | st.sampled_from([-100, -99.5, 100]), st.booleans()), min_size=1, max_size=9
    )
)
def test_one_iteration_goes_from_high_priority_to_low_and_late_extensions_run_when_all_were_asked(
    counting_updater, entries
) -> None:
    """Against a model: ordinary ones asked and run one by one, the stop trigger, all late ones asked, then run."""
    events: list[str] = []

    def make(number: int, fires: bool) -> tuple[Any, Any]:
        def trigger(trainer: Any) -> bool:
            events.append(f"ask {number}")
            return fires

        return (lambda trainer: events.append(f"run {number}")), trigger

    def stop(trainer: Any) -> bool:
        events.append("stop?")
        return trainer.updater.state.iteration == 2

    trainer = Trainer(counting_updater(), stop)
    for number, (priority, fires) in enumerate(entries):
        extension, trigger = make(number, fires)
        trainer.extend(extension, f"e{number}", trigger=trigger, priority=priority)
    trainer.run()
    order = sorted(range(len(entries)), key=lambda number: (-entries[number][0], number))
    ordinary = [number for number in order if entries[number][0] > -100]
    late = [number for number in order if entries[number][0] <= -100]
    iteration: list[str] = []
    for number in ordinary:
        iteration += [f"ask {number}"] + [f"run {number}"] * entries[number][1]
    iteration.append("stop?")
    iteration += [f"ask {number}" for number in late] + [f"run {number}" for number in late if entries[number][1]]
    assert events == ["stop?", *iteration, *iteration]


@given(st.lists(st.integers(-300, 300), max_size=8))
def test_hooks_go_in_the_same_order(counting_updater, priorities) -> None:
    events: list[tuple[str, int]] = []

    class Hooks(Extension):
        def __init__(self, number: int) -> None:
            self.number = number

        def restore(self, trainer: Any) -> None:
            events.append(("restore", self.number))

        def initialize(self, trainer: Any) -> None:
            events.append(("initialize", self.number))

        def __call__(self, trainer: Any) -> None: ...

        def finalize(self, trainer: Any) -> None:
            events.append(("finalize", self.number))

    trainer = Trainer(counting_updater(), (1, "iteration"))
    for number, priority in enumerate(priorities):
        trainer.extend(Hooks(number), priority=priority)
    trainer.run()
    order = sorted(range(len(priorities)), key=lambda number: (-priorities[number], number))
    assert events == [(hook, number) for hook in ("restore", "initialize", "finalize") for number in order]


@pytest.mark.parametrize("name", ["", "a/b", "a\\b", "a\nb", "a\x7fb", "a\x85b", "training"])
def test_a_name_that_cannot_be_one_is_refused_with_the_name(counting_updater, name) -> None:
    with pytest.raises(ValueError) as caught:
        Trainer(counting_updater(), None).extend(plot, name)
    assert repr(name) in str(caught.value)


def test_what_is_no_name_extension_priority_or_trigger_is_refused_with_the_value(counting_updater) -> None:
    trainer = Trainer(counting_updater(), None)
    for kind, message, arguments in (
        (TypeError, "must be a text, not 5", {"name": 5}),
        (TypeError, "priority must be a number, not 'high'", {"priority": "high"}),
        (TypeError, "priority must be a number, not True", {"priority": True}),
        (ValueError, "not NaN", {"priority": math.nan}),
        (ValueError, "unit .*'days'|'days'", {"trigger": (1, "days")}),
        (TypeError, "5", {"trigger": 5}),
    ):
        with pytest.raises(kind, match=message):
            trainer.extend(plot, **arguments)
    with pytest.raises(TypeError, match="must be callable, and 'plot' is not"):
        trainer.extend("plot")
    assert trainer.state_dict()["triggers"] == {}  # nothing of all that was taken in


def test_a_class_in_place_of_an_object_is_refused_and_told_how_to_make_one(counting_updater) -> None:
    trainer = Trainer(counting_updater(), None)
    with pytest.raises(TypeError, match=r"Plain is a class of extensions.*extend\(Plain\(\.\.\.\)\)"):
        trainer.extend(Plain)
    with pytest.raises(TypeError, match=r"OnceTrigger is a class of triggers.*OnceTrigger\(\.\.\.\)"):
        trainer.extend(plot, trigger=OnceTrigger)
    with pytest.raises(TypeError, match="OnceTrigger is a class of triggers"):
        Trainer(counting_updater(), [(5, "iteration"), OnceTrigger])


@pytest.mark.parametrize("extensions", [Plain(), "plot", 5])
def test_what_is_no_list_of_extensions_is_refused(counting_updater, extensions) -> None:
    with pytest.raises(TypeError, match=r"extensions must be a list of extensions, not .*\[extension\]"):
        Trainer(counting_updater(), None, extensions=extensions)


def test_the_same_object_twice_is_refused_with_its_name(counting_updater) -> None:
    extension = Plain()
    trainer = Trainer(counting_updater(), None, extensions=[extension])
    with pytest.raises(ValueError, match="already registered as 'Plain'"):
        trainer.extend(extension, "other")


def test_a_trigger_is_described_alike_in_every_process() -> None:
    def decide(trainer: Any, number: int) -> bool:
        return False

    class Decides:
        def __call__(self, trainer: Any) -> bool:
            return False

    partial = functools.partial(decide, number=3)
    for trigger in (
        partial,
        Decides(),
        Decides().__call__,
        lambda trainer: False,
        IntervalTrigger(1, "epoch") | partial,
    ):
        described = describe_trigger(trigger)
        assert " at 0x" not in described
    assert "number=3" in describe_trigger(partial)
    assert describe_trigger(IntervalTrigger(2, "epoch")) == "IntervalTrigger(2, 'epoch')"
