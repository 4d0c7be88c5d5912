"""What a resumed run is trained with: its own stored options, and of what is asked for now all that may change.

================  ==========  =====================  ==================
stored            option is   asked for explicitly   not asked for
================  ==========  =====================  ==================
a valid value     updatable   the asked value        the stored value
a valid value     fixed       the stored value       the stored value
nothing           updatable   the asked value        ``before``
nothing           fixed       ``before``             ``before``
a useless value   either      the asked value        the default
================  ==========  =====================  ==================

``before`` is what runs were made with before the option existed. So a default that changes in a new version never
changes an old run. Where nothing can stand in for a useless value (the kind of model), the run is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from ostinato.config.declaration import OptionRecord, Options, option_records, sections, show, value_at
from ostinato.config.names import NameRefused, Names
from ostinato.config.reading import check_together
from ostinato.config.values import ValueRefused, quote, same, to_value
from ostinato.errors import ConfigError

T = TypeVar("T", bound=Options)

_FORMAT = 1


@dataclass(frozen=True)
class Change:
    """One option about which a resumed run has something to say.

    :ivar path: the dotted path of the option.
    :ivar kind: ``applied``: an updatable option takes the asked value; ``kept``: a fixed one keeps the stored value
        against the asked one; ``default``: the default has changed since, and the run keeps its value; ``added``: the
        option is newer than the run; ``invalid``: the stored value cannot be used any more; ``unknown``: the stored
        option does not exist any more.
    :ivar stored: the stored value, None if there is none.
    :ivar asked: the asked value; for ``default`` and ``added`` the default of new runs.
    :ivar effective: the value that is used.
    :ivar why: the reason, for people.
    """

    path: str
    kind: Literal["applied", "kept", "default", "added", "invalid", "unknown"]
    stored: object
    asked: object
    effective: object
    why: str = ""

    @property
    def text(self) -> str:
        """What happens to the value, such as ``5e-05 -> 3e-05``."""
        effective, asked = show(self.effective), show(self.asked)
        if self.kind == "applied":
            return f"{show(self.stored)} -> {effective}"
        if self.kind == "kept":
            return f"{effective} kept, {asked} asked for"
        if self.kind == "default":
            return f"{effective} kept, new runs start with {asked}"
        if self.kind == "added":
            return f"{effective}, new runs start with {asked}"
        if self.kind == "invalid":
            return f"{quote(self.stored)} -> {effective}"
        return f"{quote(self.stored)} left out"


@dataclass(frozen=True)
class ResumeResult(Generic[T]):
    """The options of a resumed run.

    :ivar effective: what the run is trained with, and what is to be stored from now on.
    :ivar changes: what differs from what was stored or asked for.
    """

    effective: T
    changes: tuple[Change, ...]

    def describe(self, run_name: str, iteration: int, session: int, also: Sequence[Change] = ()) -> str:
        """The lines shown when the run goes on; the first alone if nothing differs.

        :param run_name: name of the run.
        :param iteration: completed iterations.
        :param session: number of the session that begins.
        :param also: changes of things that are no options, such as the batch size.
        """
        names = Names(self.effective)
        rows = [(names.bare(change.path), change.text, change.why) for change in (*also, *self.changes)]
        width = max((len(name) for name, _, _ in rows), default=0)
        lines = [f"resuming {run_name} at iteration {iteration:,} (session {session})"]
        lines += [f"  {name:<{width}}   {text}" + (f"   ({why})" if why else "") for name, text, why in rows]
        return "\n".join(lines)


def to_record(options: Options) -> dict[str, Any]:
    """What to store of a run's options: JSON values only.

    The defaults of today are stored too, so that a later version can say which of them it has changed.
    """
    records = list(option_records(options))
    return {
        "format": _FORMAT,
        "values": {record.path: value_at(options, record.path) for record in records},
        "defaults": {record.path: record.default for record in records},
    }


def resume(stored: Mapping[str, Any], asked: T, explicitly_set: Collection[str]) -> ResumeResult[T]:
    """What a run goes on with.

    :param stored: what the run was made with: a record of :func:`to_record`, or values by dotted path, by bare name, or
        nested by section.
    :param asked: the options asked for now.
    :param explicitly_set: the paths among them that the user named, as in
        :attr:`~ostinato.config.ReadOptions.explicitly_set`.
    :raises ConfigError: if the effective values make no sense together, or nothing can stand in for a stored value.
    """
    names = Names(asked)
    stored_values, stored_defaults, unknown = _unpack(stored, names)
    decisions = [
        _decide(record, stored_values, stored_defaults, value_at(asked, path), path in explicitly_set)
        for path, record in names.records.items()
    ]
    model: type[T] = type(asked)
    effective: T = _construct(model, {path: value for path, (value, _) in zip(names.records, decisions, strict=True)})
    check_together(effective, "the options of this run")
    changes = [change for _, change in decisions if change is not None]
    changes += [
        Change(name, "unknown", value, None, None, "there is no such option any more") for name, value in unknown
    ]
    order = ("applied", "kept", "invalid", "added", "default", "unknown")
    return ResumeResult(effective, tuple(sorted(changes, key=lambda change: order.index(change.kind))))


def _decide(
    record: OptionRecord, values: Mapping[str, Any], defaults: Mapping[str, Any], asked: object, explicit: bool
) -> tuple[object, Change | None]:
    """The value a run goes on with, and what there is to say about it."""
    path = record.path
    # An option left open (a seed, say) asks for nothing.
    explicit = explicit and not (record.nullable and asked is None)
    if path in values:
        try:
            old = to_value(record, values[path], stored=True)
        except ValueRefused as refused:
            if not record.replaceable:
                raise ConfigError(
                    f"This run was made with {path} = {quote(values[path])}, which {refused}.",
                    advice="It cannot be continued with this version of Ostinato.",
                    path=path,
                ) from None
            value = asked if explicit else record.default
            return value, Change(path, "invalid", values[path], asked, value, f"the stored value {refused}")
        known = True
    else:
        old, known = record.before, False
    if explicit and not same(record, asked, old):
        if not record.fixed:
            return asked, Change(path, "applied", old, asked, asked, "updatable, applied")
        why = f"fixed: {record.why_fixed}; start a new run to change it"
        return old, Change(path, "kept", old, asked, old, why)
    if explicit or same(record, old, record.default):
        return old, None
    if not known:
        why = "the option is newer than this run, which was made like this"
        return old, Change(path, "added", None, record.default, old, why)
    if path in defaults and not same(record, defaults[path], record.default):
        why = "the default has changed since this run was made"
        return old, Change(path, "default", old, record.default, old, why)
    return old, None


def _unpack(
    stored: Mapping[str, Any], names: Names
) -> tuple[dict[str, Any], Mapping[str, Any], list[tuple[str, object]]]:
    """Values by path, defaults of their time by path, and names that mean nothing any more."""
    defaults: Mapping[str, Any] = {}
    if isinstance(stored.get("values"), Mapping):
        if stored.get("format") != _FORMAT:
            raise ConfigError(
                f"The options stored with this run have format {quote(stored.get('format'))}, not {_FORMAT}.",
                advice="The run was probably made with a newer Ostinato; use that one.",
            )
        defaults = stored["defaults"] if isinstance(stored.get("defaults"), Mapping) else {}
        stored = stored["values"]
    flat: dict[str, Any] = {}
    for name, value in stored.items():
        if name in names.sections and isinstance(value, Mapping):
            flat.update({f"{name}.{inner}": inner_value for inner, inner_value in value.items()})
        else:
            flat[name] = value
    values: dict[str, Any] = {}
    unknown: list[tuple[str, object]] = []
    for name, value in flat.items():
        try:
            values[names.find(name)] = value
        except NameRefused:
            unknown.append((name, value))
    return values, defaults, unknown


def _construct(model: type[T], values: Mapping[str, object]) -> T:
    """Options from values of the right types, without their ranges: an old run may lie outside of today's."""
    below = sections(model)
    parts: dict[str, Any] = {path: value for path, value in values.items() if "." not in path}
    for name, section in below.items():
        inner = {path.partition(".")[2]: value for path, value in values.items() if path.startswith(f"{name}.")}
        parts[name] = _construct(section, inner)
    return model.model_construct(**parts)
