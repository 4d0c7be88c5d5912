"""The words of the command line as the shell hands them over."""

from __future__ import annotations

import pytest

from ostinato.cli.given_words import as_meant
from ostinato.cli.main import run
from ostinato.errors import UsageError


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("~", "/home/ann"),
        ("~/run", "/home/ann/run"),
        ("--model-dir=~/my run", "/home/ann/my run"),
        ("c=~/faces/c", "/home/ann/faces/c"),
        ("loss.lpips_files=~/alex.pth", "/home/ann/alex.pth"),
    ],
)
def test_the_home_folder_is_meant_by_a_tilde_that_the_shell_has_left(
    word: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    name, equals, _ = word.partition("=~")
    assert as_meant(["swap", word]) == ["swap", f"{name}={meant}" if equals else meant]


@pytest.mark.parametrize("word", ["~ann/run", "a~", "./~/run", "x=a~/b", "--name=~b", "-A", "a=b=~/c"])
def test_other_tildes_stay(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert as_meant(["swap", word]) == ["swap", word]


@pytest.mark.parametrize(
    ("words", "before"),
    [
        (["swap", "train", "-m", "", "-i", "1"], "-m"),
        (["swap", "train", "--model-dir="], "--model-dir"),
        ([""], "ostinato"),
    ],
)
def test_an_empty_word_is_refused_since_as_a_path_it_would_mean_the_current_folder(
    words: list[str], before: str
) -> None:
    with pytest.raises(UsageError, match=rf"There is an empty word after {before}\."):
        as_meant(words)


def test_what_is_for_another_program_stays_as_it_is() -> None:
    assert as_meant(["launch", "-np", "2", "train.py", "", "~/x"]) == ["launch", "-np", "2", "train.py", "", "~/x"]
    assert as_meant(["runs", "--", "", "~/x"]) == ["runs", "--", "", "~/x"]


def test_an_option_may_be_set_to_nothing() -> None:
    assert as_meant(["swap", "train", "--set", "loss.lpips_files="]) == [
        "swap",
        "train",
        "--set",
        "loss.lpips_files=",
    ]


def test_the_command_line_says_it_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["runs", "list", ""]) == 2
    assert capsys.readouterr().err.startswith("Error: There is an empty word after list. If it stands for a variable")
