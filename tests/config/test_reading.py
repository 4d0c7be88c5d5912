"""Options from files and the command line, with every mistake reported at once."""

from __future__ import annotations

import codecs
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.config import (
    LossOptions,
    OptimizerOptions,
    Options,
    Problem,
    SwapOptions,
    check_together,
    load_options,
    option,
    read_options,
)
from ostinato.config.names import NameRefused, Names
from ostinato.config.text_file import LARGEST_BYTES
from ostinato.config.yaml_file import read_yaml
from ostinato.errors import ConfigError

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str | bytes, name: str = "my.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def problems(path: Path | None, *overrides: str) -> list[str]:
    """The mistakes that are reported, with the file's name for its path."""
    with pytest.raises(ConfigError) as error:
        read_options(SwapOptions, path, overrides)
    found = error.value.fields["problems"]
    assert all(isinstance(problem, Problem) for problem in found)
    assert all(str(problem) in str(error.value) for problem in found)
    return [str(problem).replace(str(path), path.name) if path else str(problem) for problem in found]


def test_without_a_file_there_are_defaults() -> None:
    assert load_options(SwapOptions) == SwapOptions()


def test_a_file_changes_what_it_names(write: Write) -> None:
    path = write("# my run\nface:\n  coverage: 87.5   # a little less\nloss:\n  loss_function: MAE\nseed: 7\n")
    read = read_options(SwapOptions, path)

    assert read.options.face.coverage == 87.5
    assert read.options.loss.loss_function == "mae"
    assert read.options.seed == 7
    assert read.options.mask == SwapOptions().mask
    assert read.explicitly_set == {"face.coverage", "loss.loss_function", "seed"}
    assert read.remarks == ()


def test_the_command_line_wins_over_the_file_and_the_last_word_wins(write: Write) -> None:
    path = write("optimizer:\n  learning_rate: 1e-5\n")
    options = load_options(SwapOptions, path, ["learning_rate=2e-5", "optimizer.learning_rate=3e-5"])

    assert options.optimizer.learning_rate == 3e-5


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("loss.eye_multiplier", "loss.eye_multiplier"),
        ("eye_multiplier", "loss.eye_multiplier"),
        ("Eye-Multiplier", "loss.eye_multiplier"),
        ("optimizer", "optimizer.optimizer"),
        ("seed", "seed"),
        ("name", "model.name"),
    ],
)
def test_a_bare_name_is_enough_where_it_is_unique(name: str, path: str) -> None:
    assert Names(SwapOptions).find(name) == path


class Left(Options):
    """Left."""

    size: int = option(1, help="h", group="g")


class Pair(Options):
    """Two."""

    left: Left = Left()
    right: Left = Left()


def test_a_bare_name_that_could_be_two_options_is_refused() -> None:
    with pytest.raises(NameRefused, match=r"size could be any of left\.size, right\.size"):
        Names(Pair).find("size")


def test_every_mistake_is_reported_with_line_option_value_and_what_is_allowed(write: Write) -> None:
    path = write(
        "face:\n"
        "  coverage: 300\n"
        "  centering: nose\n"
        "loss:\n"
        "  eye_multiplyer: 3\n"
        "  mouth_multiplier: 2\n"
        "  mouth_multiplier: 4\n"
        "  mask_loss_function: ssim\n"
        "  learning_rate: 3\n"
        "optimizer: adam\n"
        "pre_fetch: 3\n"
    )

    assert problems(path, "learning_rate=fast", "nose=3", "optimizer") == [
        "my.yaml, line 2: face.coverage = 300 is out of range; expected is a number from 62.5 to 100",
        "my.yaml, line 3: face.centering = nose is not one of face, head, legacy (default face)",
        "my.yaml, line 5: loss.eye_multiplyer is not an option; did you mean loss.eye_multiplier?",
        "my.yaml, line 7: loss.mouth_multiplier is given twice, first in line 6",
        "my.yaml, line 8: loss.mask_loss_function = ssim is not one of mse, mae (default mse)",
        "my.yaml, line 9: loss.learning_rate is not an option; learning_rate belongs to the section optimizer",
        (
            "my.yaml, line 10: optimizer is a section; below it, indented, stand its options: optimizer, "
            "learning_rate, epsilon_exponent, save_optimizer, gradient_clipping, clipping_value, autoclip_history, "
            "weight_decay, gradient_accumulation, ada_beta_1, ada_beta_2, ada_amsgrad"
        ),
        (
            "my.yaml, line 11: pre_fetch is not an option at the top of the file; write it below 'loader:', "
            "or write loader.pre_fetch"
        ),
        "--set nose=3: nose is not an option",
        "--set optimizer: write name=value, such as loss.eye_multiplier=2",
        (
            "command line: optimizer.learning_rate = fast is not a number from 1e-10 to 100, usually 1e-06 to 0.0001 "
            "(default 5e-05)"
        ),
    ]


