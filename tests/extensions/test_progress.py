from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from ostinato.extensions import Progress
from ostinato.extensions.progress import clock_time
from ostinato.loop import Trainer


class Clock:
    """Four seconds per update."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def run(updater_class: Any, progress: Progress, stop: Any = (10, "iteration")) -> None:
    clock = Clock()

    class Slow(updater_class):
        def update(self) -> None:
            clock.now += 4.0
            super().update()

    Trainer(Slow(), stop, extensions=[progress], clock=clock).run()


def test_lines_tell_place_speed_time_left_and_losses(reporting_updater) -> None:
    lines: list[str] = []
    run(reporting_updater, Progress(lines.append, every=20), stop=(11, "iteration"))
    assert lines[0] == "iteration 5 of 11 · 0.25 it/s · 8.0 faces/s · 0:00:24 left · loss a 0.14286, b 0.09091"
    assert len(lines) == 3  # after 20 s, after 40 s, at the end
    assert lines[-1].startswith("iteration 11 of 11 · 0.25 it/s · 8.0 faces/s · loss a ")


def test_the_last_line_is_not_said_twice_and_nothing_is_said_where_nothing_was_trained(reporting_updater) -> None:
    lines: list[str] = []
    run(reporting_updater, Progress(lines.append, every=20))
    assert len(lines) == 2
    run(reporting_updater, Progress(lines.append, every=20), stop=lambda trainer: True)
    assert len(lines) == 2


def test_a_slow_run_shows_seconds_per_iteration_and_an_endless_one_no_end(reporting_updater) -> None:
    lines: list[str] = []
    progress = Progress(lines.append, every=4, faces_per_iteration=6)
    clock = Clock()

    class Slow(reporting_updater):
        def update(self) -> None:
            clock.now += 40.0
            super().update()

    trainer = Trainer(Slow(), None, extensions=[progress], clock=clock)
    trainer.extend(lambda t: t.request_stop(), name="stop", trigger=(1, "iteration"))
    trainer.run()
    assert lines[0].startswith("iteration 1 · 40.0 s/it · 0.1 faces/s · loss a")


def test_losses_are_read_only_for_a_line_that_is_shown(reporting_updater, monkeypatch) -> None:
    import torch

    fetches = []
    original = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: fetches.append(1) or original(self))
    run(reporting_updater, Progress(lambda line: None, every=20))
    assert len(fetches) == 2


def test_on_a_terminal_one_line_is_rewritten(reporting_updater) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100, color_system=None)
    run(reporting_updater, Progress(console=console))
    shown = output.getvalue()
    assert shown.count("iteration 3 of 10") == 1
    assert "\x1b[2K" in shown or "\r" in shown  # the line is erased and written again
    assert shown.rstrip().splitlines()[-1].split("\r")[-1].endswith("loss a 0.08333, b 0.06250")


def test_on_a_narrow_terminal_nothing_is_cut_off(reporting_updater) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=40, color_system=None)
    run(reporting_updater, Progress(console=console))
    first = output.getvalue().split("iteration 10 of")[0]
    assert "…" not in first
    assert "b 0.0" in first


def test_a_console_that_is_no_terminal_gets_plain_lines(reporting_updater) -> None:
    output = io.StringIO()
    run(reporting_updater, Progress(console=Console(file=output, width=200), every=20))
    lines = output.getvalue().splitlines()
    assert len(lines) == 2
    assert "\x1b" not in output.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00:00"), (59.6, "0:01:00"), (42730, "11:52:10"), (86400, "1 day 00:00:00"), (273600, "3 days 04:00:00")],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text
