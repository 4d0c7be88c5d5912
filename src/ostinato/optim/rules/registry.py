"""Optimizers by name."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.optim.nearest_names import did_you_mean
from ostinato.optim.rules.optimizer import Optimizer

_CLASSES: dict[str, type[Optimizer]] = {}

Class = TypeVar("Class", bound="type[Optimizer]")


def register(cls: Class) -> Class:
    """Make an optimizer known by the lower-cased ``name`` of its class, or by the class' own where it has none.

    A name that is taken goes to the later class, with a UserWarning.
    """
    if not (isinstance(cls, type) and issubclass(cls, Optimizer)):
        raise ArgumentTypeError(
            f"{cls!r} is no class of optimizers.", advice="Derive it from ostinato.optim.rules.Optimizer."
        )
    name = vars(cls).get("name", cls.__name__).lower()
    cls.name = name
    known = _CLASSES.get(name)
    if known is not None and known is not cls:
        warnings.warn(
            f"The optimizer name {name!r} now means {cls.__module__}.{cls.__qualname__} and no longer "
            f"{known.__module__}.{known.__qualname__}.",
            UserWarning,
            stacklevel=2,
        )
    _CLASSES[name] = cls
    return cls


def registered_names() -> tuple[str, ...]:
    """The names that :func:`create` knows, in order."""
    return tuple(sorted(_CLASSES))


def create(name: str, **arguments: Any) -> Optimizer:
    """Make an optimizer by its name, whatever its case.

    ``torch.`` and the name of a class of :mod:`torch.optim`, such as ``"torch.AdamW"``, makes a
    :class:`~ostinato.optim.rules.torch_optimizer.TorchOptimizer`.

    :raises ArgumentValueError: there is no such optimizer.
    :raises ArgumentTypeError: a keyword is unknown to it.
    :raises DeprecatedArgumentError: a keyword has another name today.
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(
            f"An optimizer is made by its name, and {name!r} is none.",
            advice="Write 'sgd' or 'torch.AdamW'. A class or an object of torch.optim goes into TorchOptimizer(...), "
            "or into a ParameterTrainer as it is.",
            optimizer=name,
        )
    if name.lower().startswith("torch."):
        from ostinato.optim.rules.torch_optimizer import TorchOptimizer, torch_class

        return TorchOptimizer(torch_class(name), **arguments)
    cls = _CLASSES.get(name.lower())
    if cls is None:
        raise ArgumentValueError(
            f"There is no optimizer called {name!r}.", advice=did_you_mean(name, _CLASSES), optimizer=name
        )
    return cls(**arguments)
