"""From a file and the command line to a set of options, with every mistake reported at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ostinato.config.declaration import Options, show, value_at
from ostinato.config.faceswap_ini import ONE_MORE, looks_like_ini, read_ini
from ostinato.config.givens import Given, Place, Problem, Remark, Source
from ostinato.config.names import NameRefused, Names
from ostinato.config.text_file import read_text
from ostinato.config.values import ValueRefused, is_unusual, quote, to_value
from ostinato.config.yaml_file import read_yaml
from ostinato.errors import ConfigError

_log = logging.getLogger(__name__)

T = TypeVar("T", bound=Options)


@dataclass(frozen=True)
class ReadOptions(Generic[T]):
    """Options as they were given.

    :ivar options: every option; those that were not given have their defaults.
    :ivar explicitly_set: dotted paths of the options that the file or the command line named.
    :ivar remarks: what is worth saying of single values and no mistake.
    """

    options: T
    explicitly_set: frozenset[str]
    remarks: tuple[Remark, ...]

    def tell_remarks(self, tell: Callable[[str], None]) -> None:
        """Give each warning to ``tell``; what is less goes to the log."""
        for remark in self.remarks:
            if remark.level == "warning":
                tell(str(remark))
            else:
                _log.info("%s", remark)

    def tell_idle(self, used: T, tell: Callable[[str], None]) -> None:
        """Say of options that the user named that they have no effect beside the others.

        :param used: the options as they will be used: those of a resumed run are not those that were read.
        """
        for conflict in used.idle():
            path = conflict.paths[0]
            if path in self.explicitly_set:
                tell(f"options: {path} = {show(value_at(used, path))} has no effect: {conflict.message}")


def load_options(model: type[T], path: Path | str | None = None, overrides: Sequence[str] = ()) -> T:
    """The options of a new run: the file's values, over them those of the command line, defaults for the rest.

    Remarks go to the log. To resume a run, use :func:`read_options` and :func:`~ostinato.config.resume`: values that
    make no sense together are then judged after the run's own values have been put in.

    :param model: the option model.
    :param path: a YAML file, or a Faceswap ``train.ini``; None for none. It is never written.
    :param overrides: ``name=value``, with the dotted path of an option or its last part where that is unique.
    :raises ConfigError: with every mistake; field ``problems`` is a list of ``Problem``.
    """
    read = read_options(model, path, overrides)
    read.tell_remarks(_log.warning)
    read.tell_idle(read.options, _log.warning)
    check_together(read.options)
    return read.options


def read_options(
    model: type[T], path: Path | str | None = None, overrides: Sequence[str] = (), source: str = "command line"
) -> ReadOptions[T]:
    """Like :func:`load_options`, with what was explicitly set and what is to be remarked, and without looking across
    options (:func:`check_together`, :meth:`ReadOptions.tell_idle`).

    :param source: who gives ``overrides``, for remarks.
    """
    names = Names(model)
    command_line = _read_overrides(overrides, names, source)
    values, problems, remarks = _to_values(command_line, names, from_ini=False)
    if path is not None:
        file, from_ini = _read_file(Path(path), model, names, values)
        file_values, file_problems, file_remarks = _to_values(file, names, from_ini=from_ini)
        values = {**file_values, **values}
        problems = file_problems + problems
        remarks = file_remarks + remarks
    if problems:
        raise _error(problems)
    return ReadOptions(build(model, values), frozenset(values), tuple(remarks))


def check_together(options: Options, whose: str = "options") -> None:
    """Refuse values that are allowed one by one and make no sense together.

    :param options: the options as they will be used.
    :param whose: where the values come from, for the message.
    :raises ConfigError: with every conflict; field ``problems``.
    """
    problems = [Problem(Place(whose), conflict.message, conflict.paths[0]) for conflict in options.conflicts()]
    if problems:
        raise _error(problems)


def build(model: type[T], values: dict[str, Any]) -> T:
    """A set of options from values by dotted path, each of the right type already; defaults for the rest."""
    nested: dict[str, Any] = {}
    for path, value in values.items():
        *above, name = path.split(".")
        level = nested
        for part in above:
            level = level.setdefault(part, {})
        level[name] = value
    return model.model_validate(nested)


def _read_overrides(overrides: Iterable[str], names: Names, whose: str) -> Source:
    source = Source()
    for text in overrides:
        name, equals, value = text.partition("=")
        where = Place(f"--set {quote(text)}")
        if not equals:
            source.problems.append(Problem(where, "write name=value, such as loss.eye_multiplier=2"))
            continue
        try:
            path = names.find(name)
        except NameRefused as refused:
            source.problems.append(Problem(where, str(refused)))
            continue
        source.givens.append(Given(path, value, Place(whose), path))
    return source


def _read_file(path: Path, model: type[Options], names: Names, values: dict[str, Any]) -> tuple[Source, bool]:
    text = read_text(path)
    if path.suffix.lower() != ".ini" and not looks_like_ini(text):
        return read_yaml(text, str(path), names), False
    if not model.ini_sections:
        problem = Problem(Place(str(path)), "a Faceswap file cannot be used here; write the options as YAML")
        return Source(problems=[problem]), True
    chosen = names.records.get("model.name")
    model_name = values.get("model.name", chosen.default if chosen else "")
    return read_ini(text, str(path), model, names, model_name), True


def _to_values(source: Source, names: Names, *, from_ini: bool) -> tuple[dict[str, Any], list[Problem], list[Remark]]:
    values: dict[str, Any] = {}
    problems, remarks = list(source.problems), list(source.remarks)
    for given in source.givens:
        record = names.records[given.path]
        try:
            value = to_value(record, given.raw)
        except ValueRefused as refused:
            value_text = "" if given.raw in (None, "") else f" = {quote(given.raw)}"
            problems.append(Problem(given.where, f"{given.shown}{value_text} {refused}", given.path))
            continue
        if from_ini and given.path in ONE_MORE and isinstance(value, int) and value > 1:
            message = f"{given.shown} = {value} makes Faceswap weigh this area {value + 1} times; {value + 1} is used"
            remarks.append(Remark("info", given.where, message, given.path))
            value += 1
        elif is_unusual(record, value) and record.usual is not None:
            low, high = (show(end) for end in record.usual)
            message = f"{given.shown} = {show(value)} is outside of the usual range, {low} to {high}"
            remarks.append(Remark("warning", given.where, message, given.path))
        values[given.path] = value
    problems.sort(key=lambda problem: problem.where.line)
    remarks.sort(key=lambda remark: remark.where.line)
    return values, problems, remarks


def _error(problems: list[Problem]) -> ConfigError:
    if len(problems) == 1:
        text = str(problems[0])
        what = text if text.endswith(("?", ".")) else f"{text}."
        return ConfigError(what, advice="Correct it and start again.", problems=problems)
    advice = "".join(f"  {problem}\n" for problem in problems) + "Correct them and start again."
    return ConfigError(f"There are {len(problems)} mistakes in the options:", advice=advice, problems=problems)
