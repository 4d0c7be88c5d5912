"""The exception classes of Ostinato.

Every error a caller may want to tell apart has a class here. A message answers three questions: what is wrong, with
which value, and what to do next. The facts behind the message are kept as ``fields``, so that no caller parses text.
"""

from __future__ import annotations

from typing import Any


class OstinatoError(Exception):
    """Base of all errors that Ostinato raises on purpose.

    :param what: one or two sentences: what is wrong, and with which value.
    :param advice: what the reader can do next; shown after ``what``. May span lines.
    :param fields: the facts behind the message, also readable as attributes through ``fields``.
    """

    exit_code = 1
    """The exit status of the command line when this error ends it."""

    def __init__(self, what: str, *, advice: str = "", **fields: Any) -> None:
        self.what = what
        self.advice = advice
        self.fields = fields
        super().__init__(f"{what} {advice}".strip() if "\n" not in what + advice else f"{what}\n{advice}".strip())

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes hand errors back by pickle; the default would call the class with the whole message.
        return (_rebuild, (type(self), self.what, self.advice, self.fields))


def _rebuild(cls: type[OstinatoError], what: str, advice: str, fields: dict[str, Any]) -> OstinatoError:
    return cls(what, advice=advice, **fields)


# --- a programmer's mistakes: arguments and calls ----------------------------------------------------------------


class ArgumentValueError(OstinatoError, ValueError):
    """An argument has the right type and a value that is not allowed."""


class ArgumentTypeError(OstinatoError, TypeError):
    """An argument has the wrong type."""


class StateError(OstinatoError, RuntimeError):
    """A call came at the wrong time, or an object is in a state that does not allow it."""


class ContractError(ArgumentValueError, AssertionError):
    """Arguments break a rule of the call or exclude each other. Also an AssertionError, which is what Gluon raises."""


class DeprecatedArgumentError(ArgumentTypeError, DeprecationWarning):
    """An argument has another name today. Also a DeprecationWarning, which is what Gluon raises.

    Fields: ``argument`` and ``replacement``.
    """


class UpdateRefusedError(StateError, UserWarning):
    """A parameter update, or a change to its settings, is refused, and nothing has changed.

    Also a UserWarning, which is what Gluon raises for a stale gradient, for a batch size that a store cannot follow and
    for a rate that a schedule decides.
    """


class MissingPackageError(OstinatoError, ImportError):
    """A package that only some users need is not installed. Fields: ``package``, ``needed_for``."""


# --- a user's mistakes -----------------------------------------------------------------------------------------------


class UsageError(OstinatoError):
    """The command line asks for something that makes no sense."""

    exit_code = 2


class BadInputError(OstinatoError):
    """Something the user gave (a folder, a file, a value) cannot be used."""

    exit_code = 3


class ConfigError(BadInputError):
    """Options are wrong. ``fields["problems"]`` lists every one of them."""


class FaceFileError(BadInputError):
    """A face picture cannot be used. Fields: ``path``, ``reason``."""


class FaceFolderError(BadInputError):
    """A folder of faces cannot be used. Fields: ``folder`` and, where files are to blame, ``files``."""


class ModelMismatchError(BadInputError):
    """A run folder holds another model than the one asked for. Fields: ``found``, ``asked``."""


class DataSetError(BadInputError):
    """A set of training pictures cannot be used. Field: ``path``, and what the message names."""


class RecordError(DataSetError):
    """A RecordIO file, its index or one of its records cannot be used. Fields: ``path``, ``key`` (None: not known),
    ``offset`` (the byte where the record or the damage begins; None: not known) and ``reason``."""


# --- run folders -----------------------------------------------------------------------------------------------------


class RunError(OstinatoError):
    """Base of errors about a run folder. Field: ``folder``."""

    exit_code = 3


class RunLockedError(RunError):
    """Another live process trains in this folder. Fields: ``folder``, ``pid``, ``host``, ``since``."""


class DamagedRunError(RunError, RuntimeError):
    """A run folder holds state, and none of it can be read whole. Fields: ``folder``, ``damage``."""

    exit_code = 4


class SaveError(RunError):
    """A generation could not be committed; the ones before are untouched. Fields: ``folder``, ``iteration``."""

    exit_code = 1


# --- training --------------------------------------------------------------------------------------------------------


class NonFiniteError(OstinatoError, RuntimeError):
    """A number of the training is not finite. Fields: ``kind`` (``loss``, ``grad`` or ``param``), ``names``,
    ``iteration``."""


class NonFiniteLossError(NonFiniteError):
    """A loss is not a finite number. Fields: ``losses`` (name to value), ``iteration``."""


class OutOfMemoryError(OstinatoError, MemoryError):
    """The device has not enough memory for this training step."""


class RankFailedError(OstinatoError):
    """Another rank failed, left or did not come in time, so this one cannot go on. What went wrong is in that rank's
    own error. Fields: ``rank`` (``None`` where nobody can tell) and ``error`` (what it said)."""
