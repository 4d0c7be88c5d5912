"""Sends the numbers of a run to Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.extensions.optional_package import import_optional
from ostinato.extensions.saved_format import check_format
from ostinato.extensions.tracker import Point, RunInfo
from ostinato.loop.protocols import Status

STATE_FORMAT = 1


class WandbTracker:
    """A tracker for :class:`~ostinato.extensions.TrackerWriter`: one run at Weights & Biases (the package ``wandb``).

    ::

        trainer.extend(TrackerWriter(WandbTracker("faces", config={"batch_size": 64})))

    Every point carries ``iteration``, ``epoch`` and ``elapsed_time`` (seconds), and charts are drawn over
    ``iteration``. The name under which the service knows the run is saved with the training, so a resumed training
    goes on in the same one.

    The history of a run at the service only grows. When a training goes on from iteration r, points beyond r that were
    sent before stay there, and the kept ones are drawn with them at the same place.

    :param project: the project at the service.
    :param config: settings to show beside the curves.
    :param init: further arguments of ``wandb.init``, such as ``entity``, ``name`` (by default that of the run's
        folder), ``tags``, ``mode="offline"`` or ``id``.
    """

    label = "wandb"

    def __init__(self, project: str, *, config: Mapping[str, Any] | None = None, **init: Any) -> None:
        if not isinstance(project, str):
            raise ArgumentTypeError(f"WandbTracker: project must be a text, not {project!r}.", value=project)
        if not project:
            raise ArgumentValueError(
                "WandbTracker: project is empty.", advice="Name the project that the run belongs to.", value=project
            )
        self._arguments = {"project": project, "config": dict(config or {}), **init}
        self._id: str | None = init.get("id")
        self._run: Any = None

    def open(self, run: RunInfo, iteration: int) -> None:
        """Start the run at the service, or go on with the one that was saved.

        :raises MissingPackageError: when ``wandb`` is not installed.
        """
        wandb = import_optional("wandb", type(self).__name__)
        # A folder that exists: wandb would take another one without a word.
        run.folder.mkdir(parents=True, exist_ok=True)
        arguments = {"dir": str(run.folder), "name": run.name, "resume": "allow", **self._arguments}
        if self._id is not None:
            arguments["id"] = self._id
        self._run = wandb.init(**arguments)
        self._id = self._run.id
        self._run.define_metric("iteration")
        # Not wandb's own step: it drops every point whose step is not above the last one, and after a resume from an
        # earlier iteration that would be the kept ones.
        self._run.define_metric("*", step_metric="iteration")

    def write(self, points: Sequence[Point]) -> None:
        """Send points; the service's own process does the sending."""
        for point in points:
            head = {"iteration": point.iteration, "epoch": point.epoch, "elapsed_time": point.elapsed_time}
            self._run.log({**point.values, **head})

    def close(self, status: Status) -> None:
        """Say how the run ended, and wait until everything is sent."""
        run, self._run = self._run, None
        if run is not None:
            run.finish(exit_code=1 if status == "failed" else 0)

    def state_dict(self) -> dict[str, Any]:
        """The name under which the service knows the run."""
        return {"format": STATE_FORMAT, "id": self._id}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with a saved run, unless the constructor was given another ``id``.

        :raises ArgumentValueError: for a state of another format.
        """
        check_format(state, STATE_FORMAT, "WandbTracker")
        if self._arguments.get("id") is None:
            self._id = state["id"]
