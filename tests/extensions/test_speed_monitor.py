from __future__ import annotations

import pytest

from ostinato.extensions import SpeedMonitor
from ostinato.loop import Trainer


def test_averages_since_the_last_report_without_the_first_iteration(reporting_updater) -> None:
    now = [0.0]
    seen = {}

    class Slow(reporting_updater):
        def update(self) -> None:
            now[0] += 60.0 if self.state.iteration == 0 else 1.0
            super().update()

    trainer = Trainer(Slow(), (6, "iteration"), clock=lambda: now[0])
    trainer.extend(SpeedMonitor(report_trigger=(3, "iteration")))
    trainer.extend(lambda t: seen.update({t.updater.state.iteration: dict(t.observation)}), name="look")
    trainer.run()
    for iteration in (3, 6):
        assert seen[iteration]["speed/iterations"] == pytest.approx(1.0)
        assert seen[iteration]["speed/samples"] == pytest.approx(32.0)
        assert seen[iteration]["time/reading"] == pytest.approx(0.25)
        assert seen[iteration]["time/computing"] == pytest.approx(0.5)
        assert seen[iteration]["time/elsewhere"] == pytest.approx(0.25)
        assert seen[iteration]["time/waiting"] == pytest.approx(0.25)
    assert "speed/iterations" not in seen[1]


def test_the_memory_of_its_trigger_travels() -> None:
    monitor = SpeedMonitor((10, "iteration"))
    monitor.load_state_dict({"format": 1, "trigger": {"unit": "iteration", "baseline": 3}})
    assert monitor.state_dict() == {"format": 1, "trigger": {"unit": "iteration", "baseline": 3}}
    with pytest.raises(ValueError, match="The saved state of SpeedMonitor has format None"):
        monitor.load_state_dict({})


def test_a_bad_trigger_is_refused() -> None:
    with pytest.raises(TypeError, match="100 is not a trigger"):
        SpeedMonitor(100)
