"""From text and stored JSON to the value of an option."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.config import OptionRecord, Options, SwapOptions, option, option_records
from ostinato.config.values import ValueRefused, nearest, quote, same, to_value


class Things(Options):
    """Options of every kind."""

    whole: int = option(3, help="h", group="g", ge=1, le=40)
    decimal: float = option(1.0, help="h", group="g", ge=-5.0, le=5.0)
    switch: bool = option(False, help="h", group="g")
    word: Literal["none", "face", "bisenet-fp_face"] = option("face", help="h", group="g", not_built=("lion",))
    free: str = option("text", help="h", group="g")
    colour: str = option("#ff0000", help="h", group="g", pattern="#[0-9a-fA-F]{6}", expects="a colour")
    several: list[Literal["encoder", "fc_a", "fc_b"]] = option(["encoder"], help="h", group="g")
    maybe: int | None = option(None, help="h", group="g", ge=0)


RECORDS = {record.name: record for record in option_records(Things)}


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("whole", "5", 5),
        ("whole", " +05 ", 5),
        ("whole", "010", 10),
        ("decimal", "3", 3.0),
        ("decimal", "3e-5", 3e-5),
        ("decimal", "-.5", -0.5),
        ("decimal", "1.", 1.0),
        ("switch", "Yes", True),
        ("switch", "TRUE", True),
        ("switch", "1", True),
        ("switch", "on", True),
        ("switch", "no", False),
        ("switch", "Off", False),
        ("switch", "0", False),
        ("word", "FACE", "face"),
        ("word", "bisenet_fp-face", "bisenet-fp_face"),
        ("word", None, "none"),
        ("free", "50% of a #", "50% of a #"),
        ("colour", "#00FF7f", "#00FF7f"),
        ("several", "fc_b, encoder", ["fc_b", "encoder"]),
        ("several", "FC_a fc_b", ["fc_a", "fc_b"]),
        ("several", "fc_a, fc_a", ["fc_a"]),
        ("several", "[fc_a, fc_b]", ["fc_a", "fc_b"]),
        ("several", "", []),
        ("several", None, []),
        ("several", ["fc_b", "FC_A"], ["fc_b", "fc_a"]),
        ("maybe", "null", None),
        ("maybe", "", None),
        ("maybe", "None", None),
        ("maybe", "7", 7),
    ],
)
def test_text_becomes_a_value_of_the_option_s_type(name: str, raw: object, value: object) -> None:
    result = to_value(RECORDS[name], raw)

    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("whole", "abc", "is not a whole number from 1 to 40 (default 3)"),
        ("whole", "1.0", "is not written as a whole number; write 1"),
        ("whole", "1.5", "is not a whole number"),
        ("whole", "1_000", "is not a whole number"),
        ("whole", "٣", "is not a whole number"),
        ("whole", "true", "is not a whole number"),
        ("whole", "", "has no value; expected is a whole number from 1 to 40 (default 3)"),
        ("whole", None, "has no value"),
        ("whole", "41", "is out of range; expected is a whole number from 1 to 40"),
        ("whole", "0", "is out of range"),
        ("whole", "9" * 5000, "is not a whole number"),
        ("whole", "1e999", "is not a whole number"),
        ("decimal", "lots", "is not a number from -5 to 5 (default 1)"),
        ("decimal", "0,5", "write 0.5, with a point"),
        ("decimal", "nan", "is not a number"),
        ("decimal", "inf", "is not a number"),
        ("decimal", "1e999", "is not a number"),
        ("decimal", "5.01", "is out of range"),
        ("decimal", "true", "is not a number"),
        ("switch", "maybe", "is neither true nor false (default false)"),
        ("switch", "2", "is neither true nor false"),
        ("word", "nose", "is not one of none, face, bisenet-fp_face (default face)"),
        ("word", "fase", "did you mean face?"),
        ("word", "Lion", "is known to Faceswap and not part of Ostinato yet; choose one of none, face"),
        ("colour", "red", "is not a colour (default #ff0000)"),
        ("colour", "#zzzzzz", "is not a colour"),
        ("colour", "%ff000", "is not a colour"),
        ("colour", "#ff00000", "is not a colour"),
        ("several", "encoder, zzz", "holds zzz, which is not one of encoder, fc_a, fc_b"),
        ("several", 3, "is not a list"),
        ("maybe", "-1", "is out of range; expected is a whole number from 0, or null"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_is_allowed(name: str, raw: object, message: str) -> None:
    with pytest.raises(ValueRefused) as refused:
        to_value(RECORDS[name], raw)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("whole", 5.0, 5),
        ("whole", 400, 400),
        ("decimal", 87, 87.0),
        ("switch", True, True),
        ("switch", 0, False),
        ("word", None, "none"),
        ("several", ["fc_a"], ["fc_a"]),
        ("maybe", None, None),
    ],
)
def test_stored_values_keep_their_meaning_whatever_their_number_type(name: str, raw: object, value: object) -> None:
    result = to_value(RECORDS[name], raw, stored=True)

    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("whole", True),
        ("whole", 5.5),
        ("whole", float("nan")),
        ("whole", float("inf")),
        ("whole", []),
        ("decimal", False),
        ("decimal", float("nan")),
        ("decimal", 10**400),
        ("switch", "perhaps"),
        ("switch", 2),
        ("word", {"a": 1}),
    ],
)
def test_stored_values_that_lose_something_are_refused(name: str, raw: object) -> None:
    with pytest.raises(ValueRefused):
        to_value(RECORDS[name], raw, stored=True)


@given(
    st.sampled_from([*RECORDS.values(), *option_records(SwapOptions)]),
    st.none()
    | st.text()
    | st.lists(st.text())
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.dictionaries(st.text(), st.text()),
    st.booleans(),
)
def test_any_value_is_either_taken_or_refused_with_a_sentence(record: OptionRecord, raw: object, stored: bool) -> None:
    try:
        value = to_value(record, raw, stored=stored)
    except ValueRefused:
        return
    assert to_value(record, value, stored=stored) == value


def test_lists_are_compared_as_sets_and_text_without_case() -> None:
    assert same(RECORDS["several"], ["fc_a", "fc_b"], ["fc_b", "fc_a"])
    assert not same(RECORDS["several"], ["fc_a"], ["fc_b", "fc_a"])
    assert same(RECORDS["colour"], "#FF0000", "#ff0000")
    assert same(RECORDS["decimal"], 1, 1.0)
    assert not same(RECORDS["maybe"], None, 0)


def test_nearest_ignores_case_and_hyphens() -> None:
    assert nearest("Eye-Multiplyer", ["mouth_multiplier", "eye_multiplier"]) == "eye_multiplier"
    assert nearest("qqq", ["eye_multiplier"]) is None


def test_quoted_values_stay_on_one_short_line() -> None:
    assert quote("a\nb\x1b[31m") == r"a\nb\x1b[31m"
    assert quote("x" * 100) == "x" * 60 + "..."
    assert quote(True) == "true"
