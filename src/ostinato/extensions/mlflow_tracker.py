"""Sends the numbers of a run to an MLflow tracking server or folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.extensions.optional_package import import_optional
from ostinato.extensions.saved_format import check_format
from ostinato.extensions.tracker import Point, RunInfo
from ostinato.loop.protocols import Status

STATE_FORMAT = 1
_MOST_METRICS = 1000  # that MLflow's servers take in one request
_REFUSED = re.compile(r"[^\w\-. /]")  # by MLflow, in the name of a metric
_ENDS: dict[Status, str] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class MlflowTracker:
    """A tracker for :class:`~ostinato.extensions.TrackerWriter`: one run of MLflow (the package ``mlflow``, or the
    smaller ``mlflow-skinny``).

    ::

        trainer.extend(TrackerWriter(MlflowTracker("faces", tracking_uri="http://localhost:5000")))

    Steps are iterations, times are those at which the numbers arose. The name under which MLflow knows the run is
    saved with the training, so a resumed training goes on in the same one.

    MLflow takes points at any step and removes none. When a training goes on from iteration r, points beyond r that
    were sent before stay there, and the kept ones follow them at the same steps, with later times.

    The run is opened through a client of its own: ``mlflow.active_run()`` is neither used nor changed.

    :param experiment: the experiment that the run belongs to; made when missing.
    :param tracking_uri: the server or folder; by default MLflow's own choice (``MLFLOW_TRACKING_URI``).
    :param run_name: by default the name of the run's folder.
    :param params: settings to show beside the curves.
    """

    label = "mlflow"

    def __init__(
        self,
        experiment: str = "Default",
        *,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(experiment, str):
            raise ArgumentTypeError(f"MlflowTracker: experiment must be a text, not {experiment!r}.", value=experiment)
        if not experiment:
            raise ArgumentValueError(
                "MlflowTracker: experiment is empty.",
                advice="Name the experiment that the run belongs to.",
                value=experiment,
            )
        self._experiment = experiment
        self._uri = tracking_uri
        self._run_name = run_name
        self._params = dict(params or {})
        self._id: str | None = None
        self._client: Any = None
        self._entities: Any = None

    def open(self, run: RunInfo, iteration: int) -> None:
        """Start a run, or go on with the one that was saved.

        :raises MissingPackageError: when ``mlflow`` is not installed.
        """
        tracking = import_optional("mlflow.tracking", type(self).__name__)
        self._entities = import_optional("mlflow.entities", type(self).__name__)
        client = tracking.MlflowClient(tracking_uri=self._uri)
        if self._id is not None:
            client.update_run(self._id, status="RUNNING")
        else:
            experiment = client.get_experiment_by_name(self._experiment)
            number = client.create_experiment(self._experiment) if experiment is None else experiment.experiment_id
            self._id = client.create_run(number, run_name=self._run_name or run.name).info.run_id
            for name, value in self._params.items():
                client.log_param(self._id, name, value)
        self._client = client

    def write(self, points: Sequence[Point]) -> None:
        """Send points. Letters that MLflow refuses in names become ``_``."""
        metrics = [
            self._entities.Metric(_REFUSED.sub("_", name), value, round(point.wall_time * 1000), point.iteration)
            for point in points
            for name, value in {**point.values, "epoch": point.epoch}.items()
        ]
        for start in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self._id, metrics=metrics[start : start + _MOST_METRICS])

    def close(self, status: Status) -> None:
        """Say how the run ended."""
        client, self._client = self._client, None
        if client is not None:
            client.set_terminated(self._id, status=_ENDS.get(status, "FINISHED"))

    def state_dict(self) -> dict[str, Any]:
        """The name under which MLflow knows the run."""
        return {"format": STATE_FORMAT, "id": self._id}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with a saved run.

        :raises ArgumentValueError: for a state of another format.
        """
        check_format(state, STATE_FORMAT, "MlflowTracker")
        self._id = state["id"]
