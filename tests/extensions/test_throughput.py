from __future__ import annotations

import pytest

from ostinato.extensions import Throughput
from ostinato.loop import Trainer


def test_averages_since_the_last_report_without_the_first_iteration(reporting_updater) -> None:
    now = [0.0]
    seen = {}

    class Slow(reporting_updater):
        def update(self) -> None:
            now[0] += 60.0 if self.state.iteration == 0 else 1.0
            super().update()

    trainer = Trainer(Slow(), (6, "iteration"), clock=lambda: now[0])
    trainer.extend(Throughput(report_trigger=(3, "iteration")))
    trainer.extend(lambda t: seen.update({t.updater.state.iteration: dict(t.observation)}), name="look")
    trainer.run()
    for iteration in (3, 6):
        assert seen[iteration]["speed/iterations"] == pytest.approx(1.0)
        assert seen[iteration]["speed/samples"] == pytest.approx(32.0)
        assert seen[iteration]["time/reading"] == pytest.approx(0.25)
        assert seen[iteration]["time/computing"] == pytest.approx(0.5)
        assert seen[iteration]["time/elsewhere"] == pytest.approx(0.25)
    assert "speed/iterations" not in seen[1]
