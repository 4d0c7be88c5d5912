from __future__ import annotations

import json

import pytest

from ostinato.config import (
    ReadOptions,
    RecognitionOptions,
    check_together,
    load_options,
    option_records,
    read_options,
    render_reference,
    render_yaml,
    resume,
    to_record,
)
from ostinato.errors import ConfigError


def _read(*overrides: str) -> ReadOptions[RecognitionOptions]:
    return read_options(RecognitionOptions, None, overrides)


def test_every_option_is_explained_and_ends_its_sentences() -> None:
    for record in option_records(RecognitionOptions):
        assert record.help.endswith("."), record.path
        assert len(record.help) > 40, record.path


def test_the_defaults_make_sense_together_and_none_is_idle() -> None:
    options = RecognitionOptions()
    assert options.conflicts() == []
    assert options.idle() == []


def test_a_written_file_reads_back_as_the_same_options(tmp_path: object) -> None:
    options = _read("schedule=multistep", "milestones=8,14.5", "targets=lfw,cfp_fp", "checkpointing=true").options
    path = tmp_path / "config.yaml"  # type: ignore[operator]
    path.write_text(render_yaml(options))
    assert load_options(RecognitionOptions, path) == options
    assert "### `head.m2`" in render_reference(RecognitionOptions)


def test_a_record_is_json_and_a_run_goes_on_with_what_is_fixed() -> None:
    stored = json.loads(json.dumps(to_record(_read("backbone=mbf", "seed=3", "learning_rate=0.1").options)))
    asked = _read("backbone=r50", "learning_rate=0.05", "seed=4")
    result = resume(stored, asked.options, asked.explicitly_set)
    assert result.effective.model.backbone == "mbf"
    assert result.effective.seed == 3
    assert result.effective.optimizer.learning_rate == 0.05
    assert {change.path: change.kind for change in result.changes} == {
        "optimizer.learning_rate": "applied",
        "model.backbone": "kept",
        "seed": "kept",
    }


def test_iterations_win_until_they_are_set_back_to_nothing() -> None:
    stored = to_record(_read("iterations=300").options)
    asked = _read("epochs=5", "iterations=0")
    effective = resume(stored, asked.options, asked.explicitly_set).effective
    assert (effective.iterations, effective.epochs) == (0, 5.0)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["head.update=dense_lazy", "optimizer.optimizer=adamw"], "dense_lazy can be computed for sgd alone"),
        (["schedule=multistep"], "has no milestones"),
        (["schedule=multistep", "milestones=8,seven"], "the milestone seven is no number"),
        (["schedule=multistep", "milestones=14,8"], "do not rise"),
        (["schedule=multistep", "milestones=0,8"], "do not rise"),
        (["schedule=multistep", "milestones=1.5,8", "milestone_unit=iteration"], "are not whole numbers"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_together(_read(*overrides).options)


@pytest.mark.parametrize(
    "override",
    ["backbone=r51", "batch_size=1", "sampling_rate=1.1", "m2=-1", "scale=0", "accumulation=0", "image_size=224"],
)
def test_values_out_of_range_are_refused(override: str) -> None:
    with pytest.raises(ConfigError):
        _read(override)


@pytest.mark.parametrize(
    ("overrides", "idle"),
    [
        (["optimizer.milestones=8"], "optimizer.milestones"),
        (["schedule=constant", "optimizer.power=2"], "optimizer.power"),
        (["optimizer.warmup_starts_full=true"], "optimizer.warmup_starts_full"),
        (["optimizer.optimizer=adamw", "optimizer.momentum=0.8"], "optimizer.momentum"),
        (["optimizer.linear_scaling_batch=512"], "optimizer.linear_scaling_batch"),
        (["model.backbone=mbf", "model.dropout=0.4"], "model.dropout"),
        (["epochs=5", "iterations=100"], "epochs"),
    ],
)
def test_an_option_without_effect_is_remarked_on(overrides: list[str], idle: str) -> None:
    told: list[str] = []
    read = _read(*overrides)
    read.tell_idle(read.options, told.append)
    assert [line.split()[1] for line in told] == [idle]
