"""Finding the option that a name means."""

from __future__ import annotations

from collections.abc import Mapping

from ostinato.config.declaration import OptionRecord, Options, option_records, sections
from ostinato.config.values import nearest, quote


class NameRefused(Exception):
    """A name is no option. The text says so and gives the nearest one."""


class Names:
    """The option names of one model.

    :ivar records: the record of each option by its dotted path, in order of declaration.
    """

    def __init__(self, model: type[Options] | Options) -> None:
        self.records: Mapping[str, OptionRecord] = {record.path: record for record in option_records(model)}
        self.sections = tuple(sections(model))
        self._by_name: dict[str, list[str]] = {}
        for path, record in self.records.items():
            self._by_name.setdefault(record.name, []).append(path)

    def find(self, name: str) -> str:
        """The path of the option with this dotted path, or with this bare name if only one option has it.

        Letter case and ``-`` for ``_`` do not matter.

        :raises NameRefused: if there is none, or more than one.
        """
        key = name.strip().lower().replace("-", "_")
        if key in self.records:
            return key
        paths = self._by_name.get(key, [])
        if len(paths) == 1:
            return paths[0]
        if paths:
            raise NameRefused(f"{quote(name)} could be any of {', '.join(paths)}; write one of these")
        if key in self.sections:
            raise NameRefused(f"{quote(name)} is a section, not an option; it holds {self.inside(key)}")
        raise NameRefused(f"{quote(name)} is not an option{self.suggest(key)}")

    def bare(self, path: str) -> str:
        """The last part of a path if no other option has it, else the whole path."""
        name = path.rpartition(".")[2]
        return name if len(self._by_name.get(name, ())) < 2 else path

    def inside(self, section: str) -> str:
        """The names of the options of a section, for a message."""
        return ", ".join(record.name for record in self.records.values() if record.section == section)

    def suggest(self, name: str) -> str:
        """The end of a message about an unknown name: the nearest one, or nothing."""
        last = name.rpartition(".")[2]
        meant = nearest(name, self.records) or nearest(last, self._by_name)
        if meant is None:
            return ""
        paths = self._by_name.get(meant, [meant])
        return f"; did you mean {' or '.join(paths)}?"
