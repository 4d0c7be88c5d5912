from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import tiny_model

from ostinato.cli import demo
from ostinato.swap.provenance import read_provenance


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demonstration of seconds: few faces and the tiny model."""
    for place in tiny_model.PLACES:
        monkeypatch.setattr(place, tiny_model.build_tiny_model)
    monkeypatch.setattr(demo, "FACES", 30)
    monkeypatch.setattr(demo, "UNSEEN", 4)
    monkeypatch.setattr(demo, "SHOWN", 2)
    importlib.import_module("torch._dynamo")  # not to be counted as a time-out of the first update


@pytest.mark.usefixtures("small")
def test_it_trains_measures_and_says_where_everything_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "demo"
    assert demo.run_demo(folder, 2, "cpu") == 0
    text = capsys.readouterr().out
    for line in ("not swapped: a's own face", "swapped before training", "swapped after training"):
        assert line in text
    for path in ("comparison.png", "run/previews/latest.png", "swapped", "run/logs"):
        assert f"{folder / path}: " in text
        assert (folder / path).exists()
    pictures = sorted((folder / "swapped").glob("*.png"))
    assert len(pictures) == 4
    for path in (*pictures, folder / "comparison.png"):
        provenance = read_provenance(path)
        assert provenance is not None
        assert provenance.is_synthetic

    assert demo.run_demo(folder, 3, "cpu") == 0  # goes on where it was
    assert "resuming run at iteration 2 (session 2)" in capsys.readouterr().out
    assert demo.run_demo(folder, 3, "cpu") == 0  # and shows its results again when there is nothing left to train
    assert "The run is finished: it has its 3 iterations." in capsys.readouterr().out
