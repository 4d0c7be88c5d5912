"""Options as a commented YAML file, and as a page of reference."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

import yaml

from ostinato.config.declaration import OptionRecord, Options, option_records, sections, show, value_at

_WIDTH = 100
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_YAML_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
_HEAD = """\
The options of a run. Lines that begin with # explain; everything else is read.
A line that is missing means the default. An updatable option may be changed when a run is resumed; a fixed one
stays as it was when the run was made."""


def render_yaml(options: Options) -> str:
    """The options as YAML with the explanation of each; reading it gives equal options.

    :param options: what to write.
    """
    lines = [*_comment(_HEAD, "")]
    below = sections(options)
    section = ""
    for record in option_records(options):
        if record.section != section:
            section = record.section
            lines += ["", *_comment(summary(below[section]), ""), f"{section}:"]
        indent = "  " if section else ""
        lines += ["", *_comment(record.help, indent), *_comment(_facts(record), indent)]
        lines.append(f"{indent}{record.name}: {_yaml(value_at(options, record.path))}")
    return "\n".join(lines) + "\n"


def render_reference(model: type[Options]) -> str:
    """The reference of all options as Markdown: a heading for each section and each option.

    :param model: the option model.
    """
    lines: list[str] = []
    below = sections(model)
    section: str | None = None
    for record in option_records(model):
        if record.section != section:
            section = record.section
            lines += [f"## `{section}`", "", summary(below[section]), ""] if section else ["## At the top", ""]
        lines += [f"### `{record.path}`", "", *textwrap.wrap(record.help, 120, break_on_hyphens=False), ""]
        lines += [f"* {fact}" for fact in (f"group: {record.group}", *_fact_list(record))]
        lines.append("")
    return "\n".join(lines)


def summary(model: type[Options]) -> str:
    """What a section is about: the first line of its docstring."""
    return inspect.cleandoc(model.__doc__ or model.__name__).splitlines()[0]


def _fact_list(record: OptionRecord) -> Iterator[str]:
    yield record.allowed
    if record.usual is not None:
        yield f"usually {show(record.usual[0])} to {show(record.usual[1])}"
    yield f"default: {show(record.default)}"
    yield f"fixed: {record.why_fixed}" if record.fixed else "updatable"


def _facts(record: OptionRecord) -> str:
    facts = list(_fact_list(record))
    return f"{facts[0][0].upper()}{facts[0][1:]}; {'; '.join(facts[1:])}."


def _comment(text: str, indent: str) -> list[str]:
    wrapped = textwrap.wrap(text, _WIDTH - len(indent) - 2, break_on_hyphens=False, break_long_words=False)
    return [f"{indent}# {line}" for line in wrapped]


def _yaml(value: object) -> str:
    """A value in YAML that every YAML reader takes for the same."""
    if value is None or isinstance(value, (bool, int)):
        return show(value)
    if isinstance(value, float):
        text = repr(value)
        mantissa, e, exponent = text.partition("e")
        # Without a point, readers of YAML 1.1 take 5e-05 for text.
        return f"{mantissa}.0e{exponent}" if e and "." not in mantissa else text
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_yaml(item) for item in value)}]"
    text = str(value)
    return text if _PLAIN.fullmatch(text) and text.lower() not in _YAML_WORDS else _quoted(text)


def _quoted(text: str) -> str:
    """Text between double quotes on one line, with what YAML does not print escaped."""
    return yaml.safe_dump(text, default_style='"', width=float("inf")).strip()
