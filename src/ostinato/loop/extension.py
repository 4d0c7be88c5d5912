"""Extensions: what is done besides the update."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ostinato.errors import ArgumentTypeError

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView

PRIORITY_WRITER = 300
"""Puts values into the observation: an evaluator."""
PRIORITY_EDITOR = 200
"""Changes values in the observation."""
PRIORITY_READER = 100
"""Only reads it: a log, a plot. The default."""
PRIORITY_SNAPSHOT = -100
"""From here down an extension is *late*: it runs after all triggers of the iteration were asked, the stop trigger
included, so that what it saves is the state after this iteration."""


class Extension:
    """A convenient base for extensions; any callable that takes the trainer is one as well.

    Hooks that an extension may also have, used only where they exist: ``restore(trainer)``, the first act of a run,
    before anything is initialized; ``state_dict()`` and ``load_state_dict(state)``.
    """

    trigger: Any = (1, "iteration")
    """When it runs, unless ``Trainer.extend`` is told otherwise; ``None``: never."""
    priority: int = PRIORITY_READER
    """High runs first."""
    name: str | None = None
    """Its name in the trainer; by default :attr:`default_name`."""
    finalizes_last: bool = False
    """Whether :meth:`finalize` waits for that of all other extensions, whatever the priority: for logs, which are to
    hold what the others say at their end."""

    @property
    def default_name(self) -> str:
        """The name of the class."""
        return type(self).__name__

    def initialize(self, trainer: TrainerView) -> None:
        """Called once before the first update, after a saved state was loaded. Open files here."""

    def __call__(self, trainer: TrainerView) -> Any:
        """Called when the trigger fires."""
        raise NotImplementedError(f"{type(self).__name__} must say what it does: override __call__.")

    def on_error(self, trainer: TrainerView, error: BaseException, traceback: TracebackType | None) -> None:
        """Called when the run fails, before :meth:`finalize`."""

    def finalize(self, trainer: TrainerView) -> None:
        """Called exactly once at the end of the run if :meth:`initialize` returned, in the order of the priorities.
        Close files here."""


def make_extension(
    function: Callable[[Any], Any] | None = None,
    *,
    trigger: Any = (1, "iteration"),
    default_name: str | None = None,
    priority: int = PRIORITY_READER,
    initializer: Callable[[Any], Any] | None = None,
    finalizer: Callable[[Any], Any] | None = None,
    on_error: Callable[[Any, BaseException, TracebackType | None], Any] | None = None,
) -> Any:
    """Give a function the attributes of an extension; with or without parentheses.

    ::

        @make_extension(trigger=(1, "epoch"))
        def say_hello(trainer):
            print(trainer.updater.state.epoch)

    :param function: what is decorated when no parentheses are used.
    :param trigger: when it runs by default.
    :param default_name: its name; by default the function's.
    :param priority: high runs first.
    :param initializer: called with the trainer before the first update.
    :param finalizer: called with the trainer at the end.
    :param on_error: called with trainer, exception and traceback when the run fails.
    :raises ArgumentTypeError: when what is decorated, or a hook, cannot be called.
    """

    def decorate(function: Any) -> Any:
        if not callable(function):
            raise ArgumentTypeError(f"An extension must be callable, and {function!r} is not.", value=function)
        attributes: dict[str, Any] = {
            "trigger": trigger,
            "default_name": default_name or getattr(function, "__name__", type(function).__name__),
            "priority": priority,
        }
        hooks = {"initialize": initializer, "finalize": finalizer, "on_error": on_error}
        for name, hook in hooks.items():
            if hook is not None and not callable(hook):
                raise ArgumentTypeError(
                    f"The {name} of an extension must be a function, and {hook!r} is not.", name=name, value=hook
                )
        attributes.update({name: hook for name, hook in hooks.items() if hook is not None})
        try:
            for name, value in attributes.items():
                setattr(function, name, value)
        except AttributeError:  # a bound method or a builtin takes no attributes
            return _Wrapped(function, attributes)
        return function

    return decorate if function is None else decorate(function)


class _Wrapped:
    """Carries the attributes of an extension for a callable that takes none."""

    def __init__(self, function: Callable[[Any], Any], attributes: dict[str, Any]) -> None:
        self._function = function
        self.__dict__.update(attributes)

    def __call__(self, trainer: TrainerView) -> Any:
        return self._function(trainer)
