"""Trainings in this process, with a tiny network."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from metrics_lines import losses_of, metrics_lines
from tiny_backbone import TinyBackbone, build_tiny_backbone

from ostinato.config import RecognitionOptions
from ostinato.errors import (
    BadInputError,
    ConfigError,
    DataSetError,
    ModelMismatchError,
    NonFiniteLossError,
    OstinatoError,
    RunLockedError,
    UsageError,
)
from ostinato.recognition.identities import unpack_names
from ostinato.recognition.insightface import write_backbone_weights
from ostinato.recognition.request import RecognitionRequest
from ostinato.recognition.training import RecognitionTraining, open_training
from ostinato.runs import RunFolder

SETTINGS = ("seed=5", "embedding_size=16", "scale=16", "m2=0.2", "learning_rate=0.02", "workers=0")


def _request(folder: Path, *overrides: str, **settings: Any) -> RecognitionRequest:
    given = {"data": "synthetic", "classes": 6, "images": 48, "save_interval": 4, "logs": False, "device": "cpu"}
    own = (*SETTINGS, "batch_size=12", "epochs=3", *overrides)
    return RecognitionRequest(**{**given, "run_folder": folder, "overrides": own, **settings})


def _train(
    request: RecognitionRequest, look: Callable[[RecognitionTraining], Any] | None = None, build: Any = None
) -> list[str]:
    """Train to the end; what was told."""
    told: list[str] = []
    with open_training(request, tell=told.append, build=build or build_tiny_backbone) as training:
        if training is not None:
            if look is not None:
                look(training)
            training.trainer.run()
    return told


def _draw_people(folder: Path, names: list[str], images: int = 6) -> Path:
    """People that differ in their colours, a little different in each picture."""
    for name in names:
        (folder / name).mkdir(parents=True)
        colours = np.random.default_rng(sum(name.encode())).integers(40, 215, (4, 4, 3))
        for number in range(images):
            noise = np.random.default_rng(number).integers(-30, 30, (4, 4, 3))
            picture = cv2.resize((colours + noise).astype(np.uint8), (112, 112), interpolation=cv2.INTER_NEAREST)
            assert cv2.imwrite(str(folder / name / f"{number}.png"), picture)
    return folder


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _draw_people(tmp_path_factory.mktemp("people") / "set", [f"p{number}" for number in range(5)])


def test_a_training_learns_and_leaves_a_run_that_can_be_read(tmp_path: Path, people: Path) -> None:
    run = tmp_path / "run"
    told = _train(_request(run, data=str(people), overrides=(*SETTINGS, "batch_size=10", "epochs=8")))
    losses = losses_of(run)
    assert len(losses) == 24
    assert np.mean(losses[-3:]) < 0.5 * np.mean(losses[:3])
    assert "5 people, 30 images, 24 updates of 10 images, seed 5" in told[0]
    loaded = RunFolder(run).load_newest()
    assert loaded is not None
    assert loaded.manifest.run["recipe"] == "recognition"
    assert set(loaded.model) == set(TinyBackbone(16).state_dict())
    names = loaded.state["trainer"]["extensions"]["identities"]["names"]  # type: ignore[index]
    assert unpack_names(names) == tuple(f"p{number}" for number in range(5))
    assert (run / "logs/session_0001/worker_0.log").exists()
    assert "backbone: r50" in (run / "config.yaml").read_text()


@pytest.mark.parametrize("update", ["frozen", "dense_lazy"])
def test_a_run_in_pieces_equals_one_in_one(tmp_path: Path, update: str) -> None:
    # So many classes that most of them miss many updates, with a decay that shows in them.
    more = (f"head.update={update}", "head.sampling_rate=0.1", "weight_decay=0.02", "batch_size=8", "iterations=12")
    request = _request(tmp_path / "one", *more, classes=60, images=600)
    _train(request)

    def stop(training: RecognitionTraining) -> None:
        def at_a_save(trainer: Any) -> None:
            if trainer.updater.state.iteration in (4, 8):
                trainer.request_stop()

        training.trainer.extend(at_a_save, name="stop")

    for _ in range(3):
        _train(replace(request, run_folder=tmp_path / "three"), stop)
    assert losses_of(tmp_path / "three") == losses_of(tmp_path / "one")
    one, three = (RunFolder(tmp_path / name).load_newest() for name in ("one", "three"))
    assert one is not None
    assert three is not None
    assert one.iteration == three.iteration == 12
    assert [session.number for session in three.sessions] == [1, 2, 3]
    for name, tensor in one.model.items():
        assert tensor.equal(three.model[name]), name
    heads: list[Any] = [loaded.state["trainer"]["updater"]["head"] for loaded in (one, three)]  # type: ignore[index]
    assert heads[0]["weight"].read().equal(heads[1]["weight"].read())
    assert heads[0]["tables"]["momentum"].read().equal(heads[1]["tables"]["momentum"].read())


def test_a_finished_run_says_so_and_a_longer_one_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    _train(_request(run))
    assert "The run is finished: it has its 12 updates." in _train(_request(run))[-1]
    told = _train(_request(run, "epochs=4"))
    assert "epochs   3 -> 4   (updatable, applied)" in told[0]
    assert len(losses_of(run)) == 16
    assert "has 16 updates already, more than the 12 asked for" in _train(_request(run, "epochs=3"))[-1]


def test_an_end_before_the_first_save_keeps_the_seed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    overrides = tuple(text for text in SETTINGS if not text.startswith("seed"))
    seeds = []

    def fail(training: RecognitionTraining) -> None:
        seeds.append(training.options.seed)
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            _train(_request(run, overrides=(*overrides, "batch_size=12")), fail)
    assert seeds[0] == seeds[1]
    assert seeds[0] is not None


def test_new_people_join_without_anybody_losing_their_number(tmp_path: Path) -> None:
    data = _draw_people(tmp_path / "data", ["bert", "emil", "rosa"])
    run = tmp_path / "run"
    asked = {"data": str(data), "overrides": (*SETTINGS, "batch_size=6", "epochs=2")}
    _train(_request(run, **asked))
    before = RunFolder(run).load_newest()
    assert before is not None
    head: Any = before.state["trainer"]["updater"]["head"]  # type: ignore[index]
    rows = head["weight"].read()
    _draw_people(data, ["anna", "carl"])  # both come before others in the folder's order
    weights: list[torch.Tensor] = []

    def look(training: RecognitionTraining) -> None:
        training.trainer.extend(_Begin(lambda: weights.append(training.head.weight.clone())), name="begin")

    told = _train(_request(run, **{**asked, "overrides": (*SETTINGS, "batch_size=6", "epochs=3")}), look)
    assert any("2 new people: 3 -> 5 classes" in line for line in told)
    assert weights[0].shape == (5, 16)
    assert weights[0][:3].equal(rows)
    after = RunFolder(run).load_newest()
    assert after is not None
    names = after.state["trainer"]["extensions"]["identities"]["names"]  # type: ignore[index]
    assert unpack_names(names) == ("bert", "emil", "rosa", "anna", "carl")


class _Begin:
    """Calls a function when training begins, with everything restored."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def initialize(self, trainer: Any) -> None:
        self._function()

    def __call__(self, trainer: Any) -> None: ...


