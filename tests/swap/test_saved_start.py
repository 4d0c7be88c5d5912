from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_updater import options_of, updater_of

from ostinato.extensions.save import Snapshot
from ostinato.loop import Trainer
from ostinato.runs import RunFolder
from ostinato.swap.saved_start import SavedStart


def trained(folder: Path, *, is_wanted: bool, iterations: int = 2) -> Any:
    trainer = Trainer(updater_of(options_of()), (iterations, "iteration"), out=folder)
    snapshot = Snapshot(every=(2, "iteration"))
    start = SavedStart(snapshot)
    start.is_wanted = is_wanted
    trainer.extend(start)
    trainer.extend(snapshot)
    trainer.run()
    return [name.iteration for name in RunFolder(folder).names()]


def test_it_saves_before_the_first_update_if_that_was_asked_for(tmp_path: Path) -> None:
    assert trained(tmp_path / "plain", is_wanted=False) == [2]
    assert trained(tmp_path / "saved", is_wanted=True) == [0, 2]


def test_a_state_of_the_same_iteration_takes_the_place_of_the_one_that_was_loaded(tmp_path: Path) -> None:
    trained(tmp_path, is_wanted=False)
    before = RunFolder(tmp_path).read("2")
    trained(tmp_path, is_wanted=True, iterations=4)
    commits = [record for record in RunFolder(tmp_path).journal.read()[0] if record["event"] == "commit"]
    assert [record["generation"] for record in commits] == ["00000002", "00000002-2", "00000004"]
    again = RunFolder(tmp_path).read("00000002-2")
    assert all(tensor.equal(again.model[name]) for name, tensor in before.model.items())
