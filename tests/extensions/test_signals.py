from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from ostinato.extensions import StackDump, StopSignals
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_exit_code_says_which_signal_came(number) -> None:
    with StopSignals(lambda reason: None) as signals:
        assert signals.exit_code == 0
        os.kill(os.getpid(), number)
    assert signals.exit_code == 128 + number


def test_when_the_grace_is_over_the_program_is_left_with_a_line_about_what_is_saved() -> None:
    left = threading.Event()
    said: list[str] = []
    codes: list[int] = []

    def leave(code: int) -> None:
        codes.append(code)
        left.set()

    with StopSignals(
        lambda reason: None, grace=0.01, saved=lambda: "Iteration 400 is saved.", tell=said.append, leave=leave
    ):
        os.kill(os.getpid(), signal.SIGTERM)
        assert left.wait(60)
    assert codes == [143]
    assert said == ["The run has not ended within 0.01 seconds after SIGTERM: leaving now. Iteration 400 is saved."]


def test_last_words_that_hang_do_not_keep_the_program(monkeypatch) -> None:
    monkeypatch.setattr("ostinato.extensions.signals._SECONDS_FOR_LAST_WORDS", 0.01)
    left, never = threading.Event(), threading.Event()
    with StopSignals(lambda reason: None, grace=0.01, saved=lambda: str(never.wait(60)), leave=lambda code: left.set()):
        os.kill(os.getpid(), signal.SIGTERM)
        assert left.wait(60)
    never.set()


def test_a_run_that_ends_within_the_grace_is_left_alone(reporting_updater) -> None:
    codes: list[int] = []
    trainer = Trainer(reporting_updater(), None)
    trainer.extend(lambda t: os.kill(os.getpid(), signal.SIGTERM), name="kill", trigger=(3, "iteration"))
    with StopSignals(trainer.request_stop, grace=3600, leave=codes.append) as signals:
        trainer.run()
    assert (codes, signals.exit_code, trainer.stop_reason) == ([], 143, "signal")


def test_without_a_signal_nothing_is_waited_for() -> None:
    with StopSignals(lambda reason: None, grace=3600):
        names = [thread.name for thread in threading.enumerate()]
    assert "ostinato-grace" in names
    assert "ostinato-grace" not in [thread.name for thread in threading.enumerate()]


def test_a_process_that_hangs_is_really_left() -> None:
    program = """
import logging, os, signal, threading
from ostinato.extensions import StopSignals
logging.basicConfig(level=logging.INFO)
with StopSignals(lambda reason: None, grace=0.01, saved=lambda: "Nothing is saved yet."):
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()  # for ever, as in a collective that nobody answers
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 143
    assert "within 0.01 seconds after SIGTERM: leaving now. Nothing is saved yet." in done.stderr


@pytest.mark.parametrize("grace", [0, -1.0, math.nan, math.inf])
def test_a_grace_must_be_above_0_and_finite(grace) -> None:
    with pytest.raises(ValueError, match="grace must be above 0 seconds"):
        StopSignals(lambda reason: None, grace=grace)


@pytest.mark.parametrize("grace", ["30", True])
def test_a_grace_must_be_a_number(grace) -> None:
    with pytest.raises(TypeError, match="grace must be a number of seconds"):
        StopSignals(lambda reason: None, grace=grace)


def test_what_is_no_signal_or_cannot_be_handled_is_refused() -> None:
    with pytest.raises(TypeError, match="4711 is no signal"):
        StopSignals(lambda reason: None, signals=(4711,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="SIGKILL cannot be handled"):
        StopSignals(lambda reason: None, signals=(signal.SIGKILL,))


def test_other_threads_are_told_that_they_cannot_handle_signals() -> None:
    raised: list[BaseException] = []

    def work() -> None:
        try:
            StopSignals(lambda reason: None).open()
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "in the main thread only" in str(raised[0])


@pytest.mark.parametrize("wrong", [None, "stop", 3])
def test_what_cannot_be_called_is_refused_before_a_signal_comes(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"request_stop must be a function, not {wrong!r}"):
        StopSignals(wrong)


@pytest.mark.parametrize("wrong", [None, 1.5, "SIGTERM"])
def test_what_is_no_list_of_signals_is_named(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"{wrong!r} is no signal"):
        StopSignals(print, wrong)


def test_a_lone_signal_is_a_list_of_one() -> None:
    with StopSignals(print, signal.SIGUSR1):  # type: ignore[arg-type]
        assert signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_a_stack_dump_does_not_lose_its_signal_unheard(tmp_path) -> None:
    with StackDump(tmp_path) as dump:
        with pytest.raises(RuntimeError, match="SIGUSR1 is handled already: it asks a StackDump"):
            StopSignals(print, [signal.SIGTERM, signal.SIGUSR1]).open()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGUSR1) == dump._note