def test_damaged_pictures_are_passed_over_up_to_what_the_run_allows(tmp_path: Path) -> None:
    data = _draw_people(tmp_path / "data", ["bert", "emil", "rosa"])
    for name in ("bert/0.png", "emil/3.png"):
        (data / name).write_bytes(b"no picture")
    run = tmp_path / "run"
    asked = {"data": str(data), "overrides": (*SETTINGS, "batch_size=6", "epochs=1", "max_bad_records=2")}
    _train(_request(run, **asked))
    _train(_request(run, **{**asked, "overrides": (*SETTINGS, "batch_size=6", "epochs=2")}))  # keeps its 2
    with pytest.raises(DataSetError, match="2 pictures cannot be used, and at most 1 are skipped"):
        _train(_request(run, **{**asked, "overrides": (*SETTINGS, "batch_size=6", "epochs=3", "max_bad_records=1")}))


def test_people_who_are_gone_are_refused(tmp_path: Path) -> None:
    data = _draw_people(tmp_path / "data", ["bert", "emil", "rosa"])
    run = tmp_path / "run"
    asked = {"data": str(data), "overrides": (*SETTINGS, "batch_size=6", "epochs=1")}
    _train(_request(run, **asked))
    (data / "emil").rename(tmp_path / "emil")
    with pytest.raises(BadInputError, match="not in the data any more: emil"):
        _train(_request(run, **{**asked, "overrides": (*SETTINGS, "batch_size=6", "epochs=2")}))


