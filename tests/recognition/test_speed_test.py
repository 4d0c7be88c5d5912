from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_backbone import build_tiny_backbone

from ostinato.dist import Alone
from ostinato.errors import ConfigError
from ostinato.recognition import phase_times as phases
from ostinato.recognition.request import RecognitionRequest
from ostinato.recognition.speed_test import MemoryBatches, SpeedReport, measure_speed


def _request(**settings: Any) -> RecognitionRequest:
    own = ("embedding_size=16", "batch_size=8", "workers=0", "optimizer.accumulation=2")
    given = {"data": "synthetic", "run_folder": Path("nowhere"), "overrides": own, "classes": 40, "device": "cpu"}
    return RecognitionRequest(**{**given, **settings})


def test_a_throw_away_model_is_measured_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = measure_speed(_request(), updates=2, tell=print, build=build_tiny_backbone)
    assert (report.images, report.classes, report.bytes_backbone, report.bytes_head) == (16, 40, 0, 0)
    assert set(report.seconds) == set(phases.PHASES)
    assert sum(report.seconds.values()) > 0
    assert report.images_per_second == pytest.approx(16 / report.update_seconds)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError):
        measure_speed(_request(overrides=("schedule=multistep",)), updates=1, tell=print, build=build_tiny_backbone)


def test_the_table_names_every_phase_and_what_was_sent() -> None:
    seconds = dict.fromkeys(phases.PHASES, 0.001)
    lines = SpeedReport(seconds, 0.01, 64, 1000, 3 * 2**20, 2**20, 5 * 2**20).lines()
    for phase, line in zip(phases.PHASES, lines[1:], strict=False):
        assert line.startswith(phase)
        assert line.endswith(" 12.5 %")
    assert "6,400.0 images/s with 64 images an update" in lines
    assert any("3.00 MiB of gradients" in line and "1.000 MiB of the head" in line for line in lines)
    assert lines[-1] == "most memory on a device: 5 MiB"
    assert not any("collectives" in line for line in lines)
    (line,) = (
        line
        for line in SpeedReport(seconds, 0.01, 64, 1000, 1, 1, None, 0.002, 0.001).lines()
        if line.startswith("in collectives")
    )
    assert line.split()[2:5] == ["3.00", "30.0", "%"]
    assert line.endswith("head 2.00 ms, backbone 1.00 ms")


def test_batches_in_memory_come_again_with_labels_over_all_classes() -> None:
    batches = MemoryBatches(1000, 64, 16, Alone())
    first = [batches.next_batch() for _ in range(4)]
    again = batches.next_batch()
    assert again.images.equal(first[0].images)
    assert again.position == 320
    assert (first[-1].epoch, again.epoch) == (1, 1)
    assert again.images.dtype == torch.uint8
    assert len(torch.cat([batch.labels for batch in first]).unique()) > 150
    other = MemoryBatches(1000, 64, 16, Alone())
    other.load_state_dict(batches.state_dict())
    assert other.next_batch().labels.equal(batches.next_batch().labels)
