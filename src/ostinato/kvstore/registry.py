"""Stores by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore.store import Store
from ostinato.optim.argument_checks import require_text
from ostinato.optim.nearest_names import did_you_mean

StoreFactory: TypeAlias = Callable[[str, Any], Store]
"""Makes a store from its lower-cased name and the group of processes to share it with (None: that of this process)."""

_built_in: dict[str, StoreFactory] = {}
_plug_ins: dict[str, StoreFactory] = {}


def register_built_in(name: str, factory: StoreFactory) -> None:
    """Enter one of the stores of this package."""
    _built_in[name.lower()] = factory


def register(store: type[Store], name: str | None = None) -> type[Store]:
    """Enter a plug-in store under its lower-cased class name, or the name given; usable as a class decorator.

    The class is called without arguments. A name that is taken is taken over, with a UserWarning.

    :raises ArgumentTypeError: the class is not a :class:`Store`.
    """
    if not (isinstance(store, type) and issubclass(store, Store)):
        raise ArgumentTypeError(f"{store!r} is not a class derived from Store.", advice="Derive it from Store.")
    name = require_text("The name of a store", store.__name__ if name is None else name).lower()
    if name in _plug_ins or name in _built_in:
        warnings.warn(
            f"The store name {name!r} was taken; from now on it means {store.__module__}.{store.__qualname__}.",
            UserWarning,
            stacklevel=2,
        )
    _plug_ins[name] = lambda _name, _group: store()
    return store


def is_plug_in(name: str) -> bool:
    """True when a store of this name comes from a plug-in."""
    return name.lower() in _plug_ins


def canonical_name(name: str) -> str:
    """Give the name that a store is found by: lower case, with the older names of the built-in stores resolved.

    Names with ``device`` or ``nccl`` in them mean ``device``, those that begin with ``local`` mean ``local``, and of
    the names with ``dist`` those with ``_async`` mean ``dist_async``, those with ``device`` ``dist_device_sync``, the
    others ``dist_sync``.

    :raises ArgumentValueError: there is no such store; the nearest names are suggested.
    """
    lowered = name.lower()
    if lowered in _plug_ins or lowered in _built_in:
        return lowered
    if "dist" in lowered:
        if "_async" in lowered:
            return "dist_async"
        return "dist_device_sync" if "device" in lowered else "dist_sync"
    if "device" in lowered or "nccl" in lowered:
        return "device"
    if lowered.startswith("local"):
        return "local"
    raise ArgumentValueError(
        f"There is no store named {name!r}.", advice=did_you_mean(name, {*_built_in, *_plug_ins}), name=name
    )


def create(name: str = "local", group: Any = None) -> Store:
    """Make a store.

    :param name: ``local``, ``device``, ``dist_sync``, ``dist_device_sync``, ``dist_async`` or the name of a plug-in, in
        any case.
    :param group: the processes that share it (:class:`ostinato.dist.Group`); None means those of this process.
    :raises ArgumentTypeError: the name is not text.
    :raises ArgumentValueError: there is no such store.
    """
    found = canonical_name(require_text("The name of a store", name))
    factory = _plug_ins.get(found) or _built_in[found]
    return factory(found, group)
