"""Options from YAML.

Only the structure of the file is taken from the YAML reader: the values stay text and go through the same rules as
everywhere else. So ``5e-5`` is a number, ``010`` is ten, and ``no`` is not a surprise; nothing is ever constructed.
"""

from __future__ import annotations

import yaml

from ostinato.config.givens import Given, Place, Problem, Source
from ostinato.config.names import NameRefused, Names
from ostinato.config.values import nearest, quote

_PLAIN_TAGS = "tag:yaml.org,2002:"
_NULL = f"{_PLAIN_TAGS}null"
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
        source.problems.append(Problem(_place(label, root), message))
        return source
    reader = _Reader(label, names, source)
    for key, place, node in reader.entries(root, ""):
        if key in names.sections:
            reader.read_section(key, place, node)
        else:
            reader.read_option(key, key, place, node)
    return source


class _Reader:
    """The walk over the nodes of one file."""

    def __init__(self, label: str, names: Names, source: Source) -> None:
        self._label = label
        self._names = names
        self._source = source
        self._seen: dict[str, Place] = {}

    def entries(self, node: yaml.MappingNode, section: str) -> list[tuple[str, Place, yaml.Node]]:
        """The names in a mapping with their places and what belongs to each; of a name given twice, the last."""
        found: dict[str, tuple[str, Place, yaml.Node]] = {}
        for key, value in node.value:
            place = _place(self._label, key)
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(place, "a name is expected before the colon", section)
                continue
            if key.value in found:
                path = f"{section}.{key.value}" if section else key.value
                self._refuse_second(place, path, found[key.value][1])
            found[key.value] = (key.value, place, value)
        return list(found.values())

    def read_section(self, section: str, place: Place, node: yaml.Node) -> None:
        if node.tag == _NULL:  # All lines below it are comments.
            return
        if not isinstance(node, yaml.MappingNode):
            options = self._names.inside(section)
            self._refuse(place, f"{section} is a section; below it, indented, stand its options: {options}", section)
            return
        for key, key_place, child in self.entries(node, section):
            self.read_option(f"{section}.{key}", key, key_place, child)

    def read_option(self, path: str, key: str, place: Place, node: yaml.Node) -> None:
        record = self._names.records.get(path)
        if record is None:
            self._refuse(place, self._unknown(path, key, node), path)
            return
        if path in self._seen:
            self._refuse_second(place, path, self._seen[path])
        self._seen[path] = place
        if isinstance(node, yaml.ScalarNode):
            if node.tag not in _SCALARS and node.tag != _NULL:
                self._refuse(place, f"{path} has the tag {quote(node.tag)}; write a plain value", path)
                return
            raw: object = None if node.tag == _NULL else node.value
            if raw is None and str(record.default).startswith("#"):
                what = f"{path} has no value, since # begins a comment in YAML; write it between quotes"
                self._refuse(place, f'{what}, such as "{record.default}"', path)
                return
        elif isinstance(node, yaml.SequenceNode) and record.kind == "list":
            raw = [item.value if isinstance(item, yaml.ScalarNode) else "(a list or section)" for item in node.value]
        else:
            what = "a list" if isinstance(node, yaml.SequenceNode) else "a section"
            self._refuse(place, f"{path} takes one value, not {what}; expected is {record.allowed}", path)
            return
        self._source.givens.append(Given(path, raw, place, path))

    def _unknown(self, path: str, key: str, node: yaml.Node) -> str:
        what = f"{quote(path)} is not an option"
        at_top = path == key
        if at_top and isinstance(node, yaml.MappingNode):
            meant = nearest(key, self._names.sections)
            return f"{quote(path)} is not a section; did you mean {meant}?" if meant else f"{what} and not a section"
        try:
            found = self._names.find(key)
        except NameRefused:
            return f"{what}{self._names.suggest(path)}"
        section = found.rpartition(".")[0]
        if not at_top:
            place = f"the section {section}" if section else "the top of the file"
            return f"{what}; {key} belongs to {place}"
        if not section:
            return f"{what}; did you mean {found}?"
        return f"{what} at the top of the file; write it below '{section}:', or write {found}"

    def _refuse_second(self, place: Place, path: str, first: Place) -> None:
        self._refuse(place, f"{path} is given twice, first in line {first.line}", path)

    def _refuse(self, place: Place, message: str, path: str) -> None:
        self._source.problems.append(Problem(place, message, path))


def _place(label: str, node: yaml.Node) -> Place:
    return Place(label, node.start_mark.line + 1)
