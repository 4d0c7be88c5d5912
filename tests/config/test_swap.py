"""The options of a swap run: the same names, defaults and ranges as Faceswap's, and the checks across options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from ostinato.config import (
    FaceOptions,
    LossOptions,
    MaskOptions,
    ModelOptions,
    NetworkOptions,
    OptimizerOptions,
    OptionRecord,
    RecoveryOptions,
    SwapOptions,
    option_records,
)

_TABLE = json.loads((Path(__file__).parents[1] / "data" / "faceswap_options.json").read_text(encoding="utf-8"))
_SECTIONS: dict[str, dict[str, dict[str, Any]]] = _TABLE["sections"]
_ROWS = [(section, name) for section, rows in _SECTIONS.items() for name in rows]

OWN = {"seed", "name", "lpips_files", "nan_recovery", "nan_recovery_limit", "nan_recovery_factor"}
OTHER_DEFAULT = {"save_optimizer": "always"}  # exact continuation needs it
OTHER_GROUP = {"lowmem": "model"}  # it stands beside the name of the model it belongs to
WIDER = {"learning_rate", "eye_multiplier", "mouth_multiplier"}  # Faceswap's ends are the usual range
NARROWER = {"ada_beta_1", "ada_beta_2"}  # 1 would never forget, and the update divides by 1 - beta


def _record(section: str, name: str) -> OptionRecord:
    places = SwapOptions.ini_sections[section]
    (record,) = [r for r in option_records(SwapOptions) if r.name == name and r.section in places]
    return record


@pytest.mark.parametrize(("section", "name"), _ROWS)
def test_names_defaults_choices_and_ranges_are_those_of_faceswap(section: str, name: str) -> None:
    row, record = _SECTIONS[section][name], _record(section, name)

    assert record.kind == row["type"]
    assert record.group == OTHER_GROUP.get(name, row["group"].lower())
    assert record.default == OTHER_DEFAULT.get(name, row["default"])
    assert type(record.default) is type(row["default"])
    if row["choices"] is not None:
        assert {*record.choices, *record.not_built} == set(row["choices"])
    if row["min_max"] is not None:
        low, high = row["min_max"]
        if name in WIDER:
            assert record.usual == (low, high)
            assert record.ge is not None
            assert record.le is not None
            assert record.ge <= low
            assert record.le >= high
        elif name in NARROWER:
            assert (record.ge, record.lt) == (low, high)
        else:
            assert (record.ge, record.le) == (low, high)
    # Faceswap marks these fixed and stores none of them, so they can always be changed; and a rate can be searched for
    # again here.
    changes = section.startswith("trainer.") or name.startswith("lr_finder_")
    assert record.fixed == (row["fixed"] and not changes)


def test_every_option_of_faceswap_is_here() -> None:
    named = {record.name for record in option_records(SwapOptions)}

    assert {name for _, name in _ROWS} - named == set()
    assert named - {name for _, name in _ROWS} == OWN


def test_what_is_built_now() -> None:
    choices = {record.path: record.choices for record in option_records(SwapOptions)}

    built = set(_SECTIONS["global.loss"]["loss_function"]["choices"])
    assert set(choices["loss.loss_function"]) == built
    for number in (2, 3, 4):
        assert set(choices[f"loss.loss_function_{number}"]) == built | {
            "none",
            "flip",
            "lpips_alex",
            "lpips_squeeze",
            "lpips_vgg16",
        }
    assert set(choices["optimizer.optimizer"]) == set(_SECTIONS["global.optimizer"]["optimizer"]["choices"])
    assert choices["model.name"] == ("original", "lightweight")


@pytest.mark.parametrize("record", list(option_records(SwapOptions)), ids=lambda record: record.path)
def test_help_is_written_for_people(record: OptionRecord) -> None:
    assert len(record.help) > 60
    assert record.help.endswith(".")
    assert "  " not in record.help


def test_defaults_fit_together() -> None:
    assert SwapOptions().conflicts() == []
    assert SwapOptions().idle() == []


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        (SwapOptions(mask=MaskOptions(mask_type="none")), [("loss.penalized_mask_loss", "mask.mask_type")]),
        (
            SwapOptions(mask=MaskOptions(mask_type="none", learn_mask=True)),
            [("mask.learn_mask", "mask.mask_type"), ("loss.penalized_mask_loss", "mask.mask_type")],
        ),
        (SwapOptions(mask=MaskOptions(mask_type="none"), loss=LossOptions(penalized_mask_loss=False)), []),
        (
            SwapOptions(loss=LossOptions(loss_function_3="lpips_alex", loss_weight_3=25)),
            [("loss.loss_function_3", "loss.lpips_files")],
        ),
        (
            SwapOptions(
                loss=LossOptions(loss_function_3="lpips_alex", loss_weight_3=25, lpips_files=["a.pth", "b.pth"])
            ),
            [],
        ),
        (SwapOptions(model=ModelOptions(name="lightweight", lowmem=True)), [("model.lowmem", "model.name")]),
        (SwapOptions(model=ModelOptions(lowmem=True)), []),
        (
            SwapOptions(optimizer=OptimizerOptions(gradient_clipping="norm", clipping_value=0.0)),
            [("optimizer.clipping_value", "optimizer.gradient_clipping")],
        ),
        (SwapOptions(optimizer=OptimizerOptions(gradient_clipping="autoclip", clipping_value=0.0)), []),
    ],
)
def test_values_that_make_no_sense_together_are_found(options: SwapOptions, paths: list[tuple[str, str]]) -> None:
    assert [conflict.paths for conflict in options.conflicts()] == paths


@pytest.mark.parametrize(
    ("options", "path"),
    [
        (SwapOptions(loss=LossOptions(loss_function_3="mae")), "loss.loss_function_3"),
        (SwapOptions(loss=LossOptions(loss_weight_4=50)), "loss.loss_weight_4"),
        (SwapOptions(loss=LossOptions(lpips_files=["alex.pth"])), "loss.lpips_files"),
        (SwapOptions(loss=LossOptions(penalized_mask_loss=False, eye_multiplier=1)), "loss.mouth_multiplier"),
        (SwapOptions(optimizer=OptimizerOptions(clipping_value=2.0)), "optimizer.clipping_value"),
        (SwapOptions(optimizer=OptimizerOptions(autoclip_history=5)), "optimizer.autoclip_history"),
        (
            SwapOptions(recovery=RecoveryOptions(nan_recovery=True), network=NetworkOptions(nan_protection=False)),
            "recovery.nan_recovery",
        ),
        (SwapOptions(optimizer=OptimizerOptions(optimizer="lion", epsilon_exponent=-5)), "optimizer.epsilon_exponent"),
        (SwapOptions(optimizer=OptimizerOptions(optimizer="rms-prop", ada_beta_1=0.5)), "optimizer.ada_beta_1"),
        (SwapOptions(optimizer=OptimizerOptions(optimizer="rms-prop", ada_beta_2=0.9)), "optimizer.ada_beta_2"),
        (SwapOptions(optimizer=OptimizerOptions(optimizer="adabelief", ada_amsgrad=True)), "optimizer.ada_amsgrad"),
        (SwapOptions(optimizer=OptimizerOptions(optimizer="nadam", ada_amsgrad=True)), "optimizer.ada_amsgrad"),
    ],
)
def test_options_without_effect_are_found(options: SwapOptions, path: str) -> None:
    assert [remark.paths[0] for remark in options.idle()] == [path]


@pytest.mark.parametrize("name", get_args(OptimizerOptions.model_fields["optimizer"].annotation))
def test_no_optimizer_calls_a_default_without_effect(name: str) -> None:
    assert SwapOptions(optimizer=OptimizerOptions(optimizer=name)).idle() == []


def test_an_option_that_the_optimizer_uses_is_not_called_idle() -> None:
    for name in ("adam", "adamw"):
        assert OptimizerOptions(optimizer=name, ada_amsgrad=True).idle() == []
    for name in ("lion", "adabelief"):
        assert OptimizerOptions(optimizer=name, ada_beta_1=0.5, ada_beta_2=0.9).idle() == []
    assert OptimizerOptions(optimizer="rms-prop", epsilon_exponent=-3, weight_decay=0.1).idle() == []


def test_old_runs_were_made_with_the_old_crop() -> None:
    before = {record.path: record.before for record in option_records(SwapOptions)}

    assert (before["face.centering"], before["face.coverage"]) == ("legacy", 62.5)
    assert before["loss.mask_loss_function"] == "mse"
    assert before["optimizer.optimizer"] == "adam"
    assert before["network.mixed_precision"] is False


def test_sections_can_be_taken_one_by_one() -> None:
    options = SwapOptions(face=FaceOptions(coverage=87.5))

    assert options.face.coverage == 87.5
    assert options.optimizer == OptimizerOptions()
