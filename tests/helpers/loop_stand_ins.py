"""Small stand-ins for what a trainer works with: an updater that only counts, and a place to save to."""

from __future__ import annotations

import json
from typing import Any

from ostinato.loop import Extension, UpdaterState
from ostinato.loop.inner_trigger import InnerTrigger


class CountingUpdater:
    """An updater that only counts."""

    def __init__(self, updates_per_epoch: int | None = None) -> None:
        self.state = UpdaterState(updates_per_epoch=updates_per_epoch)

    def update(self) -> None:
        self.state.advance()

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state.load_state_dict(state["state"])


class ListOfSnapshots(Extension):
    """Saves into a list, through JSON as a file would, and restores from its newest entry."""

    priority = -100
    name = "snapshots"

    def __init__(self, kept: list[dict[str, Any]]) -> None:
        self.kept = kept

    def restore(self, trainer: Any) -> None:
        if self.kept:
            trainer.load_state_dict(self.kept[-1])

    def __call__(self, trainer: Any) -> None:
        self.kept.append(json.loads(json.dumps(trainer.state_dict())))


class AsksItself(Extension):
    """Is called in every iteration, and asks a trigger of its own; notes the iterations in which that one fires."""

    def __init__(self, trigger: Any) -> None:
        self.inner = InnerTrigger(trigger)
        self.fired: list[int] = []

    def initialize(self, trainer: Any) -> None:
        self.inner.initialize(trainer)

    def __call__(self, trainer: Any) -> None:
        if self.inner(trainer):
            self.fired.append(trainer.updater.state.iteration)
