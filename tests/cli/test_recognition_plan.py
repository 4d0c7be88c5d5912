"""``ostinato recognition plan`` as a person uses it."""

from __future__ import annotations

import pytest

from ostinato.cli.main import run


def test_it_prints_a_line_for_each_number_of_identities(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recognition", "plan", "85742", "1M", "-np", "4", "-r", "0.5"]) == 0
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    assert ["85,742", "10,718"] in [line[:2] for line in lines]
    assert ["1,000,000", "125,000"] in [line[:2] for line in lines]
    assert "4 ranks" in printed


@pytest.mark.parametrize("text", ["many", "0", "-3", "1.5", "nan", ""])
def test_what_is_no_number_is_said(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recognition", "plan", "--", text]) == 2
    said = capsys.readouterr().err
    assert "is no number of identities" in said
    assert "10M" in said
