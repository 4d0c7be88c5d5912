"""Options as a commented YAML file, and as a page of reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.config import (
    OptionRecord,
    Options,
    SwapOptions,
    option,
    option_records,
    read_options,
    render_reference,
    render_yaml,
    value_at,
)
from ostinato.config.names import Names
from ostinato.config.reading import build
from ostinato.config.values import to_value
from ostinato.config.yaml_file import read_yaml

RECORDS = list(option_records(SwapOptions))


class Words(Options):
    """Text that YAML could take for something else."""

    free: str = option("x", help="h", group="g")
    several: list[Literal["on", "fc_a", "#1"]] = option(["fc_a"], help="h", group="g")
    maybe: float | None = option(None, help="h", group="g")


def _values(record: OptionRecord) -> st.SearchStrategy[Any]:
    """Every value that an option takes."""
    values: st.SearchStrategy[Any]
    if record.choices:
        values = st.sampled_from(record.choices)
        values = st.lists(values, unique=True) if record.kind == "list" else values
    elif record.kind == "bool":
        values = st.booleans()
    elif record.kind == "int":
        values = st.integers(*(None if limit is None else int(limit) for limit in (record.ge, record.le)))
    elif record.kind == "float":
        high = record.le if record.le is not None else record.lt
        values = st.floats(record.ge, high, exclude_max=record.lt is not None, allow_nan=False, allow_infinity=False)
    elif record.pattern is not None:
        values = st.from_regex(record.pattern, fullmatch=True)
    else:
        values = st.text(min_size=1).map(str.strip).filter(bool)
        values = st.lists(values, unique=True) if record.kind == "list" else values
    return st.none() | values if record.nullable else values


def _any(model: type[Options]) -> st.SearchStrategy[Options]:
    return st.fixed_dictionaries({record.path: _values(record) for record in option_records(model)}).map(
        lambda values: build(model, values)
    )


def _read(text: str, model: type[Options]) -> Options:
    names = Names(model)
    source = read_yaml(text, "written.yaml", names)
    assert source.problems == []
    return build(model, {given.path: to_value(names.records[given.path], given.raw) for given in source.givens})


@settings(max_examples=25)
@given(_any(SwapOptions))
def test_what_is_written_reads_back_equal(options: SwapOptions) -> None:
    assert _read(render_yaml(options), SwapOptions) == options


@given(_any(Words))
def test_any_text_reads_back_equal(options: Words) -> None:
    assert _read(render_yaml(options), Words) == options


@settings(max_examples=25)
@given(_any(SwapOptions))
def test_other_readers_of_yaml_see_the_same_values(options: SwapOptions) -> None:
    assert yaml.safe_load(render_yaml(options)) == options.model_dump()


def test_words_that_other_readers_take_for_something_else_are_quoted() -> None:
    options = Words(free="no", several=["on", "#1"], maybe=1e-05)

    assert yaml.safe_load(render_yaml(options)) == {"free": "no", "several": ["on", "#1"], "maybe": 1e-05}


def test_a_written_file_can_be_given_as_a_file_of_options(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(render_yaml(SwapOptions()), encoding="utf-8")
    read = read_options(SwapOptions, path)

    assert read.options == SwapOptions()
    assert read.explicitly_set == {record.path for record in RECORDS}
    assert read.remarks == ()


def test_every_option_stands_below_its_help_range_and_default() -> None:
    text = render_yaml(SwapOptions())
    plain = " ".join(line.strip().removeprefix("# ") for line in text.splitlines())

    for record in RECORDS:
        assert record.help in plain
    assert (
        "A number from 1e-10 to 100; usually 1e-06 to 0.0001; default: 5e-05; updatable. learning_rate: 5.0e-05"
        in plain
    )
    assert "default: 100; fixed: it decides what the model has learned to see. coverage: 100.0" in plain
    assert all(len(line) <= 100 for line in text.splitlines())


def test_the_reference_holds_every_option_with_its_facts() -> None:
    page = render_reference(SwapOptions)

    for record in RECORDS:
        assert page.count(f"### `{record.path}`\n") == 1
        assert (
            f"* default: {record.default}".lower() in page.lower()
            or record.default in (None, [])
            or record.kind == "float"
        )
    assert "## `loss`\n\nWhat counts as a mistake, and how much.\n" in page
    assert "* a whole number from -25 to 25\n* default: 0\n* fixed: it decides what the model has learned" in page
    assert value_at(SwapOptions(), "face.vertical_offset") == 0
