"""How an option is declared, and what can be asked about it.

An option is a field of a pydantic model, made by :func:`option`. The annotation gives its type (and, as a ``Literal``,
its choices); :func:`option` adds what people need: range, group, whether a resumed run may change it, and help.
Everything else in this room (reading, writing, comparing, explaining) works on the :class:`OptionRecord` of each field.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

Kind = Literal["bool", "int", "float", "str", "list"]

_EXTRA = "option"


@dataclass(frozen=True)
class OptionRecord:
    """Everything there is to know about one option.

    :ivar path: dotted name in the whole set of options, such as ``loss.eye_multiplier``.
    :ivar kind: ``bool``, ``int``, ``float``, ``str`` or ``list`` (of text).
    :ivar nullable: True when the option may be left without a value (``null``).
    :ivar ge: smallest value that is accepted, or None; ``gt``: the value must be above it.
    :ivar le: largest value that is accepted, or None; ``lt``: the value must be below it.
    :ivar usual: ends of the usual range, inside the accepted one, or None. A value outside is accepted with a remark.
    :ivar step: distance of two neighbouring settings on a slider, or None. Not enforced.
    :ivar choices: the values that are accepted, or an empty tuple.
    :ivar not_built: names that Faceswap knows and Ostinato does not have yet; they get a message of their own.
    :ivar fixed: True when the value a run was made with cannot change any more.
    :ivar why_fixed: the reason, as the end of the sentence "fixed: ...".
    :ivar before: the value of runs that were made before the option existed; ``default`` when nothing else is known.
    :ivar replaceable: False when a run cannot go on with another value than its own, even if that is of no use.
    """

    path: str
    kind: Kind
    default: Any
    group: str
    help: str
    nullable: bool = False
    fixed: bool = False
    why_fixed: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    usual: tuple[float, float] | None = None
    step: float | None = None
    choices: tuple[str, ...] = ()
    not_built: tuple[str, ...] = ()
    pattern: str | None = None
    expects: str = ""
    before: Any = None
    replaceable: bool = True

    @property
    def section(self) -> str:
        """The part of the path before the last dot; empty for an option at the top."""
        return self.path.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The part of the path after the last dot."""
        return self.path.rpartition(".")[2]

    @property
    def allowed(self) -> str:
        """What is accepted, in words: a range, the choices, or the kind of value."""
        if self.choices:
            words = f"one of {', '.join(self.choices)}"
            return f"any of {', '.join(self.choices)}" if self.kind == "list" else words
        if self.expects:
            words = self.expects
        elif self.kind == "bool":
            words = "true or false"
        elif self.kind in ("int", "float"):
            words = " ".join(
                part for part in ("a whole number" if self.kind == "int" else "a number", self._range) if part
            )
        else:
            words = "text"
        return f"{words}, or null" if self.nullable else words

    @property
    def _range(self) -> str:
        low = (
            f"from {show(self.ge)}" if self.ge is not None else f"above {show(self.gt)}" if self.gt is not None else ""
        )
        high = show(self.le) if self.le is not None else f"below {show(self.lt)}" if self.lt is not None else ""
        if not low:
            return f"up to {high}" if self.le is not None else high
        return f"{low} to {high}" if high else low


