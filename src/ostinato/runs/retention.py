"""What is kept: a value and a pure function over what the manifests say. No disk is touched here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.runs.manifest import Manifest

_KEEP_ALL = -1


@dataclass(frozen=True)
class RetentionPolicy:
    """How many generations of each kind are kept. A generation stays while at least one rule wants it.

    :param latest: the newest ones, whatever made them, or -1 for all. With 1, a newest one that is damaged later has
        none before it.
    :param snapshots: those made by the snapshot interval; at least 1, or -1 for all.
    :param best: those that were the best so far, newest first, of the newest loss definition that has one.
    :param session_ends: the newest ones that ended a session, by the end of training, by request or by a signal.
    :param errors: the newest states in which an error ended the run.
    """

    latest: int = 2
    snapshots: int = _KEEP_ALL
    best: int = 1
    session_ends: int = 1
    errors: int = 1

    def __post_init__(self) -> None:
        for name in ("latest", "snapshots", "best", "session_ends", "errors"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ArgumentTypeError(f"{name} must be a whole number, not {value!r}.")
        if self.latest < 1 and self.latest != _KEEP_ALL:
            raise ArgumentValueError(f"latest is {self.latest}; it must be at least 1, or -1 to keep all.")
        if self.snapshots != _KEEP_ALL and self.snapshots < 1:
            raise ArgumentValueError(f"snapshots is {self.snapshots}; it must be at least 1, or -1 to keep all.")
        for name in ("best", "session_ends", "errors"):
            if getattr(self, name) < 0:
                raise ArgumentValueError(f"{name} is {getattr(self, name)}; it must be at least 0.")


def policy_of(generations: Sequence[Manifest]) -> RetentionPolicy:
    """The policy under which the newest generation was saved; the default one where that cannot be told."""
    newest = max(generations, key=lambda g: g.name, default=None)
    try:
        return RetentionPolicy(**(newest.policy if newest else {}))
    except (TypeError, ArgumentValueError):
        return RetentionPolicy()


def why_kept(generations: Sequence[Manifest], policy: RetentionPolicy) -> dict[str, tuple[str, ...]]:
    """For every generation the reasons that keep it now; an empty tuple means it may go.

    :param generations: in any order.
    :return: by the name of the generation, oldest first.
    """
    ordered = sorted(generations, key=lambda g: g.name)
    regular = _without_superseded([g for g in ordered if not g.name.error])
    kept: dict[str, list[str]] = {g.generation: [] for g in ordered}

    def keep(reason: str, chosen: Sequence[Manifest]) -> None:
        for generation in chosen:
            kept[generation.generation].append(reason)

    keep("latest", _newest(regular, policy.latest))
    keep("snapshot", _newest([g for g in regular if "snapshot" in g.reasons], policy.snapshots))
    keep("best", _best(regular, policy.best))
    ends = [g for g in regular if "session_end" in g.reasons or "signal" in g.reasons]
    keep("session_end", _newest(ends, policy.session_ends))
    keep("error", _newest([g for g in ordered if g.name.error], policy.errors))
    return {name: tuple(reasons) for name, reasons in kept.items()}


def to_delete(generations: Sequence[Manifest], policy: RetentionPolicy) -> list[str]:
    """The names of the generations that no rule of ``policy`` wants, oldest first."""
    return [name for name, reasons in why_kept(generations, policy).items() if not reasons]


def _newest(generations: Sequence[Manifest], number: int) -> Sequence[Manifest]:
    if number == _KEEP_ALL:
        return generations
    return generations[-number:] if number else ()


def _without_superseded(generations: Sequence[Manifest]) -> list[Manifest]:
    """Of several generations of one iteration the last one; it was written to take the place of the others."""
    return list({g.iteration: g for g in generations}.values())


def _best(generations: Sequence[Manifest], number: int) -> Sequence[Manifest]:
    marked = [g for g in generations if "best" in g.reasons and g.average_loss is not None]
    if not marked or not number:
        return ()
    # Numbers of another loss definition cannot be compared: those of the newest definition that has one count. Each
    # new best beats all before it, whichever direction is better, so the newest ones are the best ones.
    definition = marked[-1].loss_definition
    return _newest([g for g in marked if g.loss_definition == definition], number)
