"""``ostinato recognition train`` in this process, with a tiny network."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_backbone

from ostinato.config import RecognitionOptions, load_options
from ostinato.config.recognition_presets import RECOGNITION_PRESETS
from ostinato.runs import RunFolder

Command = Callable[..., tuple[int, str]]

SMALL = ("--classes", "5", "--images", "40", "--device", "cpu", "-n", "--set", "data.workers=0", "--set", "seed=1")


@pytest.fixture
def recognition(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs the command with the tiny network: exit status, and all that was printed."""
    from ostinato.cli.main import run

    for place in tiny_backbone.PLACES:
        monkeypatch.setattr(place, tiny_backbone.build_tiny_backbone)

    def call(*words: str | Path) -> tuple[int, str]:
        capfd.readouterr()
        status = run(["recognition", "train", *(str(word) for word in words)])
        captured = capfd.readouterr()
        return status, captured.out + captured.err

    return call


def test_the_same_command_starts_continues_and_finishes_a_run(recognition: Command, tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "train.log"
    words = ("-d", "synthetic", "-m", run, "-b", "8", *SMALL, "-s", "2", "-F", log)
    status, text = recognition(*words, "-i", "3")
    assert status == 0, text
    assert "5 people, 40 images, 3 updates of 8 images, seed 1" in text
    assert "saved iteration 2" in text
    assert "finished: all 3 iterations are trained and saved" in text
    assert " images/s" in text
    status, text = recognition(*words, "-e", "1")
    assert status == 0, text
    assert "resuming run at iteration 3 (session 2)" in text
    assert "iterations   3 -> 0" in text
    assert "finished: all 5 iterations" in text
    status, text = recognition(*words)  # what the run has; nothing is asked for
    assert status == 0, text
    assert "The run is finished: it has its 5 updates." in text
    assert "saved iteration 2" in log.read_text()
    assert (run / "logs/session_0002/worker_0.log").exists()
    loaded = RunFolder(run).load_newest()
    assert loaded is not None
    assert loaded.iteration == 5
    assert [session.batch_size for session in loaded.sessions] == [8, 8]


def test_a_signal_saves_and_leaves_and_the_run_goes_on(
    recognition: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    words = ("-d", "synthetic", "-m", run, "-b", "8", "-i", "6", *SMALL)
    seen: list[int] = []
    embed = tiny_backbone.TinyBackbone.embed

    def terminate(self: Any, pictures: Any) -> Any:
        seen.append(1)
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return embed(self, pictures)

    monkeypatch.setattr(tiny_backbone.TinyBackbone, "embed", terminate)
    status, text = recognition(*words)
    assert status == 128 + signal.SIGTERM, text
    assert "stopping: iteration 3 is being saved" in text
    assert "stopped at iteration 3; iteration 3 is saved, and the same command continues from there" in text
    status, text = recognition(*words)
    assert status == 0, text
    assert "resuming run at iteration 3" in text


def test_options_and_presets_are_printed(recognition: Command, tmp_path: Path) -> None:
    status, text = recognition("--list-options", "--preset", "wf42m_pfc02_16gpus_r100", "-b", "64")
    assert status == 0, text
    path = tmp_path / "config.yaml"
    path.write_text(text)
    options = load_options(RecognitionOptions, path)
    assert (options.model.backbone, options.head.sampling_rate, options.batch_size) == ("r100", 0.2, 64)
    status, text = recognition("--list-presets")
    assert status == 0, text
    assert all(name in text for name in RECOGNITION_PRESETS)


def test_where_the_time_goes_is_told_without_a_run(recognition: Command, tmp_path: Path) -> None:
    status, text = recognition("--debug-speed", "-b", "8", "-i", "2", "--classes", "100", "--device", "cpu")
    assert status == 0, text
    for phase in ("data", "backbone forward", "head forward", "head backward", "backbone backward", "exchange"):
        assert phase in text
    assert "images/s with 8 images an update" in text
    words = ("--debug-speed", "-d", tmp_path / "nowhere", "-b", "8", "-i", "2", "--device", "cpu")
    status, text = recognition(*words)
    assert (status, "There is no" in text) == (3, True), text
    assert list(tmp_path.iterdir()) == []


def test_pairs_are_verified_and_told(recognition: Command, tmp_path: Path) -> None:
    from ostinato.recognition.data.synthetic import SyntheticSource

    people = tmp_path / "people"
    _write_people(people, SyntheticSource(5, 30))
    words = ("-d", people, "-m", tmp_path / "run", "-b", "8", "-i", "2", "--pairs", people, *SMALL)
    status, text = recognition(*words)
    assert status == 0, text
    assert "people at iteration 2: accuracy " in text
    assert "highest" in text


def _write_people(folder: Path, source: Any) -> None:
    import cv2

    for index in range(len(source)):
        image, label = source.read(index)
        (folder / f"person{label}").mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(folder / f"person{label}" / f"{index}.png"), image[:, :, ::-1])


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("-m", "run"), 2, "-d/--data was not given"),
        (("-d", "synthetic"), 2, "-m/--model-dir was not given"),
        (("-d", "synthetic", "-m", "run", "-e", "2", "-i", "5"), 2, "both say how long the run is"),
        (("-d", "synthetic", "-m", "run", "-e", "0"), 2, "-e/--epochs is 0"),
        (("-d", "synthetic", "-m", "run", "-i", "0"), 2, "-i/--iterations is 0. Allowed is 1 or more"),
        (("-d", "synthetic", "-m", "run", "-b", "1"), 2, "-b/--batch-size is 1"),
        (("-d", "synthetic", "-m", "run", "--classes", "9", "--images", "4"), 2, "--images is 4"),
        (("-d", "synthetic", "-m", "run", "--grace", "0"), 2, "--grace is 0"),
        (("-d", "synthetic", "-m", "run", "--preset", "ms1mv3_r51"), 2, "Did you mean"),
        (("-d", "synthetic", "-m", "run", "-L", "loud"), 2, "-L/--loglevel is 'loud'"),
        (("-d", "nowhere", "-m", "run"), 3, "There is no nowhere"),
        (("-d", "synthetic", "-m", "run", "--set", "head.m4=1"), 3, "head.m4"),
        (
            ("-d", "synthetic", "-m", "run", "--classes", "5", "--images", "20", "-b", "40"),
            3,
            "some would be in it twice",
        ),
        (("-d", "synthetic", "-m", "run", "--load-weights", "none.pth"), 3, "none.pth"),
    ],
)
def test_mistakes_get_their_own_words(
    recognition: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    status: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    found, text = recognition(*words)
    assert found == status, text
    assert message in " ".join(text.split())
    assert list(tmp_path.iterdir()) == []
