"""Reading a backbone from its run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ostinato.config import RecognitionOptions, read_options, to_record
from ostinato.data.file_names import shown_name
from ostinato.errors import BadInputError, DamagedRunError, ModelMismatchError
from ostinato.recognition.backbones import build_backbone
from ostinato.recognition.insightface import write_backbone_weights
from ostinato.recognition.trained_run import load_backbone, read_trained_run
from ostinato.runs import GenerationContent, RowCut, RunFolder


def write_run(folder: Path, iterations: tuple[int, ...] = (5, 9), *, recipe: str = "recognition") -> Path:
    """A run of a small network whose weights differ from generation to generation."""
    options = read_options(RecognitionOptions, None, ["model.backbone=mbf", "model.embedding_size=16"]).options
    with RunFolder(folder).open(recipe=recipe) as run:
        run.begin_session(start_iteration=0, config=to_record(options))
        for iteration in iterations:
            model = build_backbone("mbf", embedding_size=16, seed=iteration)
            run.commit(run.pack(GenerationContent(iteration, model.state_dict())))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run")


def first_weight(seed: int) -> torch.Tensor:
    return build_backbone("mbf", embedding_size=16, seed=seed).state_dict()["features.layers.2.weight"]


def test_the_newest_generation_in_evaluation_mode_with_its_options(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    model, options = load_backbone(run)
    assert not any(module.training for module in model.modules())
    assert (options.model.backbone, options.model.embedding_size) == ("mbf", 16)
    assert model.state_dict()["features.layers.2.weight"].equal(first_weight(9))
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


@pytest.mark.parametrize("generation", [5, "5", "00000005"])
def test_an_older_generation_by_iteration_or_name(run: Path, generation: int | str) -> None:
    trained = read_trained_run(run, generation=generation)
    assert trained.iteration == 5
    assert trained.model.state_dict()["features.layers.2.weight"].equal(first_weight(5))


def test_a_damaged_generation_is_said_and_the_one_before_is_used(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (newest,) = run.glob("generations/*9/model.safetensors")
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    trained = read_trained_run(run)
    assert trained.iteration == 5
    with pytest.raises(DamagedRunError):
        read_trained_run(run, generation=9)


def test_damaged_class_centres_do_not_keep_anybody_from_the_backbone(tmp_path: Path) -> None:
    model = build_backbone("mbf", embedding_size=16, seed=5)
    options = read_options(RecognitionOptions, None, ["model.backbone=mbf", "model.embedding_size=16"]).options
    centres = RowCut(torch.ones(6, 16), 0, 6, file="centres")
    with RunFolder(tmp_path / "run").open(recipe="recognition") as run:
        run.begin_session(start_iteration=0, config=to_record(options))
        run.commit(run.pack(GenerationContent(5, model.state_dict(), None, {"head": {"centres": centres}})))
    (part,) = (tmp_path / "run").glob("generations/*/centres-*")
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    assert read_trained_run(tmp_path / "run").iteration == 5
    with pytest.raises(DamagedRunError):
        read_trained_run(tmp_path / "run", whole=True)


def test_what_is_no_recognition_run_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="There is no"):
        load_backbone(tmp_path / "nowhere")
    with pytest.raises(BadInputError, match="is no run folder"):
        load_backbone(tmp_path)
    with pytest.raises(BadInputError, match="no generation 7"):
        load_backbone(run, generation=7)
    RunFolder(tmp_path / "empty").open(recipe="recognition").close()
    with pytest.raises(BadInputError, match="has saved nothing yet"):
        load_backbone(tmp_path / "empty")
    with pytest.raises(ModelMismatchError, match="made by the recipe swap/original, not recognition"):
        load_backbone(write_run(tmp_path / "swap", (1,), recipe="swap/original"))


def test_weights_that_do_not_fit_the_options_are_refused(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run").open(recipe="recognition") as run:
        options = read_options(RecognitionOptions, None, ["model.backbone=mbf", "model.embedding_size=32"]).options
        run.begin_session(start_iteration=0, config=to_record(options))
        run.commit(run.pack(GenerationContent(1, build_backbone("mbf", embedding_size=16, seed=0).state_dict())))
    with pytest.raises(DamagedRunError, match="do not fit the network mbf"):
        load_backbone(tmp_path / "run")


def test_a_file_of_weights_stands_in_for_a_run(tmp_path: Path) -> None:
    path = tmp_path / "backbone.pth"
    write_backbone_weights(build_backbone("mbf", embedding_size=16, seed=9), path)
    trained = read_trained_run(path)
    assert not any(module.training for module in trained.model.modules())
    assert trained.model.state_dict()["features.layers.2.weight"].equal(first_weight(9))
    assert (trained.options.model.backbone, trained.options.model.embedding_size) == ("mbf", 16)
    assert (trained.iteration, trained.title) == (None, f"mbf of {shown_name(path)}")


def test_a_file_that_is_no_weights_or_has_no_generations_is_refused(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pth"
    path.write_bytes(b"x")
    with pytest.raises(BadInputError, match=r"model\.pth"):
        read_trained_run(path)
    write_backbone_weights(build_backbone("mbf", embedding_size=16, seed=9), path)
    with pytest.raises(BadInputError, match="one file of weights, and has no generation 5"):
        read_trained_run(path, generation=5)
    torch.save({"layer.weight": torch.zeros(3, 2)}, path)
    with pytest.raises(ModelMismatchError, match=r"model\.pth"):
        read_trained_run(path)
