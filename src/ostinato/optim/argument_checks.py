"""Checks of arguments: of rules, schedules, stores and trainers."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError, ContractError


def require_number(name: str, value: Any) -> float:
    """Refuse anything but a number; a scalar of numpy or torch is one.

    :raises ArgumentTypeError: ``value`` is none.
    """
    try:
        if not isinstance(value, (str, bytes, bytearray)):
            return float(value)
    except (TypeError, ValueError, RuntimeError):
        pass  # several elements, or nothing that could be a number
    raise ArgumentTypeError(f"{name} is a number, not {value!r}.", advice="Give a number.", argument=name)


def require_finite(name: str, value: Any) -> float:
    """Refuse anything but a finite number.

    :raises ArgumentTypeError: ``value`` is no number.
    :raises ArgumentValueError: it is a NaN or an infinity.
    """
    number = require_number(name, value)
    if not math.isfinite(number):
        raise ArgumentValueError(f"{name} is {value}.", advice="Give a finite number.", argument=name)
    return number


def require_fused(name: str, use_fused_step: bool, multi_precision: bool = False) -> None:
    """Refuse a lazy update that MXNet has no kernel for.

    :raises ContractError: lazily, but not by the fused step, or with master copies.
    """
    if not use_fused_step:
        raise ContractError(
            f"{name} updates rows lazily only with its fused step, and use_fused_step is False.",
            advice="Leave one of lazy_update and use_fused_step=False out.",
        )
    if multi_precision:
        raise ContractError(
            f"{name} does not update rows lazily with float32 master copies.",
            advice="Leave one of lazy_update and multi_precision out.",
        )


def require_fraction(name: str, value: float) -> float:
    """Refuse anything but a number from 0 to below 1.

    :raises ArgumentTypeError: ``value`` is no number.
    :raises ArgumentValueError: it is another one.
    """
    number = require_number(name, value)
    if not 0 <= number < 1:
        raise ArgumentValueError(f"{name} is {value}.", advice=f"Give a {name} of at least 0 and below 1.")
    return number


def require_not_negative(name: str, value: float) -> float:
    """Refuse a negative or infinite value.

    :raises ArgumentTypeError: ``value`` is no number.
    :raises ArgumentValueError: it is below 0, or not finite.
    """
    number = require_number(name, value)
    if not 0 <= number < math.inf:
        raise ArgumentValueError(f"{name} is {value}.", advice=f"Give a finite {name} of at least 0.")
    return number


def require_flag(name: str, value: Any) -> bool:
    """Refuse anything but True and False.

    :raises ArgumentTypeError: ``value`` is something else.
    """
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"{name} is True or False, not {value!r}.", advice=f"Write {name}=True.", argument=name)
    return value


def require_text(name: str, value: Any) -> str:
    """Refuse anything but text.

    :raises ArgumentTypeError: ``value`` is something else.
    """
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} is text, not {value!r}.", advice="Give a name in quotes.", argument=name)
    return value


def require_mapping(name: str, value: Any, advice: str) -> Mapping[Any, Any]:
    """Refuse anything but a mapping.

    :raises ArgumentTypeError: ``value`` is something else.
    """
    if not isinstance(value, Mapping):
        raise ArgumentTypeError(f"{name} is a mapping, not {type(value).__name__}.", advice=advice, argument=name)
    return value


def require_tensor(name: str, value: Any) -> Tensor:
    """Refuse anything but a tensor.

    :raises ArgumentTypeError: ``value`` is something else.
    """
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(
            f"{name} is a tensor, not {type(value).__name__}.", advice="Use torch.as_tensor().", argument=name
        )
    return value


def require_path(name: str, value: Any) -> Path:
    """Refuse anything but the path of a file.

    :raises ArgumentTypeError: ``value`` is something else.
    """
    if not isinstance(value, (str, os.PathLike)):
        raise ArgumentTypeError(
            f"{name} is the path of a file, not {value!r}.", advice="Give its name as text.", argument=name
        )
    return Path(value)
