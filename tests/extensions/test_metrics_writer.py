from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.extensions import MetricsWriter
from ostinato.extensions.metrics_writer import purge_lines_after
from ostinato.loop import Trainer, report


class Killed(BaseException):
    pass


def refuse_constant(text: str) -> Any:
    raise AssertionError(f"{text} is not strict JSON")


def lines(*paths: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line, parse_constant=refuse_constant) for path in paths for line in path.read_text().splitlines()
    ]


def test_a_line_holds_the_counters_and_then_the_observation(reporting_updater, tmp_path) -> None:
    writer = MetricsWriter(tmp_path / "logs" / "session_0001")
    assert not writer.folder.exists()
    Trainer(reporting_updater(), (2, "iteration"), extensions=[writer]).run()
    found = lines(writer.path)
    assert list(found[0]) == ["iteration", "epoch", "elapsed_time", "loss/total", "loss/a", "loss/b", "loss/b/ssim"]
    assert [line["iteration"] for line in found] == [1, 2]
    assert found[1]["loss/a"] == float(torch.tensor(1 / 4))


def test_numbers_that_json_does_not_have_are_texts(tmp_path, reporting_updater) -> None:
    def strange(trainer: Any) -> None:
        report("nan", torch.tensor(math.nan))
        report("up", math.inf)
        report("down", (-math.inf, 3))
        report("whole", 3)
        report("picture", torch.zeros(3))

    writer = MetricsWriter(tmp_path / "session_0001")
    trainer = Trainer(reporting_updater(), (2, "iteration"), extensions=[writer])
    trainer.extend(strange, priority=300)
    trainer.run()
    line = lines(writer.path)[0]
    assert (line["nan"], line["up"], line["down"], line["whole"]) == ("nan", "inf", "-inf", 3)
    assert "picture" not in line


def test_what_is_no_number_is_told_once(tmp_path, reporting_updater, caplog) -> None:
    trainer = Trainer(reporting_updater(), (5, "iteration"), extensions=[MetricsWriter(tmp_path / "session_0001")])
    trainer.extend(lambda t: report("picture", "p"), name="p", priority=300)
    with caplog.at_level(logging.WARNING):
        trainer.run()
    assert [record.message for record in caplog.records] == [
        "metrics.jsonl: 'picture' is left out, str is not a number"
    ]


def test_nothing_is_fetched_from_the_device_until_the_flush(tmp_path, reporting_updater, monkeypatch) -> None:
    fetches = []
    original = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: fetches.append(1) or original(self))
    for name in ("item", "__float__"):
        monkeypatch.setattr(torch.Tensor, name, lambda self: pytest.fail("waits for the device"))
    writer = MetricsWriter(tmp_path / "session_0001", flush_trigger=(10, "iteration"))
    trainer = Trainer(reporting_updater(), (20, "iteration"), extensions=[writer])
    trainer.run()
    assert len(fetches) == 2


def test_lines_are_there_before_a_state_is_saved(tmp_path, reporting_updater) -> None:
    writer = MetricsWriter(tmp_path / "session_0001", flush_trigger=None)
    counts = []
    trainer = Trainer(reporting_updater(), (5, "iteration"), extensions=[writer])

    def save(trainer: Any) -> None:
        trainer.state_dict()
        counts.append(len(lines(writer.path)))

    trainer.extend(save, trigger=(2, "iteration"), priority=-100)
    trainer.run()
    assert counts == [2, 4]


