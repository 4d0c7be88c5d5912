from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_stand_ins import CountingUpdater, ListOfSnapshots
from second_rank import second_rank

from ostinato.extensions.text_log import TextLog
from ostinato.loop import PRIORITY_WRITER, Trainer, report


class TimedUpdater(CountingUpdater):
    """Reads in 1, 2, 3, ... seconds, computes in 2, and takes 8 samples."""

    batch_read_time = 0.0
    batch_time = 0.0

    def update(self) -> None:
        self.batch_read_time = float(self.state.iteration + 1)
        self.batch_time = 2.0
        report("loss", torch.tensor(10.0 * (self.state.iteration + 1)))
        self.state.advance(8)


def run(stop: int, lines: list[str], kept: list[Any] | None = None, **settings: Any) -> None:
    trainer = Trainer(TimedUpdater(), (stop, "iteration"))
    trainer.extend(TextLog(trigger=(4, "iteration"), write=lines.append, **settings))
    if kept is not None:
        trainer.extend(ListOfSnapshots(kept), trigger=(3, "iteration"))
    trainer.run()


def test_a_line_has_the_fields_that_users_know_as_true_averages() -> None:
    lines: list[str] = []
    run(9, lines)
    ends = "sec, avg_samples: 8, avg_ips:"
    assert lines == [
        f"iter: 4/9, loss: 25, avg_reader_cost: 2.50000 sec, avg_batch_cost: 4.50000 {ends} 1.78 sequences/sec",
        f"iter: 8/9, loss: 65, avg_reader_cost: 6.50000 sec, avg_batch_cost: 8.50000 {ends} 0.94 sequences/sec",
    ]


@pytest.mark.parametrize("cut", [3, 4, 5, 7])
def test_a_line_after_a_resume_tells_of_the_same_iterations(cut: int) -> None:
    straight: list[str] = []
    run(9, straight)
    kept: list[Any] = []
    before: list[str] = []
    run(cut, before, kept)
    after: list[str] = []
    resumed_at = kept[-1]["updater"]["state"]["iteration"]
    run(9, after, kept)
    kept_lines = [line for line in before if int(line.split("/")[0].removeprefix("iter: ")) <= resumed_at]
    assert [line.replace(f"/{cut}", "/9") for line in kept_lines] + after == straight


def test_an_updater_that_measures_nothing_gives_the_iteration_and_the_means() -> None:
    lines: list[str] = []
    trainer = Trainer(CountingUpdater(), lambda trainer: trainer.updater.state.iteration >= 2)
    trainer.extend(lambda trainer: report("loss/a", (0.123456789, 5)), priority=PRIORITY_WRITER, name="loss")
    trainer.extend(TextLog(trigger="1ba", write=lines.append))
    trainer.run()
    assert lines == ["iter: 1, loss/a: 0.123457", "iter: 2, loss/a: 0.123457"]


def test_times_of_zero_do_no_harm() -> None:
    class Instant(CountingUpdater):
        batch_read_time = batch_time = 0.0

        def update(self) -> None:
            self.state.advance(4)

    lines: list[str] = []
    Trainer(Instant(), (1, "iteration"), extensions=[TextLog((1, "iteration"), lines.append)]).run()
    assert lines == ["iter: 1/1, avg_samples: 4"]


def test_on_a_cuda_device_a_line_has_the_memory_maxima(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 3 * 2**30)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5 * 2**20 + 17)
    lines: list[str] = []
    Trainer(CountingUpdater(), (1, "iteration"), extensions=[TextLog((1, "iteration"), lines.append)]).run()
    assert lines == ["iter: 1/1, max_mem_reserved: 3072 MB, max_mem_allocated: 5 MB"]


def test_without_a_place_to_write_to_the_line_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ostinato.extensions.text_log"):
        Trainer(TimedUpdater(), (100, "iteration"), extensions=[TextLog()]).run()
    assert [(record.levelname, record.name) for record in caplog.records] == [("INFO", "ostinato.extensions.text_log")]
    assert caplog.records[0].getMessage().startswith("iter: 100/100, loss: 505, ")


def test_a_log_that_nobody_will_see_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ostinato.extensions.text_log"):
        Trainer(TimedUpdater(), (1, "iteration"), extensions=[TextLog()]).run()
    assert len(caplog.records) == 1
    assert "logging.basicConfig(level=logging.INFO)" in caplog.text


def test_nothing_is_read_or_written_in_an_iteration_in_which_no_line_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(self: torch.Tensor, *args: Any) -> Any:
        raise AssertionError("the device was waited for")

    for method in ("item", "tolist", "cpu", "numpy", "__float__", "__bool__"):
        monkeypatch.setattr(torch.Tensor, method, forbidden)
    lines: list[str] = []
    run(3, lines)
    assert lines == []


def test_another_rank_writes_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    log = TextLog((1, "iteration"), lines.append)
    trainer = second_rank(tmp_path)
    log.initialize(trainer)
    trainer.updater.update()
    log(trainer)
    assert lines == []


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="TextLog: write must be something to call, not 5"):
        TextLog(write=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="period"):
        TextLog((0, "iteration"))
    with pytest.raises(TypeError, match="is not a trigger"):
        TextLog(100)


def test_a_state_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="The saved state of TextLog has format 2; this version reads format 1"):
        TextLog().load_state_dict({"format": 2})