def show(value: object) -> str:
    """A value as it is written in messages and files: ``100`` for 100.0, ``5e-05``, ``true``, ``none``, ``a, b``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(str(item) for item in value) or "(empty)"
    return str(value)


def option(
    default: Any,
    *,
    help: str,
    group: str,
    fixed: bool = False,
    why_fixed: str = "",
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    usual: tuple[float, float] | None = None,
    step: float | None = None,
    not_built: Sequence[str] = (),
    pattern: str | None = None,
    expects: str = "",
    before: Any = None,
    replaceable: bool = True,
) -> Any:
    """A field of an :class:`Options` model.

    Choices are declared by the annotation: ``Literal["face", "head"]``, or ``list[Literal[...]]`` for several.

    :param default: the value of a new run; must itself be allowed.
    :param help: plain words for someone who has never trained a model, with when *not* to use it.
    :param group: the heading under which people find it.
    :param fixed: the value a run was made with stays; a reason, ``why_fixed``, is then required.
    :param why_fixed: end of the sentence "fixed: ...", such as ``it decides the shape of the model``.
    :param ge: smallest accepted value (``gt``: the value must be above). ``le``, ``lt``: the same at the other end.
    :param usual: the usual range; outside of it the value is accepted, with a remark.
    :param step: step of a slider; not enforced.
    :param not_built: names Faceswap knows and Ostinato does not have yet.
    :param pattern: regular expression that text must match whole; ``expects`` says the same in words.
    :param before: value of runs made before the option existed, when it is not the default.
    :param replaceable: False if a run cannot go on with another value than its own, even if that is of no use here.
    """
    record: dict[str, Any] = {
        "help": " ".join(help.split()),
        "group": group,
        "fixed": fixed,
        "why_fixed": why_fixed,
        "ge": ge,
        "gt": gt,
        "le": le,
        "lt": lt,
        "usual": usual,
        "step": step,
        "not_built": tuple(not_built),
        "pattern": pattern,
        "expects": expects,
        "before": before,
        "replaceable": replaceable,
    }
    return Field(
        default,
        description=record["help"],
        json_schema_extra={_EXTRA: record},
        ge=ge,
        gt=gt,
        le=le,
        lt=lt,
        pattern=None if pattern is None else rf"^(?:{pattern})$",
    )


class Options(BaseModel):
    """Base of all option models: immutable, strict about types and names, checked when it is declared.

    A field is either an option (made by :func:`option`) or another ``Options`` model, which makes a section.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)

    ini_sections: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """For each section of a Faceswap ini file: the sections here in which its options are found."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for name, field in cls.model_fields.items():
            if _section_model(field) is None:
                _check_declaration(cls.__name__, _record(name, field))

    def conflicts(self) -> list[Conflict]:
        """Values that are allowed one by one and make no sense together; sections are asked too."""
        return [
            Conflict(tuple(f"{name}.{path}" for path in conflict.paths), conflict.message)
            for name, section in self
            if isinstance(section, Options)
            for conflict in section.conflicts()
        ]

    def idle(self) -> list[Conflict]:
        """Options whose value has no effect because of another one; the first path names the idle option."""
        return [
            Conflict(tuple(f"{name}.{path}" for path in remark.paths), remark.message)
            for name, section in self
            if isinstance(section, Options)
            for remark in section.idle()
        ]


@dataclass(frozen=True)
class Conflict:
    """Options that pull against each other.

    :ivar paths: the dotted paths of the options.
    :ivar message: what does not fit, and what to do.
    """

    paths: tuple[str, ...]
    message: str


def option_records(model: type[Options] | Options, prefix: str = "") -> Iterator[OptionRecord]:
    """The record of every option of a model, in order of declaration, sections included.

    :param model: an option model or an instance of one.
    :param prefix: put before every path, with a dot.
    """
    cls = model if isinstance(model, type) else type(model)
    for name, field in cls.model_fields.items():
        path = f"{prefix}.{name}" if prefix else name
        section = _section_model(field)
        if section is not None:
            yield from option_records(section, path)
        else:
            yield _record(path, field)


def sections(model: type[Options] | Options) -> dict[str, type[Options]]:
    """The section models of an option model by name, in order of declaration."""
    cls = model if isinstance(model, type) else type(model)
    found = ((name, _section_model(field)) for name, field in cls.model_fields.items())
    return {name: section for name, section in found if section is not None}


def value_at(options: Options, path: str) -> Any:
    """The value of the option with this dotted path."""
    value: Any = options
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _section_model(field: FieldInfo) -> type[Options] | None:
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, Options) else None


def _record(path: str, field: FieldInfo) -> OptionRecord:
    extra = field.json_schema_extra
    if not isinstance(extra, dict) or _EXTRA not in extra:
        raise TypeError(f"the field {path!r} of an option model is not declared with option()")
    kind, choices, nullable = _kind(path, field.annotation)
    details = dict(cast("dict[str, Any]", extra[_EXTRA]))
    if details["before"] is None:
        details["before"] = field.default
    return OptionRecord(path=path, kind=kind, default=field.default, choices=choices, nullable=nullable, **details)


def _kind(path: str, annotation: Any) -> tuple[Kind, tuple[str, ...], bool]:
    """The kind, the choices and whether null is allowed, from the annotation of a field."""
    nullable = False
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        nullable = len(members) < len(get_args(annotation))
        annotation = members[0] if len(members) == 1 else annotation
    if get_origin(annotation) is Literal:
        return "str", get_args(annotation), nullable
    if get_origin(annotation) is list:
        (item,) = get_args(annotation)
        return "list", get_args(item) if get_origin(item) is Literal else (), nullable
    kinds: dict[Any, Kind] = {bool: "bool", int: "int", float: "float", str: "str"}
    if annotation not in kinds:
        raise TypeError(f"the option {path!r} has the annotation {annotation}, which no file could hold")
    return kinds[annotation], (), nullable


def _check_declaration(owner: str, record: OptionRecord) -> None:
    """Refuse a declaration that contradicts itself: a programmer's mistake, found on import."""
    where = f"{owner}.{record.path}"
    lowered = [choice.lower() for choice in record.choices]
    wrong = {
        "needs help and a group": not record.help or not record.group,
        "is fixed and gives no reason": record.fixed and not record.why_fixed,
        "gives a reason for being fixed and is not": not record.fixed and bool(record.why_fixed),
        "has choices that differ in case only": len(set(lowered)) < len(lowered),
        "calls a choice not built": bool(set(lowered) & set(record.not_built)),
        "has a range and is no number": record.kind not in ("int", "float")
        and any(limit is not None for limit in (record.ge, record.gt, record.le, record.lt, record.usual, record.step)),
        "has a pattern that its default does not match": record.pattern is not None
        and (not isinstance(record.default, str) or re.fullmatch(record.pattern, record.default) is None),
    }
    for fault, found in wrong.items():
        if found:
            raise TypeError(f"the option {where} {fault}")