def test_weights_start_a_new_run_from_a_file_or_from_a_run(tmp_path: Path) -> None:
    source = TinyBackbone(16)
    source.initialize(torch.Generator().manual_seed(77))
    run = tmp_path / "first"
    found: list[torch.Tensor] = []

    def look(training: RecognitionTraining) -> None:
        found.append(training.backbone.first.weight.detach().clone())

    _train(_request(run, "iterations=1"))
    weights = tmp_path / "weights.pth"
    loaded = RunFolder(run).load_newest()
    assert loaded is not None
    told = _train(_request(tmp_path / "second", "iterations=1", load_weights=run), look)
    assert found[0].equal(loaded.model["first.weight"])
    assert any("the network starts with the weights of" in line for line in told)
    write_backbone_weights(source, weights)
    with pytest.raises(ModelMismatchError):  # a tiny network is none of the published ones
        _train(_request(tmp_path / "third", load_weights=weights))
    told = _train(_request(tmp_path / "second", "iterations=2", load_weights=run))
    assert any("are for new runs" in line for line in told)


def test_class_centres_start_a_new_run(tmp_path: Path) -> None:
    rows = torch.randn(6, 16, generator=torch.Generator().manual_seed(1))
    path = tmp_path / "softmax_fc_gpu_0.pt"
    torch.save({"weight": rows}, path)
    found: list[torch.Tensor] = []

    def look(training: RecognitionTraining) -> None:
        found.append(training.head.weight.clone())

    told = _train(_request(tmp_path / "run", "iterations=1", load_centres=(path,)), look)
    assert found[0].equal(rows)
    assert any("6 class centres are taken from" in line for line in told)
    with pytest.raises(ModelMismatchError, match="have 16 numbers, and embeddings 32"):
        _train(_request(tmp_path / "other", "embedding_size=32", load_centres=(path,)))
    with pytest.raises(BadInputError, match="each class of this run has 3 centres"):
        _train(_request(tmp_path / "third", "sub_centres=3", load_centres=(path,)))


def test_pairs_are_verified_now_and_then_and_at_the_end(tmp_path: Path, people: Path) -> None:
    run = tmp_path / "run"
    overrides = (*SETTINGS, "batch_size=10", "iterations=5", "verification.every=3", "verification.targets=lfw")
    told = _train(_request(run, data=str(people), overrides=overrides, pairs=(people,)))
    assert [line["iteration"] for line in metrics_lines(run) if "verification/set/accuracy" in line] == [3, 5]
    assert any("there is no lfw beside the data; it is passed over" in line for line in told)
    with pytest.raises(BadInputError, match="--pairs: there is no"):
        _train(_request(tmp_path / "other", pairs=(tmp_path / "none.bin",)))


