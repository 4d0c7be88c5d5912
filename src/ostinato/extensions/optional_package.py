"""Packages that not everybody needs, imported where they are used."""

from __future__ import annotations

import importlib
from typing import Any

from ostinato.errors import MissingPackageError


def import_optional(module: str, needed_for: str, package: str | None = None) -> Any:
    """A module of a package that Ostinato does not install by itself.

    :param needed_for: who needs it; for the message.
    :param package: what to install, where it is called otherwise than the first part of the module's name.
    :raises MissingPackageError: when it is not installed.
    """
    top = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != top:
            raise  # it is there, and something that it needs itself is not: its own message says more
        package = package or top
        raise MissingPackageError(
            f"{needed_for} needs the package {package}, which is not installed.",
            advice=f"Install it with: pip install {package}",
            package=package,
            needed_for=needed_for,
        ) from error
