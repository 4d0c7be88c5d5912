from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from ostinato.extensions import StopSignals
from ostinato.loop import Trainer


def test_the_first_signal_ends_the_run_after_the_iteration(reporting_updater) -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []
    trainer = Trainer(reporting_updater(), None)
    trainer.extend(lambda t: os.kill(os.getpid(), signal.SIGTERM), name="kill", trigger=(3, "iteration"), priority=300)
    trainer.extend(lambda t: seen.append(t.updater.state.iteration), name="save", priority=-100)
    with StopSignals(trainer.request_stop) as signals:
        trainer.run()
    assert (seen, trainer.status, trainer.stop_reason) == ([1, 2, 3], "stopped", "signal")
    assert signals.received is signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_interrupt_leaves_at_once(reporting_updater) -> None:
    trainer = Trainer(reporting_updater(), None)

    def twice(trainer: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    trainer.extend(twice, trigger=(2, "iteration"))
    with StopSignals(trainer.request_stop), pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert trainer.status == "failed"


def test_a_second_termination_changes_nothing() -> None:
    reasons: list[str] = []
    with StopSignals(reasons.append):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    assert reasons == ["signal"]


def test_further_signals_can_be_chosen() -> None:
    reasons: list[str] = []
    with StopSignals(reasons.append, signals=(signal.SIGUSR1,)) as signals:
        os.kill(os.getpid(), signal.SIGUSR1)
    assert (reasons, signals.received) == (["signal"], signal.SIGUSR1)


def test_constructing_installs_nothing_and_opening_twice_is_refused() -> None:
    before = signal.getsignal(signal.SIGINT)
    signals = StopSignals(lambda reason: None)
    assert signal.getsignal(signal.SIGINT) is before
    with signals:
        with pytest.raises(RuntimeError, match="handled already"):
            signals.open()
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    signals.close()
