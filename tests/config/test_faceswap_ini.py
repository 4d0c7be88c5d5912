"""Faceswap's ``train.ini`` as a file of options."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.config import Options, ReadOptions, SwapOptions, option, read_options
from ostinato.config.faceswap_ini import looks_like_ini, read_ini
from ostinato.config.names import Names
from ostinato.errors import ConfigError

_OPTIMIZERS = ("adabelief", "adam", "adamax", "adamw", "lion", "nadam", "rms-prop")


def read(folder: Path, text: str, *overrides: str, name: str = "train.ini") -> ReadOptions[SwapOptions]:
    path = folder / name
    path.write_bytes(text.encode())
    options = read_options(SwapOptions, path, overrides)
    assert path.read_bytes() == text.encode()
    return options


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        read(folder, text)
    return [str(problem).removeprefix(f"{folder}/") for problem in error.value.fields["problems"]]


def test_every_section_finds_its_place(tmp_path: Path) -> None:
    options = read(
        tmp_path,
        "# a comment\n"
        "[global]\ncentering = head\nicnr_init = yes\nreflect_padding = On\nconvert_batchsize = 8\n"
        "[global.loss]\nloss_function = MAE\nmask_type = components\n; another\n"
        "[global.optimizer]\nlearning_rate = 3e-05\n"
        "[model.original]\nlowmem = True\n"
        "[trainer.augmentation]\nmask_color = #00FF00\n"
        "[trainer.loader]\nnum_processes = 0\n",
    ).options

    assert (options.face.centering, options.initialization.icnr_init, options.network.reflect_padding) == (
        "head",
        True,
        True,
    )
    assert (options.convert.convert_batchsize, options.loss.loss_function, options.mask.mask_type) == (
        8,
        "mae",
        "components",
    )
    assert (options.optimizer.learning_rate, options.model.lowmem) == (3e-5, True)
    assert (options.augmentation.mask_color, options.loader.num_processes) == ("#00FF00", 0)


@pytest.mark.parametrize(("written", "meant"), [(1, 1), (2, 3), (3, 4), (40, 41)])
def test_eye_and_mouth_multipliers_keep_the_weight_they_had(tmp_path: Path, written: int, meant: int) -> None:
    result = read(tmp_path, f"[global.loss]\neye_multiplier = {written}\nmouth_multiplier = {written}\n")

    assert (result.options.loss.eye_multiplier, result.options.loss.mouth_multiplier) == (meant, meant)
    assert [remark.level for remark in result.remarks] == ["info"] * (2 if written > 1 else 0)


def test_the_command_line_s_multiplier_is_taken_as_it_is(tmp_path: Path) -> None:
    result = read(tmp_path, "[global.loss]\neye_multiplier = 3\n", "eye_multiplier=3")

    assert result.options.loss.eye_multiplier == 3


def test_a_percent_sign_is_just_a_character(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "[trainer.augmentation]\nmask_color = %ff000\n")

    assert problem.startswith("train.ini, line 2: [trainer.augmentation] mask_color = %ff000 is not a colour")


def test_all_mistakes_are_reported_with_line_section_option_and_value(tmp_path: Path) -> None:
    text = (
        "junk = 3\n[global]\ncoverage\ncentering = nose\nvertical_offset = 1.0\nicnr_init = maybe\ncentering = face\n"
        "[global.loss]\nmask_loss_function = ssim\n[global]\n"
    )

    assert problems(tmp_path, text) == [
        "train.ini, line 1: junk = 3 stands before the first [section]",
        "train.ini, line 3: [global] coverage has no value; write 'coverage = ...' with a number from 62.5 to 100",
        "train.ini, line 4: [global] centering = nose is not one of face, head, legacy (default face)",
        "train.ini, line 5: [global] vertical_offset = 1.0 is not written as a whole number; write 1",
        "train.ini, line 6: [global] icnr_init = maybe is neither true nor false (default false)",
        "train.ini, line 7: [global] centering is given twice, first in line 4; keep one",
        "train.ini, line 9: [global.loss] mask_loss_function = ssim is not one of mse, mae (default mse)",
        "train.ini, line 10: the section [global] is given twice",
    ]


def test_models_that_are_not_built_are_left_out_and_named(tmp_path: Path) -> None:
    models = "[model.phaze_a]\nfreeze_layers = zzz\n[model.villain]\nlowmem = 1\n[model.dlight]\n"
    result = read(tmp_path, models)

    assert result.options == SwapOptions()
    assert [(remark.level, remark.message) for remark in result.remarks] == [
        ("info", "sections of models that Ostinato does not have yet are ignored: phaze_a, villain"),
    ]


def test_the_search_for_the_learning_rate_is_read(tmp_path: Path) -> None:
    result = read(tmp_path, "[global]\nlr_finder_mode = graph_and_exit\nlr_finder_iterations = 200\n")

    assert result.options.rate_finder.lr_finder_mode == "graph_and_exit"
    assert result.options.rate_finder.lr_finder_iterations == 200
    assert result.remarks == ()


@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_every_optimizer_of_faceswap_is_taken(tmp_path: Path, name: str) -> None:
    result = read(tmp_path, f"[global.optimizer]\noptimizer = {name}\n")

    assert result.options.optimizer.optimizer == name
    assert result.remarks == ()


def test_options_that_the_optimizer_of_the_file_does_not_use_are_remarked_on(tmp_path: Path) -> None:
    text = "[global.optimizer]\noptimizer = rms-prop\nada_beta_1 = 0.5\nada_beta_2 = 0.999\nada_amsgrad = True\n"
    result = read(tmp_path, text)

    told: list[str] = []
    result.tell_idle(result.options, told.append)
    assert told == [
        "options: optimizer.ada_beta_1 = 0.5 has no effect: rms-prop has no use for it",
        "options: optimizer.ada_amsgrad = true has no effect: rms-prop has no use for it",
    ]


def test_the_section_of_another_model_than_the_chosen_one_is_left_out(tmp_path: Path) -> None:
    text = "[model.original]\nlowmem = True\n"

    assert read(tmp_path, text).options.model.lowmem is True
    result = read(tmp_path, text, "model.name=lightweight")
    assert (result.options.model.name, result.options.model.lowmem) == ("lightweight", False)
    assert "another model than lightweight: lowmem" in result.remarks[0].message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[global]\nCoverage = 75\n", "[global] Coverage is not an option that Ostinato knows; did you mean coverage?"),
        ("[global]\nfoo = 1\n", "[global] foo is not an option that Ostinato knows; it is ignored."),
        ("[global]\nlearning_rate = 1\n", "it belongs to another section (optimizer.learning_rate in Ostinato)."),
        ("[old.section]\nx = 1\n", "[old.section] is not a section that Ostinato knows. It is ignored, with x."),
        ("[global.los]\nx = 1\n", "did you mean [global.loss]?"),
    ],
)
def test_what_nobody_knows_is_ignored_with_a_warning(tmp_path: Path, text: str, message: str) -> None:
    result = read(tmp_path, text)

    assert result.options == SwapOptions()
    assert [remark.level for remark in result.remarks] == ["warning"]
    assert message in str(result.remarks[0])


def test_not_saving_the_optimizer_always_is_taken_with_a_warning(tmp_path: Path) -> None:
    result = read(tmp_path, "[global.optimizer]\nsave_optimizer = exit\n")

    assert result.options.optimizer.save_optimizer == "exit"
    assert [remark.level for remark in result.remarks] == ["warning"]
    assert "does not continue exactly" in result.remarks[0].message


@pytest.mark.parametrize("name", ["train.ini", "TRAIN.INI", "settings.txt", "my.yaml"])
def test_the_file_is_known_by_its_name_or_by_its_headings(tmp_path: Path, name: str) -> None:
    assert read(tmp_path, "\ufeff# mine\n[global]\ncoverage = 75\n", name=name).options.face.coverage == 75.0


def test_an_ini_without_sections_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, "# nothing\n") == ["train.ini: there is no [section] in this file"]


class Recipe(Options):
    """Options that Faceswap has no file for."""

    heat: int = option(1, help="h", group="g")


def test_options_without_sections_in_faceswap_refuse_its_file(tmp_path: Path) -> None:
    path = tmp_path / "train.ini"
    path.write_text("[global]\n")
    with pytest.raises(ConfigError, match="a Faceswap file cannot be used here"):
        read_options(Recipe, path)


def test_yaml_is_not_taken_for_an_ini() -> None:
    assert not looks_like_ini("loss:\n  several: [global]\n")


@given(
    st.text() | st.lists(st.sampled_from(["[global]", "coverage", "=", "75", "\n", "#", "%", "[", "]"])).map("".join)
)
def test_any_text_is_read_or_refused(text: str) -> None:
    source = read_ini(text, "train.ini", SwapOptions, Names(SwapOptions), "original")

    assert all(str(said) for said in (*source.problems, *source.remarks))
