"""The state of a trainer: its updater, extensions and triggers, as one tree that can be saved."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ostinato.errors import ArgumentValueError, OstinatoError, StateError
from ostinato.loop.protocols import TriggerFunction, Updater
from ostinato.loop.registration import RegistrationList, callable_attribute

_log = logging.getLogger(__name__)

STATE_FORMAT = 1

_ADVICE = "It may be that of something else that had this name. Register it under another one to start fresh."


def trainer_state(
    updater: Updater, registrations: RegistrationList, stop_trigger: TriggerFunction, elapsed_time: float
) -> dict[str, Any]:
    """See ``Trainer.state_dict``."""
    extensions: dict[str, Any] = {}
    triggers: dict[str, Any] = {}
    for known in registrations:
        for owner, states in ((known.extension, extensions), (known.trigger, triggers)):
            save = callable_attribute(owner, "state_dict")
            if save is not None:
                states[known.name] = save()
    save = callable_attribute(stop_trigger, "state_dict")
    return {
        "format": STATE_FORMAT,
        "updater": updater.state_dict(),
        "elapsed_time": elapsed_time,
        "extensions": extensions,
        "triggers": triggers,
        "stop_trigger": None if save is None else save(),
    }


def load_trainer_state(
    state: Mapping[str, Any],
    updater: Updater,
    registrations: RegistrationList,
    stop_trigger: TriggerFunction,
    *,
    strict: bool,
) -> float:
    """See ``Trainer.load_state_dict``.

    :return: the elapsed seconds of the processes before this one.
    """
    if state.get("format") != STATE_FORMAT:
        raise ArgumentValueError(
            f"This state has format {state.get('format')!r}; this version reads format {STATE_FORMAT}.",
            advice="Continue the run with the version of Ostinato that saved it, or a newer one.",
            format=state.get("format"),
        )
    saved_extensions, saved_triggers = state.get("extensions", {}), state.get("triggers", {})
    _compare_names(registrations, set(saved_extensions) | set(saved_triggers), strict)
    updater.load_state_dict(state["updater"])
    for known in registrations:
        for what, owner, states in (
            ("extension", known.extension, saved_extensions),
            ("the trigger of extension", known.trigger, saved_triggers),
        ):
            load = callable_attribute(owner, "load_state_dict")
            if load is not None and known.name in states:
                _load(f"{what} {known.name!r}", load, states[known.name], _ADVICE)
    load = callable_attribute(stop_trigger, "load_state_dict")
    if load is not None and state.get("stop_trigger") is not None:
        _load("the stop trigger", load, state["stop_trigger"], "Stop by the same kind of trigger as the run so far.")
    return float(state["elapsed_time"])


def _compare_names(registrations: RegistrationList, saved: set[str], strict: bool) -> None:
    with_state = {
        known.name
        for known in registrations
        if callable_attribute(known.extension, "state_dict") or callable_attribute(known.trigger, "state_dict")
    }
    new, gone = sorted(with_state - saved), sorted(saved - {known.name for known in registrations})
    if strict and (new or gone):
        raise StateError(
            f"The saved state and this trainer differ. New here: {', '.join(new) or 'none'}. "
            f"Only in the saved state: {', '.join(gone) or 'none'}.",
            advice="Register the same extensions, or load with strict=False.",
            new=new,
            gone=gone,
        )
    if new:
        _log.info("new in this process, starting fresh: %s", ", ".join(new))
    if gone:
        _log.warning("in the saved state, no longer registered, ignored: %s", ", ".join(gone))


def _load(owner: str, load: Callable[[Any], Any], state: Any, advice: str) -> None:
    try:
        load(state)
    except OstinatoError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise StateError(
            f"What was saved for {owner} does not fit it: {type(error).__name__}: {error}.",
            advice=advice,
            owner=owner,
        ) from error
