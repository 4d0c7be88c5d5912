"""What a source gives: raw values of options with the place where each stands, and what is wrong with the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Place:
    """Where something stands.

    :ivar source: the file as the user named it, or another name of the source.
    :ivar line: the line, counted from 1; 0 where lines mean nothing.
    """

    source: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.source}, line {self.line}" if self.line else self.source


@dataclass(frozen=True)
class Given:
    """One raw value.

    :ivar path: the dotted path of the option.
    :ivar raw: text, None, or a list of text.
    :ivar where: where it stands.
    :ivar shown: the option as the source spells it: ``[global] coverage`` or ``face.coverage``.
    """

    path: str
    raw: object
    where: Place
    shown: str


@dataclass(frozen=True)
class Problem:
    """One mistake.

    :ivar where: where it stands.
    :ivar message: what is wrong, with the option and the value, and what is expected.
    :ivar path: the dotted path of the option, empty if the mistake belongs to none.
    """

    where: Place
    message: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@dataclass(frozen=True)
class Remark:
    """Something worth saying that is no mistake.

    :ivar level: ``warning`` if the user probably wants to act on it, else ``info``.
    :ivar where: where it stands.
    :ivar message: what is worth saying, with the option and the value.
    :ivar path: the dotted path of the option, or the name as it stands if it is none.
    """

    level: Literal["warning", "info"]
    where: Place
    message: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@dataclass
class Source:
    """Everything one file or command line gave, filled while it is read."""

    givens: list[Given] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
