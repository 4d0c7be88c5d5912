"""What a shell leaves undone in the words of a command line, and what it does too much."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from ostinato.errors import UsageError

_HOME = re.compile(r"(?P<before>(?:^|^[\w.-]+=))(?P<home>~(?:/.*)?)$", re.DOTALL)
_PASSES_WORDS_ON = "launch"


def as_meant(words: Sequence[str]) -> list[str]:
    """The words with the home folder in place of ``~``, which shells leave alone behind ``=`` and between quotes.

    What follows ``--``, and all that is launched, is for another program and stays as it is.

    :raises UsageError: a word is empty, as a variable of the shell that was never set makes it. Taken for a path, it
        would mean the folder one happens to be in.
    """
    end = words.index("--") if "--" in words else len(words)
    if _PASSES_WORDS_ON in words[:1]:
        return list(words)
    for number, word in enumerate(words[:end]):
        if not word or re.fullmatch(r"--[\w-]+=", word):
            before = word.rstrip("=") or (words[number - 1] if number else "ostinato")
            raise UsageError(
                f"There is an empty word after {before}.",
                advice="If it stands for a variable of your shell, that has no value; otherwise leave it out.",
                position=number,
            )
    return [_HOME.sub(_with_home, word) for word in words[:end]] + list(words[end:])


def _with_home(match: re.Match[str]) -> str:
    return match["before"] + os.path.expanduser(match["home"])