@settings(max_examples=40)
@given(
    total=st.integers(1, 25),
    save_every=st.integers(1, 6),
    flush_every=st.sampled_from([1, 3, 100]),
    kills=st.lists(st.integers(1, 25), max_size=5),
    torn=st.booleans(),
    full=st.sets(st.integers(0, 40)),
    pieces=st.integers(1, 400),
)
def test_every_iteration_has_one_line_over_any_kills(
    reporting_updater, saves, total, save_every, flush_every, kills, torn, full, pieces
) -> None:
    real_write, count = os.write, 0

    def write(descriptor: int, data: Any) -> int:
        """Takes a piece at a time, and is full now and then."""
        nonlocal count
        count += 1
        if count in full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_write(descriptor, bytes(data)[:pieces])

    def run(folder: Path, kept: list[dict[str, Any]], session: int, kill_at: int | None) -> None:
        writer = MetricsWriter(folder / f"session_{session:04}", (flush_every, "iteration"))
        trainer = Trainer(reporting_updater(), (total, "iteration"), out=folder, extensions=[writer])
        trainer.extend(saves(kept), trigger=(save_every, "iteration"))

        def kill(t: Any) -> None:
            if t.updater.state.iteration == kill_at:
                # A killed process runs no finalizer: what is in the buffer is lost.
                assert writer._file._descriptor is not None
                os.close(writer._file._descriptor)
                writer._file._descriptor = None
                raise Killed

        trainer.extend(kill, priority=-1000)
        with contextlib.suppress(Killed):
            trainer.run()
        if torn and kill_at is not None:
            with writer.path.open("a") as file:
                file.write('{"iteration": 3, "lo')

    def without_time(folder: Path) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in line.items() if name != "elapsed_time"}
            for line in lines(*sorted(folder.glob("session_*/metrics.jsonl")))
        ]

    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory() as straight, tempfile.TemporaryDirectory() as killed:
            run(Path(straight), [], 1, None)
            kept: list[dict[str, Any]] = []
            with pytest.MonkeyPatch.context() as patch:
                # Only what the writer itself writes; a disk that is full at the start of a run is an error of its own.
                patch.setattr("ostinato.extensions.metrics_writer.os", SimpleNamespace(**{**vars(os), "write": write}))
                for session, kill_at in enumerate([*kills, None], start=1):
                    run(Path(killed), kept, session, kill_at)
                    kept[:] = [json.loads(json.dumps(state)) for state in kept]
                count = len(full) + 40  # there is room again
                run(Path(killed), kept, len(kills) + 2, None)
            assert without_time(Path(killed)) == without_time(Path(straight))
            assert [line["iteration"] for line in without_time(Path(killed))] == list(range(1, total + 1))
    finally:
        logging.disable(logging.NOTSET)


def test_a_full_disk_keeps_the_lines_and_warns_once(reporting_updater, tmp_path, monkeypatch, caplog) -> None:
    writer = MetricsWriter(tmp_path / "session_0001", (1, "iteration"))
    trainer = Trainer(reporting_updater(), (6, "iteration"), extensions=[writer])
    real_write = os.write

    def write(descriptor: int, data: Any) -> int:
        if 2 <= trainer.updater.state.iteration <= 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_write(descriptor, data)

    monkeypatch.setattr("ostinato.extensions.metrics_writer.os.write", write)
    with caplog.at_level(logging.WARNING):
        trainer.run()
    assert [line["iteration"] for line in lines(writer.path)] == [1, 2, 3, 4, 5, 6]
    assert len(caplog.records) == 1
    assert f"{writer.path} cannot be written: No space left on device. Training goes on; the lines are" in caplog.text


@pytest.mark.parametrize(
    "broken", ['{"iteration": 2', "[1]\n", "\0\0\0\0\n", '{"epoch": 1}\n', "[" * 100000 + "\n", '{"iteration": "2"}\n']
)
def test_broken_lines_are_removed_and_the_others_stay(tmp_path, broken) -> None:
    path = tmp_path / "metrics.jsonl"
    good = '{"iteration": 1, "loss": 0.1}\n'
    path.write_text(good + broken)
    assert purge_lines_after(path, 5) == 1
    assert path.read_text() == good
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_with_nothing_to_remove_is_left_alone(tmp_path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"iteration": 1}\n')
    before = path.stat().st_ino
    assert purge_lines_after(path, 1) == 0
    assert path.stat().st_ino == before
    assert purge_lines_after(tmp_path / "absent", 1) == 0


def test_a_failing_removal_leaves_the_old_file(tmp_path, monkeypatch) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"iteration": 1}\n{"iteration": 2}\n')
    monkeypatch.setattr(os, "replace", lambda source, target: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        purge_lines_after(path, 1)
    assert path.read_text() == '{"iteration": 1}\n{"iteration": 2}\n'
