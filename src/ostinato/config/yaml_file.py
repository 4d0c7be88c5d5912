"""Options from YAML.

Only the structure of the file is taken from the YAML reader: the values stay text and go through the same rules as
everywhere else. So ``5e-5`` is a number, ``010`` is ten, and ``no`` is not a surprise; nothing is ever constructed.
"""

from __future__ import annotations

import yaml

from ostinato.config.givens import Given, Place, Problem, Source
from ostinato.config.names import NameRefused, Names
from ostinato.config.values import quote

_PLAIN_TAGS = "tag:yaml.org,2002:"
_MAP, _SEQ, _NULL = (f"{_PLAIN_TAGS}{name}" for name in ("map", "seq", "null"))
_SCALARS = {f"{_PLAIN_TAGS}{name}" for name in ("str", "int", "float", "bool", "timestamp", "value", "merge")}


def read_yaml(text: str, label: str, names: Names) -> Source:
    """The values in a YAML text, as sections of options or with dotted paths.

    :param text: the file's content.
    :param label: the file's name in messages.
    :param names: the options that exist.
    """
    source = Source()
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = Place(label, mark.line + 1 if mark else 0)
        source.problems.append(Problem(where, f"this is not YAML: {error.problem or error.context}"))
        return source
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        source.problems.append(Problem(Place(label), f"this is not YAML: {quote(str(error).splitlines()[0])}"))
        return source
    if root is None or root.tag == _NULL:
        return source
    if not isinstance(root, yaml.MappingNode):
        message = "expected are sections with options, such as 'loss:' and below it, indented, 'eye_multiplier: 2'"
        source.problems.append(Problem(_where(label, root), message))
        return source
    seen: dict[str, int] = {}
    for key, node in _entries(root, label, "", seen, source):
        if key in names.sections:
            _read_section(key, node, label, names, seen, source)
        else:
            _read_option(key, "", node, label, names, seen, source)
    return source


def _read_section(
    section: str, node: yaml.Node, label: str, names: Names, seen: dict[str, int], source: Source
) -> None:
    if node.tag == _NULL:  # All lines below it are comments.
        return
    if not isinstance(node, yaml.MappingNode):
        message = f"{section} is a section; below it, indented, stand its options: {names.inside(section)}"
        source.problems.append(Problem(_where(label, node), message, section))
        return
    for key, child in _entries(node, label, section, seen, source):
        _read_option(key, section, child, label, names, seen, source)


def _read_option(
    key: str, section: str, node: yaml.Node, label: str, names: Names, seen: dict[str, int], source: Source
) -> None:
    path = f"{section}.{key}" if section else key
    where = _where(label, node)
    if path not in names.records:
        source.problems.append(Problem(where, _unknown(key, path, section, names), path))
        return
    if section == "" and "." in path and path in seen:
        source.problems.append(Problem(where, f"{path} is given twice, first in line {seen[path]}", path))
    seen.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        if node.tag not in _SCALARS and node.tag != _NULL:
            source.problems.append(Problem(where, f"{path} has the tag {quote(node.tag)}; write a plain value", path))
            return
        raw: object = None if node.tag == _NULL else node.value
    elif isinstance(node, yaml.SequenceNode) and all(isinstance(item, yaml.ScalarNode) for item in node.value):
        raw = [item.value for item in node.value]
        if names.records[path].kind != "list":
            message = f"{path} takes one value, not a list; expected is {names.records[path].allowed}"
            source.problems.append(Problem(where, message, path))
            return
    else:
        message = f"{path} is an option; expected is {names.records[path].allowed}"
        source.problems.append(Problem(where, message, path))
        return
    source.givens.append(Given(path, raw, where, path))


def _entries(
    node: yaml.MappingNode, label: str, section: str, seen: dict[str, int], source: Source
) -> list[tuple[str, yaml.Node]]:
    """The entries of a mapping, the last of those given twice; mistakes in the keys are noted."""
    entries: dict[str, yaml.Node] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            source.problems.append(Problem(_where(label, key), "a name is expected before the colon"))
            continue
        path = f"{section}.{key.value}" if section else key.value
        line = key.start_mark.line + 1
        if key.value in entries:
            source.problems.append(
                Problem(_where(label, key), f"{path} is given twice, first in line {seen[path]}", path)
            )
        seen.setdefault(path, line)
        entries[key.value] = value
    return list(entries.items())


def _unknown(key: str, path: str, section: str, names: Names) -> str:
    what = f"{quote(path)} is not an option"
    if section:
        try:
            found = names.find(key)
        except NameRefused:
            return f"{what}{names.suggest(path)}"
        return f"{what}; {key} belongs to the section {found.rpartition('.')[0]}" if "." in found else what
    try:
        found = names.find(key)
    except NameRefused:
        return f"{what}{names.suggest(path)}"
    return f"{what} at the top of the file; write it below '{found.rpartition('.')[0]}:', or write {found}"


def _where(label: str, node: yaml.Node) -> Place:
    return Place(label, node.start_mark.line + 1)
