from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ostinato.cli.main import run
from ostinato.cli.one_voice import OneVoice, said_by_all
from ostinato.errors import BadInputError, RankFailedError

LIMIT = 120.0
"""Seconds to wait for another thread."""


def rank(number: int, **more: str) -> dict[str, str]:
    own = {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number)}
    return {**own, "MASTER_ADDR": "localhost", "MASTER_PORT": "1", **more}


def test_a_process_alone_says_everything(tmp_path: Path) -> None:
    for environ in ({}, {**rank(0), "WORLD_SIZE": "1"}, {"RANK": "0"}):
        for _ in range(2):
            voice = OneVoice(environ, tmp_path)
            assert voice.may_say("no such folder")
            voice.done()
    assert not list(tmp_path.iterdir())


def test_of_two_ranks_one_speaks_and_the_other_waits_until_it_has(tmp_path: Path) -> None:
    first, second = OneVoice(rank(1), tmp_path), OneVoice(rank(0), tmp_path, patience=LIMIT)
    assert first.may_say("no such folder")
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(second.may_say("no such folder")), daemon=True)
    waiting.start()
    assert OneVoice(rank(0), tmp_path).may_say("something else")
    assert not answers  # it cannot have one: nothing has been said
    first.done()
    waiting.join(LIMIT)
    assert answers == [False]


def test_who_hears_nobody_speaks(tmp_path: Path) -> None:
    assert OneVoice(rank(1), tmp_path).may_say("no such folder")  # and is stopped before it has said it
    assert OneVoice(rank(0), tmp_path, patience=0.0).may_say("no such folder")
    assert OneVoice(rank(0), tmp_path / "missing").may_say("no such folder")


def test_a_later_life_of_the_ranks_speaks_again(tmp_path: Path) -> None:
    for life in ("0", "1"):
        voice = OneVoice(rank(0, TORCHELASTIC_RESTART_COUNT=life), tmp_path)
        assert voice.may_say("no such folder")
        voice.done()


def test_a_rank_that_ends_because_of_another_leaves_it_the_word(tmp_path: Path) -> None:
    found = BadInputError("There is no faces.", advice="Make it.")
    follows = RankFailedError("Rank 1 failed.", rank=1, error=f"BadInputError: {found}")
    said, told = said_by_all(found), said_by_all(follows)
    assert (said, told) == ((str(found), False), (str(found), True))
    assert OneVoice(rank(0), tmp_path, patience=0.0).may_say(told[0], is_echo=True)  # nobody has said it
    assert OneVoice(rank(1), tmp_path, patience=0.0).may_say("There is no faces. Make it.")
    voice = OneVoice(rank(1), tmp_path)
    assert voice.may_say("lost its data")
    voice.done()
    assert not OneVoice(rank(0), tmp_path, patience=0.0).may_say("lost its data", is_echo=True)
    unknown = RankFailedError("Another rank has ended.", rank=None, error="connection closed")
    assert said_by_all(unknown) == ("Another rank has ended.", False)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["runs", "show", "nowhere"], 3, "nowhere"),
        (["runs", "list", "--nonsense"], 2, "--nonsense"),
        (["launch", "-np", "0", "--", "true"], 2, "0 ranks"),
    ],
)
def test_the_command_line_says_it_once_and_ends_with_its_status_on_all_ranks(
    arguments: list[str],
    status: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    heard = []
    for number in (1, 0):
        for name, value in rank(number).items():
            monkeypatch.setenv(name, value)
        assert run(arguments) == status
        heard.append(capsys.readouterr().err)
    assert words in heard[0]
    assert heard[1] == ""
