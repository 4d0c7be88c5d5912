"""Verifying pairs while training."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loop_stand_ins import CountingUpdater, ListOfSnapshots
from people_pictures import PatchMeans, write_people
from rank_processes import run_on_ranks

from ostinato.errors import ArgumentValueError, BadInputError
from ostinato.loop import PRIORITY_READER, Extension, Trainer, scope
from ostinato.recognition.verification import PairSet, verify_pairs
from ostinato.recognition.verification.pair_list import make_pair_list, write_pair_list
from ostinato.recognition.verification.result import FAR_TARGETS
from ostinato.recognition.verification_extension import PairVerifier, find_pair_files


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_people(tmp_path_factory.mktemp("people"), 9, 4)


@pytest.fixture(scope="module")
def pairs(people: Path) -> PairSet:
    return make_pair_list(people, folds=3, pairs=120).pair_set("some")


class ListOfNumbers(Extension):
    """Keeps the observation of every iteration."""

    priority = PRIORITY_READER

    def __init__(self) -> None:
        self.seen: list[dict[str, float]] = []

    def __call__(self, trainer: Any) -> None:
        self.seen.append({name: float(value) for name, value in trainer.observation.items()})


class WithDropout(PatchMeans):
    """Has a layer that does something else in training."""

    def __init__(self) -> None:
        super().__init__()
        self.noise = torch.nn.Dropout(0.5)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.noise(super().forward(pictures))


def test_it_reports_every_so_often_what_verifying_gives(pairs: PairSet, tmp_path: Path) -> None:
    model, numbers = PatchMeans(), ListOfNumbers()
    trainer = Trainer(CountingUpdater(), (4, "iteration"), out=tmp_path)
    trainer.extend(PairVerifier(model, {"some": pairs}, far_targets=(0.1, 1e-3)), trigger=(2, "iteration"))
    trainer.extend(numbers)
    trainer.run()
    expected = verify_pairs(PatchMeans(), pairs, far_targets=(0.1,)).result
    assert [sorted(seen) for seen in numbers.seen[::2]] == [[], []]
    for seen in numbers.seen[1::2]:
        assert seen == {
            "verification/some/accuracy": expected.accuracy.mean,
            "verification/some/accuracy_std": expected.accuracy.std,
            "verification/some/tar_at_far_0.1": expected.acceptances[0].tar,  # 0.001 is more than the set can tell
            "verification/some/xnorm": expected.xnorm,
            "verification/some/highest_accuracy": expected.accuracy.mean,
        }


def test_training_notices_nothing(pairs: PairSet) -> None:
    model = WithDropout()
    model.train()
    model.noise.eval()
    before = torch.random.get_rng_state()
    PairVerifier(model, {"some": pairs})()
    assert (model.training, model.noise.training) == (True, False)
    assert torch.random.get_rng_state().equal(before)


def test_the_model_is_verified_in_evaluation_mode(pairs: PairSet) -> None:
    model = WithDropout()
    model.train()
    result = PairVerifier(model, {"some": pairs}, far_targets=FAR_TARGETS)()["some"]
    assert result.to_dict() == verify_pairs(PatchMeans(), pairs).result.to_dict()


def test_the_highest_accuracy_is_kept_over_a_resume(pairs: PairSet, tmp_path: Path) -> None:
    saved: list[dict[str, Any]] = []
    first = PairVerifier(PatchMeans(), {"some": pairs})
    trainer = Trainer(CountingUpdater(), (3, "iteration"), out=tmp_path)
    trainer.extend(first, trigger=(1, "iteration"))
    trainer.extend(ListOfSnapshots(saved))
    trainer.run()
    best, when = first.highest["some"]
    assert when == 1  # the first of equal ones
    model = PatchMeans()
    torch.nn.init.zeros_(model.weight)  # all embeddings are zero: nobody is told apart
    second, numbers = PairVerifier(model, {"some": pairs, "other": pairs}), ListOfNumbers()
    trainer = Trainer(CountingUpdater(), (4, "iteration"), out=tmp_path)
    trainer.extend(second, trigger=(1, "iteration"))
    trainer.extend(ListOfSnapshots(saved))
    trainer.extend(numbers)
    trainer.run()
    assert second.highest["some"] == (best, 1)
    assert second.highest["other"] == (0.5, 4)
    (seen,) = numbers.seen
    assert seen["verification/some/accuracy"] == 0.5
    assert seen["verification/some/highest_accuracy"] == best


def test_states_of_another_format_are_refused() -> None:
    with pytest.raises(ArgumentValueError, match="format 7"):
        PairVerifier(PatchMeans(), {}).load_state_dict({"format": 7})


def test_what_is_not_finite_is_told_and_never_the_highest(pairs: PairSet, caplog: pytest.LogCaptureFixture) -> None:
    model = PatchMeans()
    verifier = PairVerifier(model, {"some": pairs})
    torch.nn.init.constant_(model.weight, float("nan"))
    observed: dict[str, Any] = {}
    with scope(observed), caplog.at_level(logging.WARNING):
        assert verifier() == {}
    assert observed == {"verification/some/not_finite": float(len(pairs.pictures))}
    assert verifier.highest == {}
    assert f"verification of some: {2 * len(pairs)} of {2 * len(pairs)} embeddings are not finite" in caplog.text
    torch.nn.init.ones_(model.weight)
    assert verifier()["some"].accuracy.mean == verifier.highest["some"][0]


def test_zero_embeddings_are_told(pairs: PairSet, caplog: pytest.LogCaptureFixture) -> None:
    model = PatchMeans()
    torch.nn.init.zeros_(model.weight)
    with caplog.at_level(logging.WARNING):
        assert PairVerifier(model, {"some": pairs})()["some"].zero_embeddings == 2 * len(pairs)
    assert f"{2 * len(pairs)} embeddings are zero" in caplog.text


def test_a_picture_that_is_gone_ends_no_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_people(tmp_path / "people", 6, 4)
    write_pair_list(tmp_path / "pairs.txt", make_pair_list(folder, folds=3))
    verifier = PairVerifier(PatchMeans(), {"some": tmp_path / "pairs.txt"})
    verifier.initialize()
    gone = folder / "person_00" / "0.png"
    content = gone.read_bytes()
    gone.unlink()
    with caplog.at_level(logging.WARNING):
        assert verifier() == {}
    assert "verification of some was left out this time" in caplog.text
    gone.write_bytes(content)
    assert list(verifier()) == ["some"]


def test_files_that_cannot_be_used_stop_a_training_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "lfw.bin").write_bytes(b"\x80\x02N.")
    trainer = Trainer(CountingUpdater(), (4, "iteration"), out=tmp_path)
    trainer.extend(PairVerifier(PatchMeans(), {"lfw": tmp_path / "lfw.bin"}))
    with pytest.raises(BadInputError, match=r"lfw\.bin"):
        trainer.run()
    assert trainer.updater.state.iteration == 0


def test_targets_are_names_beside_the_training_set_or_paths(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    for path in (data / "lfw.bin", data / "train.rec", elsewhere / "lfw.bin", elsewhere / "my pairs.txt"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    targets = ["lfw", str(elsewhere / "lfw.bin"), str(elsewhere / "my pairs.txt"), "agedb_30", str(elsewhere)]
    expected = {
        "lfw": data / "lfw.bin",
        "lfw_2": elsewhere / "lfw.bin",
        "my pairs": elsewhere / "my pairs.txt",
        "elsewhere": elsewhere,
    }
    assert find_pair_files(targets, data / "train.rec") == (expected, ["agedb_30"])
    assert find_pair_files(["lfw"], data) == ({"lfw": data / "lfw.bin"}, [])
    assert find_pair_files(["lfw"]) == ({}, ["lfw"])


def verified_while_training(group: Any, people: str, out: str) -> tuple[dict[str, float], float]:
    """Called in a process for each rank. The ranks' running statistics differ, and those of rank 0 count."""
    model = torch.nn.Sequential(PatchMeans(), torch.nn.BatchNorm1d(48))
    model[1].running_mean.fill_(0.1 * group.rank)
    numbers = ListOfNumbers()
    trainer = Trainer(CountingUpdater(), (1, "iteration"), out=Path(out), group=group)
    pairs = make_pair_list(people, folds=3, pairs=120).pair_set("some")
    trainer.extend(PairVerifier(model, {"some": pairs}, batch_size=8), trigger=(1, "iteration"))
    trainer.extend(numbers)
    trainer.run()
    return numbers.seen[0], float(model[1].running_mean[0])


def test_all_ranks_report_the_same_and_keep_their_statistics(people: Path, pairs: PairSet, tmp_path: Path) -> None:
    results = run_on_ranks(verified_while_training, str(people), str(tmp_path / "out"), folder=tmp_path, ranks=2)
    assert [result.error for result in results] == [None, None]
    (one, mean_0), (other, mean_1) = (result.value for result in results)
    assert one == other
    assert (mean_0, mean_1) == (0.0, pytest.approx(0.1))
    model = torch.nn.Sequential(PatchMeans(), torch.nn.BatchNorm1d(48)).eval()
    expected = verify_pairs(model, pairs, batch_size=8).result
    assert one["verification/some/accuracy"] == expected.accuracy.mean
    assert one["verification/some/xnorm"] == pytest.approx(expected.xnorm, rel=1e-6)
    assert np.isfinite(list(one.values())).all()
