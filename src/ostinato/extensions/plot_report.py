"""Draws curves of observed values into a picture."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.extensions.interval_means import IntervalMeans
from ostinato.extensions.name_lists import names_of
from ostinato.extensions.optional_package import import_optional
from ostinato.extensions.report_file import ReportFile, checked_filename
from ostinato.extensions.saved_format import check_format
from ostinato.loop import PRIORITY_READER, Extension, TrainerView
from ostinato.loop.inner_trigger import InnerTrigger

_log = logging.getLogger(__name__)

STATE_FORMAT = 1


class PlotReport(Extension):
    """Takes in the observation of every iteration; when its trigger fires, adds the mean of each value since the last
    time to its curve and draws all curves into a picture in the trainer's folder.

    A value that was not reported in an interval has no point there. Points are saved with the run: after a resume the
    picture shows the kept history. It is replaced in one step, so a viewer never sees half of it. Only rank 0 draws.
    Numbers stay on their device until a point is made.

    Needs the package ``matplotlib``; no window is opened, and matplotlib's settings are left alone.

    :param y_keys: the name of a value, or names; one curve each.
    :param x_key: what stands on the horizontal axis: ``iteration``, ``epoch`` (with fractions, where the length of a
        pass is known), ``elapsed_time`` (seconds), or the name of a value.
    :param trigger: when points are made. It is an argument of this class and not of ``Trainer.extend``, because the
        extension itself has to be called in every iteration to see its numbers.
    :param filename: the picture, below the trainer's folder; its end (``.png``, ``.svg``, ``.pdf``) says the format.
    :param marker: a mark of matplotlib's for every point; ``None``: lines only.
    :param grid: draw a grid.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: for an empty list or name, or a filename without an end that says the format.
    """

    trigger = (1, "iteration")
    priority = PRIORITY_READER - 20

    def __init__(
        self,
        y_keys: str | Iterable[str],
        x_key: str = "iteration",
        trigger: Any = (1, "epoch"),
        filename: str | os.PathLike[str] = "plot.png",
        marker: str | None = "x",
        grid: bool = True,
    ) -> None:
        self._y_keys = names_of(y_keys, "PlotReport", "y_keys")
        if not isinstance(x_key, str):
            raise ArgumentTypeError(f"PlotReport: x_key must be one name, not {x_key!r}.", name="x_key", value=x_key)
        self._x_key = names_of(x_key, "PlotReport", "x_key")[0]
        self._point_trigger = InnerTrigger(trigger)
        self._filename = checked_filename(filename, "PlotReport")
        self._kind = Path(self._filename).suffix.lower().lstrip(".")
        if not self._kind:
            raise ArgumentValueError(
                f"PlotReport: {self._filename!r} does not say which kind of picture it is.",
                advice="Let it end in .png, .svg or .pdf.",
                name="filename",
                value=filename,
            )
        self._marker = marker
        self._grid = grid
        self._means = IntervalMeans("PlotReport", {*self._y_keys, self._x_key})
        self._points: dict[str, list[list[float]]] = {key: [] for key in self._y_keys}  # per curve: pairs x, y
        self._file: ReportFile | None = None  # None: not initialized, or not rank 0
        self._warned = False

    def initialize(self, trainer: TrainerView) -> None:
        """Take the base line of the trigger; after a resume, draw the kept points.

        :raises MissingPackageError: when matplotlib is not installed.
        :raises ArgumentValueError: when it does not know this kind of picture, or the marker.
        """
        self._point_trigger.initialize(trainer)
        if trainer.group.rank != 0:
            return
        # Asked for now: hours later, when the first point is due, would be a bad time to hear of it.
        canvas = import_optional("matplotlib.backends.backend_agg", "PlotReport").FigureCanvasAgg
        kinds = canvas.get_supported_filetypes()
        if self._kind not in kinds:
            raise ArgumentValueError(
                f"PlotReport: matplotlib cannot draw {self._kind!r}, which is how {self._filename!r} ends.",
                advice=f"It knows {', '.join(sorted(kinds))}.",
                name="filename",
                value=self._filename,
            )
        try:
            import_optional("matplotlib.markers", "PlotReport").MarkerStyle(self._marker or "")
        except (ValueError, TypeError) as error:
            raise ArgumentValueError(
                f"PlotReport: matplotlib knows no marker {self._marker!r}.",
                advice="Use 'x', 'o', '.' or None, say.",
                name="marker",
                value=self._marker,
            ) from error
        self._file = ReportFile(trainer.out / self._filename)
        if any(self._points.values()):
            self._draw()

    def __call__(self, trainer: TrainerView) -> None:
        """Take in the numbers of this iteration; make points and draw when it is time."""
        if self._file is None:
            return
        self._means.add(trainer.observation)
        if not self._point_trigger(trainer):
            return
        means = self._means.compute()
        self._means.clear()
        x = self._place(trainer, means)
        if x is None:
            if not self._warned:
                self._warned = True
                _log.warning("PlotReport: %r was not reported, so this point is left out.", self._x_key)
            return
        for key, points in self._points.items():
            if key in means:
                points.append([x, means[key]])
        self._draw()

    def _place(self, trainer: TrainerView, means: Mapping[str, float]) -> float | None:
        state = trainer.updater.state
        if self._x_key == "iteration":
            return float(state.iteration)
        if self._x_key == "epoch":
            position = state.epoch_detail
            return float(state.epoch if position is None else position)
        if self._x_key == "elapsed_time":
            return trainer.elapsed_time
        return means.get(self._x_key)

    def _draw(self) -> None:
        assert self._file is not None
        figures = import_optional("matplotlib.figure", "PlotReport")
        backend = import_optional("matplotlib.backends.backend_agg", "PlotReport")
        # A figure of its own and not pyplot's: pyplot may open windows, and keeps every figure alive.
        figure = figures.Figure()
        canvas = backend.FigureCanvasAgg(figure)
        axes = figure.add_subplot(111)
        for key, points in self._points.items():
            if points:
                axes.plot([x for x, _ in points], [y for _, y in points], marker=self._marker, label=key)
        axes.set_xlabel(self._x_key)
        if axes.lines:
            axes.legend(loc="best")
        axes.grid(self._grid)
        picture = io.BytesIO()
        canvas.print_figure(picture, format=self._kind, bbox_inches="tight")
        self._file.replace(picture.getvalue())

    def state_dict(self) -> dict[str, Any]:
        """All points, and what was gathered since the last ones."""
        return {
            "format": STATE_FORMAT,
            "trigger": self._point_trigger.state_dict(),
            "means": self._means.state_dict(),
            "x_key": self._x_key,
            "points": {key: [list(point) for point in points] for key, points in self._points.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with saved points. Curves that are no longer asked for, or stood over another axis, are left out.

        :raises ArgumentValueError: for a state of another format.
        """
        check_format(state, STATE_FORMAT, "PlotReport")
        self._point_trigger.load_state_dict(state["trigger"])
        self._means.load_state_dict(state["means"])
        saved = state["points"] if state["x_key"] == self._x_key else {}
        self._points = {key: [list(point) for point in saved.get(key, ())] for key in self._y_keys}
