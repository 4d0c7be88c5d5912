"""Declaring options, and the mistakes that are refused while they are declared."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import Field, ValidationError, create_model

from ostinato.config import Options, option, option_records, value_at
from ostinato.config.declaration import sections


class Oven(Options):
    """An oven."""

    heat: int = option(180, help="Degrees.", group="baking", ge=50, le=250, usual=(150, 220), step=10)
    salt: float = option(0.5, help="Spoons.", group="dough", gt=0.0, lt=2.0)
    form: Literal["round", "square"] = option(
        "round", help="Shape.", group="dough", fixed=True, why_fixed="it is baked"
    )
    seeds: list[Literal["poppy", "sesame"]] = option(["poppy"], help="On top.", group="dough")
    baker: int | None = option(None, help="Who.", group="people")
    fan: bool = option(False, help="Moving air.", group="baking", before=True)


class Kitchen(Options):
    """A kitchen."""

    number: int = option(1, help="Which.", group="room")
    oven: Oven = Field(default_factory=Oven)


def test_records_tell_everything_that_was_declared() -> None:
    records = {record.path: record for record in option_records(Kitchen)}

    assert list(records) == [
        "number",
        "oven.heat",
        "oven.salt",
        "oven.form",
        "oven.seeds",
        "oven.baker",
        "oven.fan",
    ]
    heat = records["oven.heat"]
    assert (heat.kind, heat.default, heat.ge, heat.le, heat.usual, heat.step) == ("int", 180, 50, 250, (150, 220), 10)
    assert (heat.section, heat.name, heat.group, heat.help, heat.fixed) == ("oven", "heat", "baking", "Degrees.", False)
    assert (records["number"].section, records["number"].name) == ("", "number")
    assert records["oven.form"].choices == ("round", "square")
    assert (records["oven.form"].fixed, records["oven.form"].why_fixed) == (True, "it is baked")
    assert (records["oven.seeds"].kind, records["oven.seeds"].choices) == ("list", ("poppy", "sesame"))
    assert (records["oven.baker"].kind, records["oven.baker"].nullable) == ("int", True)
    assert (records["oven.fan"].before, records["oven.heat"].before) == (True, 180)


def test_allowed_values_are_told_in_words() -> None:
    allowed = {record.name: record.allowed for record in option_records(Oven)}

    assert allowed == {
        "heat": "a whole number from 50 to 250",
        "salt": "a number above 0 to below 2",
        "form": "one of round, square",
        "seeds": "any of poppy, sesame",
        "baker": "a whole number, or null",
        "fan": "true or false",
    }


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"ge": 1}, "a whole number from 1"),
        ({"gt": 1}, "a whole number above 1"),
        ({"le": 9}, "a whole number up to 9"),
        ({"lt": 9}, "a whole number below 9"),
        ({}, "a whole number"),
    ],
)
def test_open_ranges_are_told_in_words(limits: dict[str, Any], words: str) -> None:
    model: type[Options] = create_model("Row", __base__=Options, n=(int, option(5, help="x", group="y", **limits)))

    assert next(option_records(model)).allowed == words


def test_sections_are_the_models_below() -> None:
    assert sections(Kitchen) == {"oven": Oven}
    assert sections(Kitchen()) == {"oven": Oven}


def test_value_at_walks_a_path() -> None:
    assert value_at(Kitchen(oven=Oven(heat=200)), "oven.heat") == 200


@pytest.mark.parametrize(
    "values",
    [
        {"heat": 251},
        {"heat": 49},
        {"heat": True},
        {"heat": 180.0},
        {"heat": "180"},
        {"salt": 0.0},
        {"salt": 2.0},
        {"salt": float("nan")},
        {"salt": float("inf")},
        {"salt": True},
        {"form": "Round"},
        {"seeds": ["salt"]},
        {"fan": 1},
        {"fun": True},
    ],
)
def test_a_model_refuses_values_of_the_wrong_type_and_out_of_range(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Oven(**values)


def test_a_whole_number_serves_as_a_decimal_one() -> None:
    salt = Oven(salt=1).salt

    assert salt == 1.0
    assert isinstance(salt, float)


def test_options_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError):
        Oven().heat = 200  # pyrefly: ignore


@pytest.mark.parametrize(
    ("annotation", "default", "details", "fault"),
    [
        (int, 1, {"help": ""}, "needs help"),
        (int, 1, {"group": ""}, "needs help and a group"),
        (int, 1, {"fixed": True}, "is fixed and gives no reason"),
        (int, 1, {"why_fixed": "so"}, "gives a reason for being fixed and is not"),
        (Literal["a", "A"], "a", {}, "differ in case only"),
        (Literal["a", "b"], "a", {"not_built": ("b",)}, "calls a choice not built"),
        (str, "a", {"step": 1}, "has a range and is no number"),
        (str, "red", {"pattern": "#[0-9a-f]{6}"}, "has a pattern that its default does not match"),
        (dict[str, int], {}, {}, "which no file could hold"),
    ],
)
def test_contradicting_declarations_are_refused(
    annotation: Any, default: Any, details: dict[str, Any], fault: str
) -> None:
    field = option(default, **{"help": "h", "group": "g", **details})

    with pytest.raises(TypeError, match=fault):
        create_model("Wrong", __base__=Options, thing=(annotation, field))


def test_a_default_out_of_range_is_refused() -> None:
    model = create_model("Wrong", __base__=Options, thing=(int, option(5, help="h", group="g", le=4)))

    with pytest.raises(ValidationError):
        model()


def test_a_field_without_a_declaration_is_refused() -> None:
    with pytest.raises(TypeError, match="not declared with option"):
        create_model("Wrong", __base__=Options, thing=(int, 5))