def test_a_single_mistake_is_one_sentence_with_what_to_do(write: Write) -> None:
    path = write("face:\n  coverage: lots\n")
    with pytest.raises(ConfigError) as error:
        load_options(SwapOptions, path)

    assert str(error.value) == (
        f"{path}, line 2: face.coverage = lots is not a number from 62.5 to 100 (default 100). "
        "Correct it and start again."
    )
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-5", 3e-5),
        ("3.0e-05", 3e-5),
        ("'3e-5'", 3e-5),
        ("1", 1.0),
    ],
)
def test_numbers_mean_what_they_look_like(write: Write, text: str, value: float) -> None:
    assert load_options(SwapOptions, write(f"optimizer:\n  learning_rate: {text}\n")).optimizer.learning_rate == value


def test_a_leading_zero_is_no_octal_number_and_a_colon_no_sixtieths(write: Write) -> None:
    assert load_options(SwapOptions, write("face:\n  vertical_offset: 010\n")).face.vertical_offset == 10
    assert "= 1:10 is not a whole number" in problems(write("face:\n  vertical_offset: 1:10\n"))[0]


@pytest.mark.parametrize("word", ["none", "NONE", "null", "~", "'none'"])
def test_none_may_be_written_in_every_way(write: Write, word: str) -> None:
    assert (
        load_options(SwapOptions, write(f"loss:\n  loss_function_2: {word}\n  loss_weight_2: 0\n")).loss.loss_function_2
        == "none"
    )


def test_true_is_no_number_and_one_is_true(write: Write) -> None:
    assert "= true is not a whole number" in problems(write("loss:\n  eye_multiplier: true\n"))[0]
    assert load_options(SwapOptions, write("mask:\n  learn_mask: 1\n")).mask.learn_mask is True


def test_dotted_paths_may_stand_at_the_top(write: Write) -> None:
    assert load_options(SwapOptions, write("loss.eye_multiplier: 5\n")).loss.eye_multiplier == 5
    found = problems(write("loss:\n  eye_multiplier: 5\nloss.eye_multiplier: 6\n"))
    assert found == ["my.yaml, line 3: loss.eye_multiplier is given twice, first in line 2"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "null\n", "---\n", "loss:\n", "loss: ~\n  # all comments\n", "{}"])
def test_an_empty_file_or_section_means_defaults(write: Write, text: str) -> None:
    assert load_options(SwapOptions, write(text)) == SwapOptions()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loss:\n\teye_multiplier: 3\n", "my.yaml, line 2: this is not YAML"),
        ("loss: {eye_multiplier: 3\n", "this is not YAML"),
        ("a: 1\n---\nb: 2\n", "line 2: this is not YAML"),
        ("just words\n", "my.yaml, line 1: expected are sections with options"),
        ("- 1\n- 2\n", "my.yaml, line 1: expected are sections with options"),
        ("loss:\n  - eye_multiplier\n", "my.yaml, line 1: loss is a section; below it"),
        (
            "loss:\n  eye_multiplier:\n    a: 1\n",
            "loss.eye_multiplier takes one value, not a section; expected is a whole number",
        ),
        ("loss:\n  eye_multiplier: [1, 2]\n", "loss.eye_multiplier takes one value, not a list"),
        ("loss:\n  eye_multiplier:\n", "my.yaml, line 2: loss.eye_multiplier has no value; expected is a whole number"),
        (
            "augmentation:\n  mask_color: #00ff00\n",
            "line 2: augmentation.mask_color has no value, since # begins a comment in YAML; write it between quotes",
        ),
        ("loss:\n  eye_multiplier: !!python/object/apply:os.system ['true']\n", "takes one value, not a list"),
        ("loss:\n  eye_multiplier: !!python/name:os.system ''\n", "has the tag"),
        ("? [a, b]\n: 1\n", "a name is expected before the colon"),
        ("x: &a [*a]\n", "x is not an option"),
        ("<<: {seed: 3}\n", "<< is not an option"),
        ("zzz:\n  a: 1\n", "zzz is not an option and not a section"),
        ("loss:\n  seed: 1\n", "loss.seed is not an option; seed belongs to the top of the file"),
        ("Seed: 1\n", "Seed is not an option; did you mean seed?"),
        ("loss:\n  eye_multiplier: 1\nloss:\n  eye_multiplier: 2\n", "line 3: loss is given twice, first in line 1"),
        ("lossy:\n  eye_multiplier: 3\n", "my.yaml, line 1: lossy is not a section; did you mean loss?"),
        ("\x07\n", "this is not YAML"),
        ("[" * 5000, "this is not YAML"),
    ],
)
def test_what_is_not_a_file_of_options_is_refused_with_its_line(write: Write, text: str, message: str) -> None:
    assert message in problems(write(text))[0]


