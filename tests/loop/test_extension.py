from __future__ import annotations

from typing import Any

import pytest

from ostinato.loop import Extension, Trainer, make_extension


def test_hooks_that_are_given_are_called_and_others_are_absent(counting_updater) -> None:
    events: list[str] = []

    @make_extension(
        trigger=(2, "iteration"),
        initializer=lambda t: events.append("initialize"),
        finalizer=lambda t: events.append("finalize"),
    )
    def act(trainer: Any) -> None:
        events.append("call")

    assert not hasattr(act, "on_error")
    trainer = Trainer(counting_updater(), (3, "iteration"), extensions=[act])
    trainer.run()
    assert events == ["initialize", "call", "finalize"]


def test_it_works_without_parentheses(counting_updater) -> None:
    @make_extension
    def act(trainer: Any) -> None: ...

    assert (act.trigger, act.default_name, act.priority) == ((1, "iteration"), "act", 100)
    Trainer(counting_updater(), (1, "iteration"), extensions=[act]).run()


def test_a_bound_method_is_wrapped(counting_updater) -> None:
    class Owner:
        calls = 0

        def act(self, trainer: Any) -> None:
            self.calls += 1

    owner = Owner()
    made = make_extension(trigger=(1, "iteration"), priority=7)(owner.act)
    trainer = Trainer(counting_updater(), (2, "iteration"), extensions=[made])
    trainer.run()
    assert owner.calls == 2
    assert trainer.name_of(made) == "act"


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="must be callable"):
        make_extension(trigger=None)(5)


def test_a_trigger_attribute_of_none_means_never(counting_updater) -> None:
    class Never(Extension):
        trigger = None

        def __call__(self, trainer: Any) -> None:
            raise AssertionError

    Trainer(counting_updater(), (2, "iteration"), extensions=[Never()]).run()


def test_an_extension_without_a_call_says_what_is_missing(counting_updater) -> None:
    class Empty(Extension):
        pass

    with pytest.raises(NotImplementedError, match="Empty must say what it does"):
        Trainer(counting_updater(), (1, "iteration"), extensions=[Empty()]).run()


@pytest.mark.parametrize("hook", ["initializer", "finalizer", "on_error"])
def test_a_hook_that_cannot_be_called_is_refused(hook: str) -> None:
    with pytest.raises(TypeError, match="of an extension must be a function, and 3 is not"):
        make_extension(lambda trainer: None, **{hook: 3})
