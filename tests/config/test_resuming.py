"""What a resumed run is trained with."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.config import (
    AugmentationOptions,
    Change,
    FaceOptions,
    LossOptions,
    MaskOptions,
    NetworkOptions,
    OptimizerOptions,
    Options,
    SwapOptions,
    option,
    option_records,
    read_options,
    resume,
    to_record,
    value_at,
)
from ostinato.errors import ConfigError

OLD = SwapOptions(
    seed=7,
    face=FaceOptions(coverage=87.5),
    optimizer=OptimizerOptions(learning_rate=5e-05),
    augmentation=AugmentationOptions(color_ab=3),
)


def go_on(stored: dict[str, Any], *overrides: str) -> Any:
    asked = read_options(SwapOptions, None, overrides)
    return resume(json.loads(json.dumps(stored)), asked.options, asked.explicitly_set)


def kinds(result: Any) -> list[tuple[str, str]]:
    return [(change.path, change.kind) for change in result.changes]


def test_without_a_wish_everything_stays_as_it_was() -> None:
    result = go_on(to_record(OLD))

    assert result.effective == OLD
    assert result.changes == ()
    assert result.describe("my_run", 1, 2) == "resuming my_run at iteration 1 (session 2)"


def test_updatable_wishes_are_applied_and_fixed_ones_are_not_and_both_are_said() -> None:
    result = go_on(to_record(OLD), "coverage=100", "learning_rate=3e-5", "color_ab=3", "seed=7")

    assert result.effective.face.coverage == 87.5
    assert result.effective.optimizer.learning_rate == 3e-05
    assert result.describe("my_run", 41250, 7) == (
        "resuming my_run at iteration 41,250 (session 7)\n"
        "  learning_rate   5e-05 -> 3e-05   (updatable, applied)\n"
        "  coverage        87.5 kept, 100 asked for   (fixed: it decides what the model has learned to see; "
        "start a new run to change it)"
    )


def test_changes_of_other_things_can_stand_in_the_same_table() -> None:
    batch = Change("batch_size", "applied", 16, 24, 24, "updatable, applied")
    lines = go_on(to_record(OLD), "learning_rate=3e-5").describe("my_run", 10, 2, also=[batch]).splitlines()

    assert lines[1:] == [
        "  batch_size      16 -> 24   (updatable, applied)",
        "  learning_rate   5e-05 -> 3e-05   (updatable, applied)",
    ]


CHANGEABLE = [record for record in option_records(SwapOptions) if len(record.choices) != 1]


@pytest.mark.parametrize("record", CHANGEABLE, ids=lambda record: record.path)
def test_every_option_follows_its_kind(record: Any) -> None:
    candidates = (*record.choices, "true", "false", "1", "7", "-3", "0.5", "0.7", "70", "200", "#123456")
    stored = to_record(SwapOptions(seed=2**40))
    for word in candidates:
        with contextlib.suppress(ConfigError):
            asked = read_options(SwapOptions, None, [f"{record.path}={word}"])
            if value_at(asked.options, record.path) != record.default:
                break

    result = resume(stored, asked.options, asked.explicitly_set)

    before = value_at(SwapOptions(seed=2**40), record.path)
    wanted = value_at(asked.options, record.path)
    assert wanted != before
    assert value_at(result.effective, record.path) == (before if record.fixed else wanted)
    assert kinds(result) == [(record.path, "kept" if record.fixed else "applied")]


def test_an_open_seed_asks_for_nothing() -> None:
    result = go_on(to_record(OLD), "seed=null")

    assert result.effective.seed == 7
    assert result.changes == ()


class Before(Options):
    """Options of a run made by an earlier version."""

    rate: float = option(0.5, help="h", group="g")
    crop: int = option(60, help="h", group="g", fixed=True, why_fixed="x")
    gone: int = option(3, help="h", group="g")
    layers: list[Literal["a", "b", "c"]] = option(["a", "b"], help="h", group="g", fixed=True, why_fixed="x")


class After(Options):
    """The same a version later: other defaults, one option gone, two new ones, fewer choices."""

    rate: float = option(0.7, help="h", group="g")
    crop: int = option(80, help="h", group="g", fixed=True, why_fixed="x", ge=70)
    layers: list[Literal["b", "a", "c"]] = option(["c"], help="h", group="g", fixed=True, why_fixed="x")
    style: Literal["old", "new"] = option("new", help="h", group="g", fixed=True, why_fixed="x", before="old")
    noise: int = option(0, help="h", group="g")


def test_a_default_that_changes_in_the_code_does_not_change_an_old_run_and_is_said() -> None:
    result = resume(to_record(Before()), After(), ())

    assert (result.effective.rate, result.effective.crop, result.effective.layers) == (0.5, 60, ["a", "b"])
    assert (result.effective.style, result.effective.noise) == ("old", 0)
    assert kinds(result) == [
        ("style", "added"),
        ("rate", "default"),
        ("crop", "default"),
        ("layers", "default"),
        ("gone", "unknown"),
    ]
    assert result.describe("r", 1000, 2).splitlines()[1:] == [
        "  style    old, new runs start with new   (the option is newer than this run, which was made like this)",
        "  rate     0.5 kept, new runs start with 0.7   (the default has changed since this run was made)",
        "  crop     60 kept, new runs start with 80   (the default has changed since this run was made)",
        "  layers   a, b kept, new runs start with c   (the default has changed since this run was made)",
        "  gone     3 left out   (there is no such option any more)",
    ]


def test_a_changed_default_is_said_once_and_then_stored() -> None:
    first = resume(to_record(Before()), After(), ())

    assert resume(to_record(first.effective), After(), ()).changes == ()


def test_a_range_that_has_become_narrower_does_not_change_an_old_run() -> None:
    stored = {"rate": 0.7, "crop": 60, "layers": ["c"], "style": "new", "noise": 0}
    result = resume(stored, After(), ())

    assert result.effective.crop == 60
    assert result.changes == ()


def test_lists_are_compared_as_sets() -> None:
    asked = After(layers=["b", "a"])
    result = resume(to_record(Before()), asked, {"layers"})

    assert result.effective.layers == ["a", "b"]
    assert "layers" not in dict(kinds(result))


@pytest.mark.parametrize(("stored", "value"), [(75, 75.0), (75.0, 75.0), ("75", 75.0), (87, 87.0)])
def test_whole_numbers_are_taken_for_decimal_ones(stored: object, value: float) -> None:
    result = go_on({"face.coverage": stored})

    assert result.effective.face.coverage == value
    assert type(result.effective.face.coverage) is float


def test_decimal_numbers_are_taken_for_whole_ones_where_nothing_is_lost() -> None:
    assert go_on({"face.vertical_offset": 3.0}).effective.face.vertical_offset == 3
    lost = go_on({"face.vertical_offset": 3.5})
    assert lost.effective.face.vertical_offset == 0
    assert ("face.vertical_offset", "invalid") in kinds(lost)


@pytest.mark.parametrize("value", ["nose", 3, None, ["face"]])
def test_a_stored_choice_that_does_not_exist_any_more_gives_way_to_the_default_with_a_word(value: object) -> None:
    result = go_on({**to_record(OLD), "values": {**to_record(OLD)["values"], "face.centering": value}})

    assert result.effective.face.centering == "face"
    assert kinds(result) == [("face.centering", "invalid")]
    assert "the stored value" in result.changes[0].why
    assert resume(to_record(result.effective), SwapOptions(), ()).changes == ()


def test_a_wish_is_taken_before_the_default_where_the_stored_value_is_of_no_use() -> None:
    result = go_on({"face.centering": "nose", "optimizer.optimizer": "sgd"}, "centering=head")

    assert result.effective.face.centering == "head"
    whys = {change.path: change.why for change in result.changes}
    assert result.effective.optimizer.optimizer == "adam"
    assert "is not one of adam, adamw" in whys["optimizer.optimizer"]


def test_a_run_of_a_model_that_does_not_exist_here_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"made with model\.name = villain, which is known to Faceswap"):
        go_on({"model.name": "villain"}, "model.name=original")


def test_options_that_the_run_does_not_know_keep_what_older_runs_were_made_with() -> None:
    result = go_on({}, "coverage=100", "mask_loss_function=mae")

    assert (result.effective.face.centering, result.effective.face.coverage) == ("legacy", 62.5)
    assert result.effective.loss.mask_loss_function == "mae"
    assert kinds(result) == [
        ("loss.mask_loss_function", "applied"),
        ("face.coverage", "kept"),
        ("face.centering", "added"),
    ]


def test_stored_options_may_be_nested_or_go_by_bare_names() -> None:
    nested = go_on({"seed": 7, "face": {"coverage": 87.5}, "augmentation": {"color_ab": 3}}).effective
    bare = go_on({"seed": 7, "coverage": 87.5, "color_ab": 3}).effective

    assert nested == bare
    assert (nested.seed, nested.face.coverage, nested.augmentation.color_ab) == (7, 87.5, 3)


def test_the_check_across_options_looks_at_the_effective_values() -> None:
    made_without = SwapOptions(mask=MaskOptions(mask_type="none"), loss=LossOptions(penalized_mask_loss=False))

    # Asked for together these would be refused; the run's own values are fixed and fit.
    assert go_on(to_record(OLD), "mask_type=none").effective.mask.mask_type == "extended"
    assert go_on(to_record(made_without), "penalized_mask_loss=true").effective == made_without


def test_wishes_that_do_not_fit_the_run_are_refused() -> None:
    with pytest.raises(ConfigError, match="the options of this run: gradient_clipping norm with the limit 0"):
        go_on(to_record(OLD), "gradient_clipping=norm", "clipping_value=0")


def test_a_record_of_a_newer_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="format 2, not 1"):
        go_on({**to_record(OLD), "format": 2})


def test_a_record_is_plain_json_and_holds_every_option() -> None:
    record = json.loads(json.dumps(to_record(OLD), allow_nan=False))

    assert set(record["values"]) == set(record["defaults"]) == {r.path for r in option_records(SwapOptions)}
    assert record["values"]["face.coverage"] == 87.5
    assert record["defaults"]["face.coverage"] == 100.0


def test_effective_options_are_as_good_as_any_other() -> None:
    effective = go_on(to_record(SwapOptions(network=NetworkOptions(mixed_precision=True)))).effective

    assert effective == SwapOptions(network=NetworkOptions(mixed_precision=True))
    assert SwapOptions.model_validate(effective.model_dump()) == effective


@given(
    st.dictionaries(
        st.sampled_from([record.path for record in option_records(SwapOptions)]) | st.text(max_size=5),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers()),
    )
)
def test_whatever_is_stored_a_run_goes_on_or_says_why_not(stored: dict[str, Any]) -> None:
    try:
        result = resume(stored, SwapOptions(), ())
    except ConfigError:
        return
    assert result.describe("r", 1, 1)
    assert resume(to_record(result.effective), SwapOptions(), ()).effective == result.effective
