"""Golden edits of Faceswap's file of options, and golden states resumed.

The edits are those of ``run-state-and-config/config/config_cases.json``. Where Faceswap stopped with a stack trace,
took another value with a warning that names no option, or accepted nonsense, a message must name file, section and
option; where the value is good it must be used. The user's file must stay as it was in every case.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ostinato.config import SwapOptions, option_records, read_options, resume, value_at
from ostinato.errors import ConfigError

FOLDER = "run-state-and-config"

REFUSED = {
    "int_text": ("[global] vertical_offset = abc", "from -25 to 25"),
    "int_float": ("[global] vertical_offset = 1.0", "write 1"),
    "bool_bad": ("[global] icnr_init = maybe", "neither true nor false"),
    "float_text": ("[global] coverage = lots", "from 62.5 to 100"),
    "range": ("[global] coverage = 300.0", "from 62.5 to 100"),
    "choice": ("[global] centering = nose", "face, head, legacy"),
    "percent": ("[trainer.augmentation] mask_color = %ff000", "#ff0000"),
    "color": ("[trainer.augmentation] mask_color = red", "#ff0000"),
    "color_hex": ("[trainer.augmentation] mask_color = #zzzzzz", "#ff0000"),
    "empty": ("[global] coverage has no value", "from 62.5 to 100"),
    "novalue": ("[global] coverage has no value", "from 62.5 to 100"),
    "dup": ("[global] coverage is given twice", "first in line"),
    "junk": ("junk line = 3 stands before the first [section]", "line 1"),
}
REMARKED = {
    "optcase": ("[global] Coverage is not an option", "did you mean coverage?"),
    "unknown": ("[global] foo is not an option", "ignored"),
    "unknown_section": ("[old.section] is not a section", "ignored, with x"),
    "list_bad": ("models that Ostinato does not have yet are ignored", "phaze_a"),
    "list_allbad": ("models that Ostinato does not have yet are ignored", "phaze_a"),
    "list_space": ("models that Ostinato does not have yet are ignored", "phaze_a"),
    "list_empty": ("models that Ostinato does not have yet are ignored", "phaze_a"),
    "list_dup": ("models that Ostinato does not have yet are ignored", "phaze_a"),
}
TAKEN = {
    "bool_yes": {"initialization.icnr_init": True},
    "float_int": {"face.coverage": 75.0},
    "case": {"loss.loss_function": "ssim"},
    "unknown": {"face.coverage": 75.0},
    "optcase": {"face.coverage": 100.0},
    "missing": {"face.coverage": 100.0},
    "bom": {"face.coverage": 100.0},
}


def _edits(golden: Path) -> tuple[str, dict[str, dict[str, Any]]]:
    folder = golden / FOLDER / "config"
    text = (folder / "train.default.ini").read_text(encoding="utf-8")
    cases = json.loads((folder / "config_cases.json").read_text(encoding="utf-8"))
    return text, {case["id"]: case for case in cases}


def test_every_golden_edit_is_expected_here(golden: Path) -> None:
    _, cases = _edits(golden)

    assert set(cases) == {*REFUSED, *REMARKED, *TAKEN}
    assert len(cases) == 26


@pytest.mark.parametrize("case_id", sorted({*REFUSED, *REMARKED, *TAKEN}))
def test_a_golden_edit_is_answered_by_file_section_and_option(golden: Path, tmp_path: Path, case_id: str) -> None:
    text, cases = _edits(golden)
    case = cases[case_id]
    path = tmp_path / "train.ini"
    path.write_text(text.replace(case["replace"], case["by"], 1), encoding="utf-8")
    before = (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino)

    if case_id in REFUSED:
        with pytest.raises(ConfigError) as error:
            read_options(SwapOptions, path)
        (problem,) = error.value.fields["problems"]
        said = [str(problem)]
    else:
        read = read_options(SwapOptions, path)
        said = [str(remark) for remark in read.remarks]
        for option_path, value in TAKEN.get(case_id, {}).items():
            assert value_at(read.options, option_path) == value
    expected = REFUSED.get(case_id) or REMARKED.get(case_id)
    if expected is not None:
        assert any(str(path) in line and all(part in line for part in expected) for line in said)

    assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_default_file_means_the_defaults_with_its_own_habits(golden: Path) -> None:
    folder = golden / FOLDER / "config"
    options = read_options(SwapOptions, folder / "train.default.ini").options
    own = {"loss.eye_multiplier": 4, "loss.mouth_multiplier": 3, "optimizer.save_optimizer": "exit"}

    for record in option_records(SwapOptions):
        assert value_at(options, record.path) == own.get(record.path, record.default)


def _state(golden: Path, number: str) -> dict[str, Any]:
    (path,) = (golden / FOLDER / "state").glob(f"{number}_*.json")
    return json.loads(path.read_text(encoding="utf-8"))


def _resume(case: dict[str, Any]) -> Any:
    """Resume the stored configuration with what the user of the case chose."""
    chosen = {name.rpartition(".")[2]: value for name, value in case["user_config"].items()}
    wishes = [f"{name}={value}" for name, value in chosen.items()]
    asked = read_options(SwapOptions, None, wishes)
    return resume(case["state_file"]["config"], asked.options, asked.explicitly_set)


def _same_as_running(result: Any, running: dict[str, Any], but: dict[str, Any]) -> None:
    for record in option_records(SwapOptions):
        if record.name in running:
            assert value_at(result.effective, record.path) == but.get(record.name, running[record.name]), record.path


@pytest.mark.parametrize("number", ["01", "02", "04", "05", "20", "26", "27", "30", "33"])
def test_a_golden_state_runs_with_the_values_that_it_ran_with(golden: Path, number: str) -> None:
    case = _state(golden, number)

    _same_as_running(_resume(case), case["expected"]["running_config"], {})


def test_a_golden_state_whose_user_changed_fixed_options_says_so(golden: Path) -> None:
    case = _state(golden, "03")
    stored = case["state_file"]["config"]
    differing = {
        record.name: record.default
        for record in option_records(SwapOptions)
        if record.fixed and record.name in stored and stored[record.name] != record.default
    }
    assert differing
    asked = read_options(SwapOptions, None, [f"{name}={value}" for name, value in differing.items()])
    result = resume(stored, asked.options, asked.explicitly_set)

    _same_as_running(result, case["expected"]["running_config"], {})
    assert not [change.path for change in result.changes if change.kind == "invalid"]
    kept = {
        change.path.rpartition(".")[2]: (change.stored, change.asked)
        for change in result.changes
        if change.kind == "kept"
    }
    assert kept == {name: (stored[name], default) for name, default in differing.items()}


def test_a_golden_state_without_crop_keeps_the_crop_of_its_time(golden: Path) -> None:
    for number in ("21", "22"):
        result = _resume(_state(golden, number))
        crop = result.effective.face

        assert (crop.centering, crop.coverage) == ("legacy", 62.5)


def test_a_golden_state_with_nulls_means_none(golden: Path) -> None:
    case = _state(golden, "24")
    nulls = {name for name, value in case["state_file"]["config"].items() if value is None}
    result = _resume(case)

    for record in option_records(SwapOptions):
        if record.name in nulls:
            assert value_at(result.effective, record.path) == "none"
    assert not any(change.kind in ("applied", "kept") and change.stored is None for change in result.changes)


def test_a_golden_state_with_choices_of_another_time_says_so(golden: Path) -> None:
    case = _state(golden, "28")
    result = _resume(case)
    invalid = {change.path for change in result.changes if change.kind == "invalid"}

    assert {"face.centering", "optimizer.optimizer"} <= invalid
    _same_as_running(result, case["expected"]["running_config"], {})


def test_a_golden_state_with_a_whole_number_for_a_decimal_one_is_resumed(golden: Path) -> None:
    case = _state(golden, "29")
    stored = case["state_file"]["config"]["coverage"]
    assert isinstance(stored, int)

    assert _resume(case).effective.face.coverage == float(stored)
