from __future__ import annotations

import pytest
from loop_stand_ins import CountingUpdater

from ostinato.extensions.observe_value import observe_value
from ostinato.loop import Trainer


def test_it_reports_what_the_function_returns_before_the_readers_run() -> None:
    seen = []
    trainer = Trainer(CountingUpdater(2), (4, "iteration"))
    trainer.extend(lambda t: seen.append(dict(t.observation)), name="reader")
    trainer.extend(observe_value("twice", lambda t: 2 * t.updater.state.iteration))
    trainer.run()
    assert seen == [{}, {"twice": 4}, {}, {"twice": 8}]  # by default at the end of every epoch


def test_several_can_be_registered() -> None:
    trainer = Trainer(CountingUpdater(), (1, "iteration"))
    for key in ("a", "b"):
        trainer.extend(observe_value(key, lambda t: 1), trigger=(1, "iteration"))
    trainer.run()
    assert trainer.observation == {"a": 1, "b": 1}


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="key must be a text"):
        observe_value(3, print)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="key is empty"):
        observe_value("", print)
    with pytest.raises(TypeError, match="function must be a function of the trainer, not 3"):
        observe_value("a", 3)  # type: ignore[arg-type]
