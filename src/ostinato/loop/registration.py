"""What the trainer knows of its extensions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.loop.extension import PRIORITY_READER, PRIORITY_SNAPSHOT, Extension
from ostinato.loop.inner_trigger import InnerTrigger, inner_triggers
from ostinato.loop.protocols import ExtensionFunction, TriggerFunction
from ostinato.loop.triggers.get_trigger import get_trigger
from ostinato.loop.triggers.limit_trigger import LimitTrigger
from ostinato.loop.triggers.parts import shown

RESERVED_NAME = "training"

Ranks = Literal["all", 0]


@dataclass(slots=True, frozen=True, eq=False)
class Registration:
    """One extension with its name and settings."""

    name: str
    extension: ExtensionFunction
    trigger: TriggerFunction
    priority: float
    ranks: Ranks
    call_before_training: bool

    @property
    def is_late(self) -> bool:
        """Whether it runs after all triggers of the iteration were asked."""
        return self.priority <= PRIORITY_SNAPSHOT

    @property
    def finalizes_last(self) -> bool:
        """Whether its end comes after that of all others."""
        return getattr(self.extension, "finalizes_last", False) is True

    @property
    def inner_triggers(self) -> list[InnerTrigger]:
        """The triggers that it asks itself."""
        return inner_triggers(self.extension)

    def hook(self, name: str) -> Callable[..., Any] | None:
        """A method of the extension, if it is there and can be called."""
        return callable_attribute(self.extension, name)

    def describe(self) -> str:
        """The settings in one line; ranks compare it."""
        inside = "".join(f", inside it {describe_trigger(trigger)}" for trigger in self.inner_triggers)
        trigger = describe_trigger(self.trigger)
        return f"{self.name} (priority {self.priority}, trigger {trigger}{inside}, ranks {self.ranks})"


class RegistrationList:
    """The extensions of one trainer, by name, in the order in which they were registered."""

    def __init__(self) -> None:
        self._by_name: dict[str, Registration] = {}

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._by_name.values())

    def in_order(self) -> list[Registration]:
        """From high priority to low; those of equal priority as they were registered."""
        return sorted(self, key=lambda known: -known.priority)

    def add(
        self,
        extension: Any,
        *,
        name: Any,
        trigger: Any,
        priority: Any,
        ranks: Any,
        call_before_training: bool,
        limit: LimitTrigger | None,
    ) -> None:
        """Check the settings of an extension and take it in. See ``Trainer.extend``.

        :param limit: what ends the run, for triggers written as a part of it.
        """
        if not callable(extension):
            raise ArgumentTypeError(
                f"An extension must be callable, and {extension!r} is not.",
                advice="Open it around the run: with ...: trainer.run()."
                if hasattr(extension, "__enter__")
                else "Give a function of the trainer, or an object with __call__.",
                value=extension,
            )
        if isinstance(extension, type) and issubclass(extension, Extension):
            raise ArgumentTypeError(
                f"{extension.__name__} is a class of extensions, not one of them.",
                advice=f"Make one: extend({extension.__name__}(...)).",
                value=extension,
            )
        unique = self._unique(_wanted_name(extension, name))
        if isinstance(extension, Extension) and any(extension is known.extension for known in self):
            raise ArgumentValueError(
                f"The same extension object is already registered as {self.name_of(extension)!r}.",
                advice="Make a second object, or combine the triggers with |.",
                name=unique,
            )
        if ranks not in ("all", 0) or isinstance(ranks, bool):
            raise ArgumentValueError(
                f"ranks must be 'all' or 0, not {ranks!r}.",
                advice="Give 0 for one that only writes, and leave it out for any other.",
                value=ranks,
            )
        self._by_name[unique] = Registration(
            name=unique,
            extension=extension,
            trigger=get_trigger(_setting(extension, "trigger", trigger, (1, "iteration")), limit),
            priority=_check_priority(_setting(extension, "priority", priority, None)),
            ranks=ranks,
            call_before_training=call_before_training,
        )

    def _unique(self, name: str) -> str:
        unique, number = name, 0
        while unique in self._by_name:
            number += 1
            unique = f"{name}_{number}"
        return unique

    def named(self, name: str) -> Registration:
        """The registration of that name.

        :raises ArgumentValueError: when there is none.
        """
        if name not in self._by_name:
            raise ArgumentValueError(
                f"No extension is named {name!r}.",
                advice=f"Registered are: {', '.join(self._by_name) or 'none'}.",
                name=name,
            )
        return self._by_name[name]

    def name_of(self, extension: ExtensionFunction) -> str:
        """The name under which an extension is registered, the first one if there are several.

        :raises ArgumentValueError: when it is not registered.
        """
        for known in self:
            # Equality for bound methods: each access makes a new object.
            if known.extension is extension or known.extension == extension:
                return known.name
        raise ArgumentValueError(
            f"{extension!r} is not registered here.", advice="Register it first: trainer.extend(...).", value=extension
        )


def callable_attribute(owner: Any, name: str) -> Callable[..., Any] | None:
    """An attribute, if it is there and can be called."""
    attribute = getattr(owner, name, None)
    return attribute if callable(attribute) else None


def describe_trigger(trigger: TriggerFunction) -> str:
    """A trigger as text that is the same in every process."""
    # What is left of addresses stands in the texts of functions and of objects without a text of their own.
    return re.sub(r" at 0x[0-9a-fA-F]+", "", shown(trigger))


def _wanted_name(extension: Any, name: Any) -> str:
    """The name an extension asks for: the argument, or its ``name``, ``default_name``, ``__name__``, or its class.

    :raises ArgumentTypeError: when it is no text.
    :raises ArgumentValueError: when it is empty, reserved, or holds a slash, a backslash or a control character: names
        become keys and file names.
    """
    for candidate in (
        name,
        getattr(extension, "name", None),
        getattr(extension, "default_name", None),
        getattr(extension, "__name__", None),
    ):
        if candidate is not None:
            break
    else:
        candidate = type(extension).__name__
    if not isinstance(candidate, str):
        raise ArgumentTypeError(f"The name of an extension must be a text, not {candidate!r}.", name=candidate)
    if candidate == RESERVED_NAME:
        raise ArgumentValueError(
            f"{RESERVED_NAME!r} is the loop's own name and cannot be an extension's.",
            advice="Pass another name to extend().",
            name=candidate,
        )
    if not candidate or any(letter in "/\\" or unicodedata.category(letter) == "Cc" for letter in candidate):
        raise ArgumentValueError(
            f"{candidate!r} cannot be the name of an extension.",
            advice="Use a non-empty text without slashes, backslashes and control characters.",
            name=candidate,
        )
    return candidate


def _setting(extension: Any, name: str, argument: Any, default: Any) -> Any:
    """A setting: the argument, or the attribute of the extension if it has one, or the default."""
    return argument if argument is not None else getattr(extension, name, default)


def _check_priority(priority: Any) -> float:
    """The priority, if it is a number.

    :raises ArgumentTypeError: otherwise.
    :raises ArgumentValueError: for NaN, which has no place in an order.
    """
    if priority is None:
        return PRIORITY_READER
    if isinstance(priority, bool) or not isinstance(priority, int | float):
        raise ArgumentTypeError(f"A priority must be a number, not {priority!r}.", value=priority)
    if priority != priority:
        raise ArgumentValueError("A priority must be a number that can be compared, not NaN.", value=priority)
    return priority
