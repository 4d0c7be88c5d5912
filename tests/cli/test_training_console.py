from __future__ import annotations

import logging
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ostinato.cli.training_console import StopNotice, stop_signals, training_logging
from ostinato.errors import UsageError
from ostinato.loop import UpdaterState


class _Console(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def console() -> Any:
    handler, logger = _Console(), logging.getLogger("ostinato")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_lines_go_to_the_file_and_not_twice_to_the_console(console: _Console, tmp_path: Path) -> None:
    log = logging.getLogger("ostinato.somewhere")
    with training_logging("warning", tmp_path / "file.log") as say:
        say("shown")
        log.info("a detail")
        log.warning("a warning")
    log.info("after the end")
    assert console.lines == ["a warning"]
    text = (tmp_path / "file.log").read_text()
    assert all(words in text for words in ("shown", "a detail", "a warning"))
    assert "after the end" not in text
    assert logging.getLogger("ostinato").level == logging.WARNING


def test_the_level_is_that_of_the_console(console: _Console) -> None:
    log = logging.getLogger("ostinato.somewhere")
    with training_logging("INFO", None):
        log.info("a detail")
        log.debug("a small detail")
    assert console.lines == ["a detail"]


def test_levels_and_files_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="-L/--loglevel is 'loud'"), training_logging("loud", None):
        pass
    with (
        pytest.raises(UsageError, match="cannot be written"),
        training_logging("info", tmp_path / "no" / "file"),
    ):
        pass


def test_a_stop_is_told_once_and_only_after_something_was_trained() -> None:
    told: list[str] = []
    notice = StopNotice(told.append)
    state = UpdaterState(iteration=5)
    trainer: Any = SimpleNamespace(updater=SimpleNamespace(state=state), stop_reason="signal", status="running")
    notice.initialize(trainer)
    notice(trainer)
    assert told == []
    state.iteration = 6
    notice(trainer)
    notice(trainer)
    trainer.status = "stopped"
    notice.finalize(trainer)
    assert told == ["stopping: iteration 6 is being saved"]


def test_an_ignored_hangup_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored = {signal.SIGHUP: signal.SIG_IGN}
    monkeypatch.setattr(signal, "getsignal", lambda number: ignored.get(number, signal.SIG_DFL))
    asked = stop_signals()
    assert signal.SIGHUP not in asked
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1} <= set(asked)
