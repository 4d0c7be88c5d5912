from __future__ import annotations

import os

import pytest

from ostinato.data.file_names import shown_name, shown_text


@pytest.mark.parametrize(
    "name",
    ["plain.png", "with blank.png", "얼굴.png", "e\u0301.png", "é.png", "C:\\faces\\a.png", "👩\u200d🚀.png", ""],
)
def test_readable_names_stay_as_they_are(name: str) -> None:
    assert shown_name(name) == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("two\nlines.png", "two\\nlines.png"),
        ("bell\x07.png", "bell\\x07.png"),
        ("\x1b[31mred.png", "\\x1b[31mred.png"),
        ("trailing.png ", "trailing.png\\x20"),
        (" leading.png", "\\x20leading.png"),
        ("gpj.\u202epng", "gpj.\\u202epng"),
        ("para\u2029graph", "para\\u2029graph"),
        ("back\\slash\n", "back\\\\slash\\n"),
        (os.fsdecode(b"raw\xff.png"), "raw\\xff.png"),
    ],
)
def test_unreadable_parts_become_escapes(name: str, shown: str) -> None:
    assert shown_name(name) == shown


def test_every_shown_name_can_be_encoded() -> None:
    for name in (os.fsdecode(bytes(range(1, 256))), "\ud800", "\U0001d173"):
        assert shown_name(name).encode("utf-8").isascii() or "\n" not in shown_name(name)
        assert len(shown_name(name).splitlines()) == 1


def test_a_message_keeps_its_lines_and_loses_what_a_terminal_obeys() -> None:
    assert shown_text("a\tb\\c\nd é") == "a\tb\\c\nd é"
    assert shown_text("\x1b[31mred\r\u202e") == "\\x1b[31mred\\r\\u202e"
