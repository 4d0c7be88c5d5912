from __future__ import annotations

from typing import Any

import pytest
import torch

from ostinato.recognition import phase_times as phases
from ostinato.recognition.phase_times import CollectiveClock, PhaseTimes
from ostinato.recognition.updater import grouped_seconds


def test_what_lies_between_two_marks_belongs_to_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 1.5, 3.5, 3.75, 10.0, 10.5])
    monkeypatch.setattr(phases.time, "perf_counter", lambda: next(clock))
    times = PhaseTimes(torch.device("cpu"))
    assert times.latest == {}
    assert grouped_seconds(times.latest) == {}
    times.begin()
    times.mark(phases.DATA)
    times.mark(phases.BACKBONE_FORWARD)
    times.mark(phases.HEAD_FORWARD)
    times.end()
    assert {name: seconds for name, seconds in times.latest.items() if seconds} == {
        phases.DATA: 0.5,
        phases.BACKBONE_FORWARD: 2.0,
        phases.HEAD_FORWARD: 0.25,
    }
    assert grouped_seconds(times.latest) == {"data": 0.5, "backbone": 2.0, "head": 0.25}
    times.begin()
    times.mark(phases.EXCHANGE)
    times.end()
    assert grouped_seconds(times.latest) == {"data": 0.0, "backbone": 0.5, "head": 0.0}


class _Event:
    """Stands for a mark in the stream of a device."""

    place = 0.0
    done = False

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = _Event.place

    def query(self) -> bool:
        return _Event.done

    def elapsed_time(self, other: Any) -> float:
        return 1000 * (other.at - self.at)


def test_marks_on_a_device_are_read_once_it_has_come_past_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    times = PhaseTimes(torch.device("cuda"))
    for place in (1.0, 2.0):
        _Event.place = 0.0
        times.begin()
        _Event.place = place
        times.mark(phases.HEAD_BACKWARD)
        times.end()
        assert times.latest == {}  # nobody waits for the device
    _Event.done = True
    times.begin()
    times.end()
    assert times.latest[phases.HEAD_BACKWARD] == 0.0  # of the newest of the three
    times.begin()
    _Event.place = 7.0
    times.mark(phases.HEAD_BACKWARD)
    times.end()
    assert times.latest[phases.HEAD_BACKWARD] == 5.0


def test_what_lies_in_collectives_is_added_up_until_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1.0, 1.5, 3.5, 3.75, 10.0, 10.5])
    monkeypatch.setattr(phases.time, "perf_counter", lambda: next(times))
    clock = CollectiveClock(torch.device("cpu"))
    for _ in range(2):
        with clock():
            pass
    assert clock.take() == 0.75
    assert clock.take() == 0.0
    with pytest.raises(RuntimeError), clock():
        raise RuntimeError("the other rank is gone")
    assert clock.take() == 0.5


def test_collectives_on_a_device_are_timed_in_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    clock = CollectiveClock(torch.device("cuda"))
    _Event.place = 1.0
    with clock():
        _Event.place = 4.0
    assert clock.take() == 3.0
