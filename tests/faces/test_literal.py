from __future__ import annotations

import ast
import math
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ostinato.faces import literal
from ostinato.faces.literal import LiteralError, read_literal

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**100), 2**100)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.binary(max_size=40)
)
VALUES = st.recursive(
    SCALARS,
    lambda children: (
        st.lists(children, max_size=5)
        | st.lists(children, max_size=5).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(-100, 100), children, max_size=5)
    ),
    max_leaves=30,
)


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max((_depth(item) for item in value.values()), default=0)
    return 1 + max((_depth(item) for item in value), default=0) if isinstance(value, (list, tuple)) else 0


@given(VALUES)
@example(["\\", "'", '"', "\n\r\t\x00\x7f\u2028\U0001f600", "\ud800"])
@example([b"'", b'"', b"'\"", b"\\'", b"\\" * 3, bytes(range(256))])
@example({"a": (1,), "b": ((),), "c": [[]], "d": {}, "e": [[1, 2.5], [-3e-05, 1e22]], "f": [1, "x"]})
@example([[0.0, -0.0], [1e-300, 5e300]])
def test_what_repr_writes_is_read_back_with_the_same_types(value: Any) -> None:
    if _depth(value) < literal.MAX_DEPTH:
        assert repr(read_literal(repr(value))) == repr(value)


@given(st.text(alphabet="[](){},:'\"\\bx0123456789.-+eETrueFalsNon \n_a", max_size=40))
@settings(max_examples=500)
@example("{'a': 1,}")
@example("(1)")
@example("[1, 2,]")
@example("{(1): 2}")
@example("[[1, 2], [3]]x")
def test_whatever_is_accepted_means_what_python_says_it_means(text: str) -> None:
    try:
        value = read_literal(text)
    except LiteralError:
        return
    # Indentation is the one thing that the literal reader of Python is pickier about.
    assert repr(value) == repr(ast.literal_eval(text.strip()))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "array([1, 2])",
        "{'a': array([1])}",
        "__import__('os')",
        "1 + 1",
        "-True",
        "[1 2]",
        "[1, , 2]",
        "[,]",
        "(,)",
        "{'a' 1}",
        "{'a': }",
        "{'a'}",
        "{1.5: 2}",
        "{None: 1}",
        "{b'a': 1}",
        "{(1, 2): 3}",
        "{[1]: 3}",
        "{'a': 1, 'a': 2}",
        "[1)",
        "(1]",
        "[1",
        "1]",
        "nan",
        "[nan]",
        "inf",
        "1j",
        "0x10",
        "1_000",
        "007",
        "[01]",
        "1..2",
        "'open",
        "b'open",
        "b'\\u0041'",
        "b'\\N{BULLET}'",
        "b'\\x4'",
        "b'\\101'",
        "b'é'",
        "b'a\nb'",
        "'a\nb'",
        "'\\q'",
        "'\\U00110000'",
        "'a' 'b'",
        "r'a'",
        "f'{1}'",
        "...",
        "lambda: 0",
        "[1, 2] [3]",
        "9" * 41,
        "[" + "9" * 42 + "]",
        "{'a': 1}; import os",
        "\x00",
    ],
)
def test_what_is_no_plain_data_is_refused(text: str) -> None:
    with pytest.raises(LiteralError):
        read_literal(text)


def test_the_message_says_where() -> None:
    with pytest.raises(LiteralError, match=r"character 6: 'array"):
        read_literal("{'a': array([1])}")


def test_depth_is_bounded_without_recursion() -> None:
    deepest = literal.MAX_DEPTH
    assert read_literal("[" * deepest + "]" * deepest)
    for opening in ("[", "(", "{'a': ", "[1, [2, "):
        with pytest.raises(LiteralError, match="nested deeper"):
            read_literal(opening * 1_000_000)


@pytest.mark.parametrize(
    "text",
    [
        "[" + "1 " * 500_000,
        "[" + "1," * 500_000 + "x",
        "[" + "[1]," * 300_000 + "x",
        "b'" + "\\\\" * 500_000,
        "b'" + "\\'" * 500_000,
        "'" + "\\'" * 500_000,
        "(" * 23 + "[1," * 300_000,
        "[" + "1" * 1_000_000 + "]",
        "-" * 1_000_000,
        " " * 1_000_000 + "x",
        "1." + "1" * 1_000_000,
        "[" + "1," * 1_000_000 + "(" + "1," * 100_000,
    ],
    ids=lambda text: f"{text[:6]}...{len(text)}",
)
def test_hostile_texts_are_refused_in_linear_time(text: str) -> None:
    start = time.process_time()
    with pytest.raises(LiteralError):
        read_literal(text)
    assert time.process_time() - start < 5


def test_length_and_number_of_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(literal, "MAX_TEXT_LENGTH", 10)
    with pytest.raises(LiteralError, match="at most 10"):
        read_literal("[1, 2, 3, 4]")
    monkeypatch.setattr(literal, "MAX_TEXT_LENGTH", 1000)
    monkeypatch.setattr(literal, "MAX_TOKENS", 10)
    with pytest.raises(LiteralError, match="more than 10 values"):
        read_literal("(1, 2, 3, 4, 5, 6)")


def test_memory_stays_in_proportion_to_the_text() -> None:
    text = "[" + "[],(),{}," * 5_000 + "x"
    tracemalloc.start()
    with pytest.raises(LiteralError):
        read_literal(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * len(text)


def test_a_number_beyond_a_float_reads_as_infinity() -> None:
    assert math.isinf(read_literal("1e999"))
    assert math.isinf(read_literal("[1e999]")[0])
