"""Trainings put together from a request: what is saved, under which label, and what batches hold."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_model
import torch
from command_client import Kept, assert_equal_runs
from training_fixtures import QUICK

from ostinato.faces.loader import SwapLoader
from ostinato.runs import RunFolder
from ostinato.swap.request import TrainingRequest
from ostinato.swap.training import open_training

Ostinato = Callable[..., tuple[int, str]]


def command(people: Path, run: Path, *further: str | Path) -> list[str | Path]:
    words: list[str | Path] = ["swap", "train", "-A", people / "a", "-B", people / "b", "-m", run, "-b", "2"]
    return [*words, "--set", "seed=1", *QUICK, *further]


def sessions_of(ostinato: Ostinato, people: Path, run: Path, ends: list[int], *words: str) -> None:
    for end in ends:
        status, text = ostinato(*command(people, run, "-i", str(end), *words))
        assert status == 0, text


def test_what_is_in_a_generation_is_what_its_label_says(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    """Odd sessions, and a snapshot interval that is no multiple of the save interval."""
    sessions_of(ostinato, people, tmp_path / "every", [20], "-s", "1", "-I", "1", "--max-snapshots", "-1")
    sessions_of(ostinato, people, tmp_path / "odd", [5, 8, 11, 20], "-s", "4", "-I", "7", "--max-snapshots", "-1")
    every, odd = RunFolder(tmp_path / "every"), RunFolder(tmp_path / "odd")
    assert [name.iteration for name in every.names()] == list(range(1, 21))
    kept = {manifest.iteration: set(manifest.reasons) for manifest in odd.scan().manifests}
    assert {iteration for iteration, reasons in kept.items() if "snapshot" in reasons} == {7, 14}
    assert {iteration for iteration, reasons in kept.items() if "session_end" in reasons} <= {5, 8, 11, 20}
    assert "session_end" in kept[20]
    for iteration in kept:
        there, label = every.read(iteration), odd.read(iteration)
        assert label.iteration == iteration
        state: Any = label.state
        assert state["trainer"]["updater"]["state"]["iteration"] == iteration
        assert state["trainer"]["updater"]["loader"]["position"] == iteration * 2
        assert sum(session.iterations for session in label.sessions) == iteration
        assert sum(session.iterations for session in there.sessions) == iteration
        for name, tensor in label.model.items():
            assert tensor.equal(there.model[name]), (iteration, name)
        optimizer: Any = label.optimizer
        assert {float(entry["step"]) for entry in optimizer["main"]["state"].values()} == {iteration}


def test_snapshots_are_kept_up_to_their_number(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    sessions_of(ostinato, people, tmp_path / "run", [20], "-s", "3", "-I", "4", "--max-snapshots", "2")
    manifests = RunFolder(tmp_path / "run").scan().manifests
    # A mean over fewer iterations than lie between two saves is none to compare with.
    best = min((m for m in manifests if "best" in m.reasons), key=lambda manifest: manifest.average_loss or 9.0)
    assert all((m.average_loss or 9.0) >= (best.average_loss or 9.0) for m in manifests if m.average_count >= 3)
    # Two snapshots, the two latest states, the best one; an older snapshot only stays when it is one of these.
    assert {m.iteration for m in manifests} == {16, 18, 20, best.iteration}
    assert {m.iteration for m in manifests if "snapshot" in m.reasons} - {best.iteration} == {16, 20} - {best.iteration}


@pytest.mark.parametrize("size", [1, 3, 16, 40])
def test_batches_really_have_the_size_that_is_shown_and_recorded(
    ostinato: Ostinato, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    seen: set[tuple[int, ...]] = set()
    real = SwapLoader.next_batch

    def next_batch(self: SwapLoader) -> Any:
        batch = real(self)
        seen.add((*batch.inputs.shape[:2], *batch.targets[0].shape[:2], *(len(files) for files in batch.files)))
        return batch

    monkeypatch.setattr(SwapLoader, "next_batch", next_batch)
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "2", "-b", str(size)))
    assert status == 0, text
    assert seen == {(2, size, 2, size, size, size)}
    newest = RunFolder(tmp_path / "run").load_newest()
    assert newest is not None
    assert [session.batch_size for session in newest.sessions] == [size]
    state: Any = newest.state
    assert state["trainer"]["updater"]["loader"]["position"] == 2 * size


@pytest.mark.parametrize("damaged", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
def test_a_newest_state_of_zeros_is_named_kept_aside_and_the_one_before_continues_exactly(
    ostinato: Ostinato, people: Path, tmp_path: Path, damaged: str
) -> None:
    sessions_of(ostinato, people, tmp_path / "run", [6], "-s", "2")
    path = tmp_path / "run" / "generations" / "00000006" / damaged
    path.write_bytes(bytes(path.stat().st_size))
    status, text = ostinato("runs", "verify", tmp_path / "run")
    assert status == 4
    assert damaged in text
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "9", "-s", "2"))
    assert status == 0, text
    assert "00000006" in text
    assert damaged in text
    assert "resuming run at iteration 4" in text
    assert (tmp_path / "run" / "generations" / "damaged" / "00000006" / damaged).exists()
    sessions_of(ostinato, people, tmp_path / "whole", [9], "-s", "2")
    assert_equal_runs(Kept.read(tmp_path / "run"), Kept.read(tmp_path / "whole"))


@pytest.mark.parametrize("damaged", ["run.json", "journal.jsonl"])
def test_zeros_in_the_descriptions_of_a_run_lose_nothing(
    ostinato: Ostinato, people: Path, tmp_path: Path, damaged: str
) -> None:
    sessions_of(ostinato, people, tmp_path / "run", [6], "-s", "2")
    path = tmp_path / "run" / damaged
    path.write_bytes(bytes(path.stat().st_size))
    sessions_of(ostinato, people, tmp_path / "run", [9], "-s", "2")
    sessions_of(ostinato, people, tmp_path / "whole", [9], "-s", "2")
    assert_equal_runs(Kept.read(tmp_path / "run"), Kept.read(tmp_path / "whole"))


def test_when_every_state_is_damaged_nothing_starts_from_scratch(
    ostinato: Ostinato, people: Path, tmp_path: Path
) -> None:
    sessions_of(ostinato, people, tmp_path / "run", [6], "-s", "2")
    for path in (tmp_path / "run" / "generations").glob("*/model.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "9"))
    assert status == 4
    assert "none of them is whole:\n" in text
    assert ".\nNothing was changed." in text
    assert len(RunFolder(tmp_path / "run").names()) == 3


def test_a_new_encoder_can_start_with_the_weights_of_another_run(
    ostinato: Ostinato, people: Path, tmp_path: Path
) -> None:
    sessions_of(ostinato, people, tmp_path / "first", [3])
    words = command(people, tmp_path / "second", "-i", "1", "-l", tmp_path / "first", "-f", "--set", "seed=2")
    status, text = ostinato(*words)
    assert status == 0, text
    assert f"the encoder starts with the weights of {tmp_path / 'first'} at iteration 3" in text
    first, second = Kept.read(tmp_path / "first").model, Kept.read(tmp_path / "second").model
    for name, tensor in second.items():  # frozen, so it is still the same
        assert tensor.equal(first[name]) == name.startswith("encoder."), name
    status, text = ostinato(*command(people, tmp_path / "second", "-i", "2", "-l", tmp_path / "first"))
    assert status == 0
    assert "-l/--load-weights is for new runs and has no effect on this one." in text
    words = command(people, tmp_path / "third", "-i", "1", "-l", tmp_path / "first", "-t", "lightweight")
    status, text = ostinato(*words)
    assert status == 3
    assert "is of another kind than that of lightweight" in text
    assert not (tmp_path / "third").exists()
    (tmp_path / "file").write_text("")
    status, text = ostinato(*command(people, tmp_path / "file", "-i", "1"))
    assert status == 3
    assert "is a file, and a folder is needed there" in text


def test_only_decoders_learn_when_the_encoder_is_frozen_and_all_learns_again_after(
    ostinato: Ostinato, people: Path, tmp_path: Path
) -> None:
    sessions_of(ostinato, people, tmp_path / "run", [2])
    before = Kept.read(tmp_path / "run").model
    sessions_of(ostinato, people, tmp_path / "run", [4], "-f")
    frozen = Kept.read(tmp_path / "run").model
    assert {name.split(".")[0] for name in before if not before[name].equal(frozen[name])} == {"decoder_a", "decoder_b"}
    sessions_of(ostinato, people, tmp_path / "run", [6])
    after = Kept.read(tmp_path / "run").model
    assert all(not after[name].equal(frozen[name]) for name in after if name.startswith("encoder."))


def test_what_was_loaded_is_let_go_once_it_is_restored(
    people: Path, tmp_path: Path, face_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.swap.training.build_swap_model", tiny_model.build_tiny_model)

    def request(total: int) -> TrainingRequest:
        folders = {side: people / side for side in "ab"}
        overrides = ("seed=1", QUICK[1])
        return TrainingRequest(
            folders, tmp_path / "run", batch_size=2, iterations=total, overrides=overrides, cache=face_cache
        )

    with open_training(request(2), tell=lambda _: None) as training:
        assert training is not None
        training.trainer.run()
    kept: list[weakref.ref[torch.Tensor]] = []
    real = RunFolder.load_newest

    def load_newest(self: RunFolder) -> Any:
        loaded = real(self)
        if loaded is not None:
            kept.extend(weakref.ref(tensor) for tensor in loaded.model.values())
        return loaded

    monkeypatch.setattr(RunFolder, "load_newest", load_newest)
    alive: list[int] = []
    with open_training(request(4), tell=lambda _: None) as training:
        assert training is not None
        assert kept

        def count(_: Any) -> None:
            gc.collect()
            alive.append(sum(ref() is not None for ref in kept))

        training.trainer.extend(count, name="count")
        training.trainer.run()
    assert alive == [0, 0]


def test_the_journal_tells_of_every_save(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    sessions_of(ostinato, people, tmp_path / "run", [6], "-s", "2")
    lines = [json.loads(line) for line in (tmp_path / "run" / "journal.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines if line["event"] == "commit"] == [2, 4, 6]