def test_a_loss_that_is_no_number_stops_the_run_before_it_is_saved(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def spoil(training: RecognitionTraining) -> None:
        def at_six(trainer: Any) -> None:
            if trainer.updater.state.iteration == 6:
                with torch.no_grad():
                    training.backbone.first.weight.fill_(float("nan"))

        training.trainer.extend(at_six, name="spoil")

    with pytest.raises(NonFiniteLossError, match="at iteration 7") as caught:
        _train(_request(run), spoil)
    assert "Learning rate 0.01, labels 0 to 5 of 6." in str(caught.value)
    assert "generation 00000004" in str(caught.value)
    assert [name.iteration for name in RunFolder(run).names()] == [4]


# --- mistakes --------------------------------------------------------------------------------------------------------


def _refused(request: RecognitionRequest, kind: type[OstinatoError], match: str) -> None:
    with pytest.raises(kind, match=match):
        _train(request)


def test_data_that_cannot_be_trained_on_is_refused_before_anything_is_written(tmp_path: Path, people: Path) -> None:
    run = tmp_path / "run"
    one = _draw_people(tmp_path / "one", ["alone"])
    _refused(_request(run, data=str(tmp_path / "nowhere")), OstinatoError, "There is no")
    _refused(_request(run, data=str(one)), BadInputError, "one person alone: there is nobody to tell them from")
    _refused(_request(run, "batch_size=100"), BadInputError, r"has 100 images \(-b\), and the data has 48")
    assert not run.exists()


def test_folders_that_are_no_place_for_a_run_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    _refused(_request(other), BadInputError, r"is no run folder and holds other files \('notes.txt'\)")
    _refused(_request(other / "notes.txt"), BadInputError, "is a file, and a run lives in a folder")
    swap = tmp_path / "swap"
    RunFolder(swap).open(recipe="swap").close()
    _refused(_request(swap), ModelMismatchError, "was made by the recipe swap, not recognition")


def test_another_backbone_than_that_of_the_run_is_refused(tmp_path: Path) -> None:
    _train(_request(tmp_path / "run", "backbone=mbf", "iterations=1"))
    _refused(
        _request(tmp_path / "run", "backbone=r18"), ModelMismatchError, "trains the network mbf, and r18 was asked for"
    )


def test_a_run_that_trains_elsewhere_is_locked(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run").open(recipe="recognition"):
        _refused(_request(tmp_path / "run"), RunLockedError, "train")


def test_options_are_refused_with_every_mistake(tmp_path: Path) -> None:
    _refused(_request(tmp_path, "scale=-1", "m2=9"), ConfigError, "2 mistakes")
    _refused(_request(tmp_path, preset="ms1mv4_r50"), UsageError, "Did you mean")
    _refused(_request(tmp_path, device="cuda:77"), UsageError, "--device cuda:77 cannot be used")


def test_a_file_and_single_options_win_over_a_preset(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("model:\n  backbone: mbf\noptimizer:\n  weight_decay: 0.001\n")
    found: list[RecognitionOptions] = []
    request = RecognitionRequest(
        "synthetic",
        tmp_path / "run",
        preset="ms1mv3_r100",
        config=config,
        overrides=(
            "batch_size=12",
            "iterations=1",
            "model.mixed_precision=no",
            "workers=0",
            "optimizer.weight_decay=0.01",
        ),
        classes=6,
        images=48,
        logs=False,
        device="cpu",
    )
    _train(request, lambda training: found.append(training.options))
    options = found[0]
    assert options.model.backbone == "mbf"
    assert options.optimizer.weight_decay == 0.01
    assert options.verification.targets == ["lfw", "cfp_fp", "agedb_30"]
    assert options.optimizer.linear_scaling_batch == 1024


@pytest.mark.parametrize(("updates", "saves"), [(6, [1, 2, 3, 4, 5, 6]), (25, [*range(2, 25, 2), 25])])
def test_a_short_run_is_saved_about_ten_times(tmp_path: Path, updates: int, saves: list[int]) -> None:
    _train(_request(tmp_path / "run", f"iterations={updates}", save_interval=None))
    lines = [json.loads(line) for line in (tmp_path / "run" / "journal.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines if line["event"] == "commit"] == saves
