"""What the trainer knows of one registered extension."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.loop.extension import PRIORITY_READER, PRIORITY_SNAPSHOT
from ostinato.loop.protocols import ExtensionFunction, TriggerFunction

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

    def hook(self, name: str) -> Callable[..., Any] | None:
        """A method of the extension, if it is there and can be called."""
        return callable_attribute(self.extension, name)

    def describe(self) -> str:
        """The settings in one line; ranks compare it, so it must not contain addresses."""
        trigger = self.trigger
        # A plain callable's repr holds an address, which differs from process to process.
        shown = getattr(trigger, "__qualname__", None) or (
            repr(trigger) if type(trigger).__repr__ is not object.__repr__ else type(trigger).__qualname__
        )
        return f"{self.name} (priority {self.priority}, trigger {shown}, ranks {self.ranks})"


def callable_attribute(owner: Any, name: str) -> Callable[..., Any] | None:
    """An attribute, if it is there and can be called."""
    attribute = getattr(owner, name, None)
    return attribute if callable(attribute) else None


def wanted_name(extension: Any, name: Any) -> str:
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
    if not candidate or any(letter in "/\\" or ord(letter) < 32 or ord(letter) == 127 for letter in candidate):
        raise ArgumentValueError(
            f"{candidate!r} cannot be the name of an extension.",
            advice="Use a non-empty text without slashes, backslashes and control characters.",
            name=candidate,
        )
    return candidate


def setting(extension: Any, name: str, argument: Any, default: Any) -> Any:
    """A setting: the argument, or the attribute of the extension if it has one, or the default."""
    return argument if argument is not None else getattr(extension, name, default)


def check_priority(priority: Any) -> float:
    """The priority, if it is a number.

    :raises ArgumentTypeError: otherwise.
    """
    if priority is None:
        return PRIORITY_READER
    if isinstance(priority, bool) or not isinstance(priority, int | float):
        raise ArgumentTypeError(f"A priority must be a number, not {priority!r}.", value=priority)
    return priority