def test_nothing_in_a_file_is_executed(write: Write, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    touch = f"!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ['{trap}']]"
    text = f"loss:\n  loss_function: {touch}\n"

    assert problems(write(text))
    assert not trap.exists()


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_encoding_with_its_mark_and_every_line_end_is_read(
    write: Write, mark: bytes, encoding: str, end: str
) -> None:
    text = end.join(["# Größe des Ausschnitts", "face:", "  coverage: 75", ""])

    assert load_options(SwapOptions, write(mark + text.encode(encoding))).face.coverage == 75.0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("# ok\n# Größe\nseed: 1\n".encode("cp1252"), "line 2: this is not UTF-8 text (byte 0xf6)"),
        (b"seed: 1\0\n", "zero bytes"),
        (b"#" * (LARGEST_BYTES + 1), "larger than 256 KiB"),
    ],
)
def test_what_is_no_text_is_refused(write: Write, data: bytes, message: str) -> None:
    path = write(data)
    with pytest.raises(ConfigError) as error:
        load_options(SwapOptions, path)

    assert message in str(error.value)
    assert error.value.fields["path"] == path


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no file"):
        load_options(SwapOptions, tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="it is a folder"):
        load_options(SwapOptions, tmp_path)


def test_a_file_is_never_changed(write: Write) -> None:
    path = write("loss:\n  eye_multiplier: 5\n")
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    load_options(SwapOptions, path, ["seed=3"])

    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_several_sets_of_options_do_not_disturb_each_other(write: Write) -> None:
    one = load_options(SwapOptions, write("seed: 1\n", "one.yaml"))
    two = load_options(SwapOptions, write("seed: 2\n", "two.yaml"))

    assert (one.seed, two.seed) == (1, 2)


def test_values_that_make_no_sense_together_are_refused_for_a_new_run(write: Write) -> None:
    path = write("mask:\n  mask_type: none\n  learn_mask: true\n")
    with pytest.raises(ConfigError) as error:
        load_options(SwapOptions, path)

    assert len(error.value.fields["problems"]) == 2
    assert "mask.learn_mask needs a mask" in str(error.value)
    assert "loss.penalized_mask_loss needs a mask" in str(error.value)


def test_the_check_across_options_can_wait_until_a_run_s_own_values_are_in() -> None:
    read = read_options(SwapOptions, None, ["mask_type=none"])

    assert read.options.mask.mask_type == "none"
    with pytest.raises(ConfigError, match=r"my_run: mask\.mask_type is none"):
        check_together(read.options, "my_run")


def test_a_value_out_of_the_usual_range_is_taken_with_a_remark(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        options = load_options(SwapOptions, None, ["learning_rate=0.01"])

    assert options.optimizer.learning_rate == 0.01
    assert caplog.messages == [
        "command line: optimizer.learning_rate = 0.01 is outside of the usual range, 1e-06 to 0.0001",
    ]


def test_only_a_setting_that_was_asked_for_is_called_without_effect() -> None:
    told: list[str] = []
    for further in ([], ["eye_multiplier=5"]):
        read = read_options(SwapOptions, None, ["penalized_mask_loss=false", *further])
        read.tell_idle(read.options, told.append)

    assert told == ["options: loss.eye_multiplier = 5 has no effect: it needs penalized_mask_loss, which is off"]


def test_whether_an_option_has_an_effect_is_judged_beside_those_that_will_be_used() -> None:
    read = read_options(SwapOptions, None, ["clipping_value=3", "mouth_multiplier=4"])
    used = SwapOptions(
        optimizer=OptimizerOptions(gradient_clipping="norm", clipping_value=3.0),
        loss=LossOptions(penalized_mask_loss=False, mouth_multiplier=4),
    )
    told: list[str] = []
    read.tell_idle(used, told.append)

    assert told == ["options: loss.mouth_multiplier = 4 has no effect: it needs penalized_mask_loss, which is off"]


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    source = read_yaml(text, "my.yaml", Names(SwapOptions))

    assert all(str(problem) for problem in source.problems)


@given(st.text())
def test_any_override_is_taken_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        read_options(SwapOptions, None, [text])
