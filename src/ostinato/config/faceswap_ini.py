"""Options from Faceswap's ``train.ini``. The file is only read, never written.

What Faceswap calls the same means the same here, with one exception: Faceswap weighs eyes and mouth by one more than
the multiplier says as soon as the multiplier is above 1. Such a multiplier is taken as one more, so that training goes
on with the weights it had.
"""

from __future__ import annotations

import re

from ostinato.config.declaration import OptionRecord, Options
from ostinato.config.givens import Given, Place, Problem, Remark, Source
from ostinato.config.names import Names
from ostinato.config.values import nearest, quote

ONE_MORE = frozenset(("loss.eye_multiplier", "loss.mouth_multiplier"))
"""Options that Faceswap counts one higher than they say, when they are above 1."""

_SECTION = re.compile(r"\[([^\]]+)\]")
_SNIFF = re.compile(r"^\s*\[(global|global\.\w+|model\.\w+|trainer\.\w+)\]\s*$", re.MULTILINE)
_NOT_BUILT_MODELS = ("dfaker", "dfl_h128", "dfl_sae", "dlight", "phaze_a", "realface", "unbalanced", "villain")


def looks_like_ini(text: str) -> bool:
    """Whether a text holds a section heading of Faceswap's file."""
    return _SNIFF.search(text) is not None


def read_ini(text: str, label: str, model: type[Options], names: Names, model_name: str) -> Source:
    """The values in a Faceswap ``train.ini``.

    Options of parts that Ostinato does not have are remarked on and left out; so are unknown ones, with a warning.

    :param text: the file's content.
    :param label: the file's name in messages.
    :param model: the option model, whose ``ini_sections`` says where each section goes.
    :param names: the options that exist.
    :param model_name: the model that will be trained; the sections of other models are left out.
    """
    source = Source()
    not_built: list[str] = []
    for section, entries in _parse(text, label, source).items():
        places = model.ini_sections.get(section)
        if places is not None and section.startswith("model.") and section != f"model.{model_name}":
            _leave_out(section, entries, label, f"it belongs to another model than {model_name}", source)
        elif places is not None:
            _read_section(section, entries, places, label, names, source)
        elif section.removeprefix("model.") in _NOT_BUILT_MODELS:
            not_built += [section.removeprefix("model.")] if entries else []
        else:
            meant = nearest(section, model.ini_sections)
            hint = f"; did you mean [{meant}]?" if meant else "."
            listed = ", ".join(entries) or "nothing"
            message = f"[{section}] is not a section that Ostinato knows{hint} It is ignored, with {listed}."
            source.remarks.append(Remark("warning", Place(label), message, section))
    if not_built:
        # one line for all of them: every ini file of Faceswap has a section for each of its models
        message = f"sections of models that Ostinato does not have yet are ignored: {', '.join(not_built)}"
        source.remarks.append(Remark("info", Place(label), message))
    return source


_Entries = dict[str, tuple[str | None, int]]


def _parse(text: str, label: str, source: Source) -> dict[str, _Entries]:
    """Sections, options and values with their line numbers; ``%`` and everything else in a value is left alone."""
    found: dict[str, _Entries] = {}
    section: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        where = Place(label, number)
        if not stripped or stripped[0] in "#;":
            continue
        heading = _SECTION.fullmatch(stripped)
        if heading:
            section = heading.group(1).strip()
            if section in found:
                source.problems.append(Problem(where, f"the section [{section}] is given twice", section))
            found.setdefault(section, {})
            continue
        if section is None:
            source.problems.append(Problem(where, f"{quote(stripped)} stands before the first [section]"))
            continue
        match = re.match(r"([^=:]+)([=:])(.*)", stripped)
        name, value = (match.group(1).strip(), match.group(3).strip()) if match else (stripped, None)
        if name in found[section]:
            first = found[section][name][1]
            message = f"[{section}] {quote(name)} is given twice, first in line {first}; keep one"
            source.problems.append(Problem(where, message, name))
            continue
        found[section][name] = (value, number)
    if not found and not source.problems:
        source.problems.append(Problem(Place(label), "there is no [section] in this file"))
    return found


def _read_section(
    section: str, entries: _Entries, places: tuple[str, ...], label: str, names: Names, source: Source
) -> None:
    by_name = {record.name: record for record in names.records.values() if record.section in places}
    for name, (value, line) in entries.items():
        where = Place(label, line)
        shown = f"[{section}] {name}"
        record = by_name.get(name)
        if record is None:
            source.remarks.append(_unknown(section, name, where, by_name, names))
            continue
        if value is None:
            message = f"{shown} has no value; write '{name} = ...' with {record.allowed}"
            source.problems.append(Problem(where, message, record.path))
            continue
        source.givens.append(Given(record.path, value, where, shown))
        if record.path == "optimizer.save_optimizer" and value.lower() != "always":
            message = (
                f"{shown} = {quote(value)}: a run that is cut off does not continue exactly then; always, which "
                "Ostinato uses by default, makes sure that it does"
            )
            source.remarks.append(Remark("warning", where, message, record.path))


def _unknown(section: str, name: str, where: Place, by_name: dict[str, OptionRecord], names: Names) -> Remark:
    shown = f"[{section}] {quote(name)}"
    meant = nearest(name, by_name)
    elsewhere = [record for record in names.records.values() if record.name == name]
    if meant is not None:
        default = by_name[meant].default
        hint = f"did you mean {meant}? As it stands, {meant} is left at its default, {default}."
    elif elsewhere:
        hint = f"it belongs to another section ({elsewhere[0].path} in Ostinato)."
    else:
        hint = "it is ignored."
    return Remark("warning", where, f"{shown} is not an option that Ostinato knows; {hint}", name)


def _leave_out(section: str, entries: _Entries, label: str, reason: str, source: Source) -> None:
    if entries:
        message = f"[{section}] is ignored, since {reason}: {', '.join(entries)}"
        source.remarks.append(Remark("info", Place(label), message, section))
