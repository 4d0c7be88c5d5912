from __future__ import annotations

import io
import itertools
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ostinato.extensions import RankLog
from ostinato.loop import Extension, Trainer

_numbers = itertools.count()


def own_logger() -> logging.Logger:
    """A new logger, made in the test itself: to those that are there before, pytest listens."""
    logger = logging.getLogger(f"rank_log_{next(_numbers)}")
    logger.propagate = False
    return logger


def trainer_of_rank(rank: int, out: Path) -> Any:
    return SimpleNamespace(group=SimpleNamespace(rank=rank, size=2), out=out)


def lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return [re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", "", line) for line in text.splitlines()]


def test_each_rank_writes_its_own_file_each_line_once(tmp_path) -> None:
    logger = own_logger()
    for rank in (0, 3):
        log = RankLog(logger=logger.name)
        trainer = trainer_of_rank(rank, tmp_path)
        log.restore(trainer)
        log.initialize(trainer)  # not a second time
        logger.info("hello from %d", rank)
        logging.getLogger(f"{logger.name}.below").warning("ätsch")
        logger.debug("not this")
        log.finalize(trainer)
        log.finalize(trainer)
        logger.info("too late")
        assert lines(tmp_path / "logs" / f"worker_{rank}.log") == [
            f"INFO {logger.name}: hello from {rank}",
            f"WARNING {logger.name}.below: ätsch",
        ]
    assert (logger.handlers, logger.level) == ([], logging.NOTSET)


def test_a_second_log_of_the_same_file_adds_no_second_line(tmp_path) -> None:
    logger = own_logger()
    first, second = RankLog(tmp_path, logger=logger.name), RankLog(tmp_path, logger=logger.name)
    trainer = trainer_of_rank(0, tmp_path)
    first.initialize(trainer)
    second.initialize(trainer)
    logger.info("once")
    second.finalize(trainer)
    first.finalize(trainer)
    assert lines(tmp_path / "worker_0.log") == [f"INFO {logger.name}: once"]


def test_only_rank_0_is_heard_on_the_console(tmp_path, capsys) -> None:
    logger = own_logger()
    for rank in (1, 0):
        log = RankLog(tmp_path, logger=logger.name)
        log.initialize(trainer_of_rank(rank, tmp_path))
        logger.error("rank %d", rank)
        log.finalize(trainer_of_rank(rank, tmp_path))
    shown = capsys.readouterr().err
    assert "rank 0" in shown
    assert "rank 1" not in shown
    quiet = RankLog(tmp_path, logger=logger.name, console=False)
    quiet.initialize(trainer_of_rank(0, tmp_path))
    logger.error("for the file")
    quiet.finalize(trainer_of_rank(0, tmp_path))
    assert capsys.readouterr().err == ""


def test_a_console_of_the_program_is_used_on_rank_0_and_set_aside_elsewhere(tmp_path, capsys) -> None:
    logger = own_logger()
    stream = io.StringIO()
    own = logging.StreamHandler(stream)
    logger.addHandler(own)
    for rank in (0, 1):
        log = RankLog(tmp_path, logger=logger.name)
        log.initialize(trainer_of_rank(rank, tmp_path))
        logger.error("rank %d", rank)
        log.finalize(trainer_of_rank(rank, tmp_path))
        assert logger.handlers == [own]
    assert stream.getvalue() == "rank 0\n"
    assert capsys.readouterr().err == ""


def test_it_hears_what_loading_says_and_how_the_run_ends(reporting_updater, tmp_path) -> None:
    logger = own_logger()

    class Loads(Extension):
        priority = -100

        def restore(self, trainer: Any) -> None:
            logger.warning("generation 7 is damaged")

        def __call__(self, trainer: Any) -> None:
            raise ValueError("broken")

    trainer = Trainer(reporting_updater(), None, out=tmp_path, extensions=[Loads(), RankLog(logger=logger.name)])
    with pytest.raises(ValueError, match="broken"):
        trainer.run()
    found = lines(tmp_path / "logs" / "worker_0.log")
    assert found[0] == f"WARNING {logger.name}: generation 7 is damaged"
    assert found[1] == "ERROR ostinato.extensions.rank_log: the run has failed"
    assert found[-2:] == ["ValueError: broken", "at iteration 1, extension 'Loads'"]
    assert logger.handlers == []


def test_it_hears_what_the_others_say_at_their_end(reporting_updater, tmp_path) -> None:
    logger = own_logger()

    class Saves(Extension):
        priority = -100

        def __call__(self, trainer: Any) -> None: ...

        def finalize(self, trainer: Any) -> None:
            logger.info("the last save")

    log = RankLog(logger=logger.name)
    Trainer(reporting_updater(), (1, "iteration"), out=tmp_path, extensions=[log, Saves()]).run()
    assert lines(tmp_path / "logs" / "worker_0.log") == [f"INFO {logger.name}: the last save"]
    assert logger.handlers == []


def test_a_resumed_run_appends(tmp_path) -> None:
    logger = own_logger()
    for number in range(2):
        log = RankLog(tmp_path, logger=logger.name, level="warning")
        log.initialize(trainer_of_rank(0, tmp_path))
        logger.warning("run %d", number)
        logger.info("not this")
        log.finalize(trainer_of_rank(0, tmp_path))
    assert lines(tmp_path / "worker_0.log") == [f"WARNING {logger.name}: run {number}" for number in range(2)]


def test_constructing_opens_nothing(tmp_path) -> None:
    logger = own_logger()
    RankLog(tmp_path / "logs", logger=logger.name)
    assert list(tmp_path.iterdir()) == []
    assert logger.handlers == []


@pytest.mark.parametrize(("level", "kind"), [("loud", ValueError), (1.5, TypeError), (True, TypeError)])
def test_a_level_must_be_one_of_logging(level, kind) -> None:
    with pytest.raises(kind, match=str(level)):
        RankLog(level=level)


def test_a_logger_is_given_by_name() -> None:
    with pytest.raises(TypeError, match="by its name"):
        RankLog(logger=logging.getLogger())  # type: ignore[arg-type]
