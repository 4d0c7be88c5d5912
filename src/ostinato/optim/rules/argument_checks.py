"""Checks of rules' arguments."""

from __future__ import annotations

from ostinato.errors import ArgumentValueError, ContractError


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

    :raises ArgumentValueError: ``value`` is another one.
    """
    if not 0 <= value < 1:
        raise ArgumentValueError(f"{name} is {value}.", advice=f"Give a {name} of at least 0 and below 1.")
    return float(value)


def require_not_negative(name: str, value: float) -> float:
    """Refuse a negative value.

    :raises ArgumentValueError: ``value`` is below 0.
    """
    if not value >= 0:
        raise ArgumentValueError(f"{name} is {value}.", advice=f"Give a {name} of at least 0.")
    return float(value)
