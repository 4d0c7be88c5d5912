"""Whether or not matplotlib is installed here, these tests use a stand-in for it, with its signatures."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from loop_stand_ins import CountingUpdater, ListOfSnapshots
from second_rank import second_rank

from ostinato.errors import MissingPackageError
from ostinato.extensions.plot_report import PlotReport
from ostinato.loop import Extension, Trainer, report


class Axes:
    def __init__(self) -> None:
        self.lines: list[tuple[str, list[Any], str | None]] = []
        self.has_legend = self.has_grid = False
        self.x_label = ""

    def plot(self, x: list[float], y: list[float], *, marker: str | None, label: str) -> None:
        self.lines.append((label, [[float(a), float(b)] for a, b in zip(x, y, strict=True)], marker))

    def set_xlabel(self, label: str) -> None:
        self.x_label = label

    def legend(self, *, loc: str) -> None:
        assert self.lines  # matplotlib warns when there is nothing to explain
        self.has_legend = True

    def grid(self, visible: bool) -> None:
        self.has_grid = visible


class Figure:
    def add_subplot(self, place: int) -> Axes:
        self.axes = Axes()
        return self.axes


class FigureCanvasAgg:
    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    @classmethod
    def get_supported_filetypes(cls) -> dict[str, str]:
        return {"png": "", "svg": "", "pdf": ""}

    def print_figure(self, file: Any, *, format: str, bbox_inches: str) -> None:
        axes = self.figure.axes
        picture = {"format": format, "x": axes.x_label, "grid": axes.has_grid, "lines": axes.lines}
        file.write(json.dumps(picture).encode())


class MarkerStyle:
    def __init__(self, marker: str) -> None:
        if marker not in ("x", "o", ""):
            raise ValueError(f"Unrecognized marker style {marker!r}")


@pytest.fixture(autouse=True)
def _matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"figure": {"Figure": Figure}, "markers": {"MarkerStyle": MarkerStyle}}
    parts |= {"backends": {}, "backends.backend_agg": {"FigureCanvasAgg": FigureCanvasAgg}}
    monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
    for name, content in parts.items():
        module = ModuleType(f"matplotlib.{name}")
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, f"matplotlib.{name}", module)


class Reporting(CountingUpdater):
    def update(self) -> None:
        report("loss", torch.tensor(float(self.state.iteration + 1)))
        if self.state.iteration % 4 == 3:
            report("seldom", (1.5, 2))
        super().update()


def run(out: Path, stop: int, *extensions: Any, kept: list[Any] | None = None, save_every: int = 1) -> None:
    trainer = Trainer(Reporting(2), (stop, "iteration"), out=out, extensions=extensions, clock=lambda: 0.0)
    if kept is not None:
        trainer.extend(ListOfSnapshots(kept), trigger=(save_every, "iteration"))
    trainer.run()


def picture(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_means_become_curves_in_a_picture(tmp_path: Path) -> None:
    run(tmp_path, 9, PlotReport(["loss", "seldom"]))
    assert picture(tmp_path / "plot.png") == {
        "format": "png",
        "x": "iteration",
        "grid": True,
        "lines": [
            ["loss", [[2, 1.5], [4, 3.5], [6, 5.5], [8, 7.5]], "x"],
            ["seldom", [[4, 1.5], [8, 1.5]], "x"],
        ],
    }
    assert [path.name for path in tmp_path.iterdir()] == ["plot.png"]


def test_settings_are_kept(tmp_path: Path) -> None:
    plot = PlotReport("loss", "epoch", (3, "iteration"), "deep/curves.SVG", None, False)
    run(tmp_path, 3, plot)
    found = picture(tmp_path / "deep" / "curves.SVG")
    assert found == {"format": "svg", "x": "epoch", "grid": False, "lines": [["loss", [[1.5, 2.0]], None]]}


@pytest.mark.parametrize(("x_key", "x"), [("elapsed_time", 0.0), ("loss", 3.5)])
def test_other_values_can_stand_on_the_horizontal_axis(tmp_path: Path, x_key: str, x: float) -> None:
    run(tmp_path, 4, PlotReport("seldom", x_key))
    assert picture(tmp_path / "plot.png")["lines"] == [["seldom", [[x, 1.5]], "x"]]


def test_a_horizontal_value_that_was_not_reported_costs_the_point_and_a_warning(tmp_path: Path, caplog) -> None:
    run(tmp_path, 8, PlotReport("loss", "seldom"))
    assert picture(tmp_path / "plot.png")["lines"] == [["loss", [[1.5, 3.5], [1.5, 7.5]], "x"]]
    assert [record.getMessage() for record in caplog.records] == [
        "PlotReport: 'seldom' was not reported, so this point is left out."
    ]


@pytest.mark.parametrize(("cut", "save_every"), [(3, 1), (4, 1), (5, 2), (7, 3), (9, 4)])
def test_after_a_resume_the_picture_is_that_of_a_run_without_one(tmp_path: Path, cut: int, save_every: int) -> None:
    run(tmp_path / "straight", 10, PlotReport(["loss", "seldom"]))
    kept: list[Any] = []
    run(tmp_path / "cut", cut, PlotReport(["loss", "seldom"]), kept=kept, save_every=save_every)
    run(tmp_path / "cut", 10, PlotReport(["loss", "seldom"]), kept=kept, save_every=save_every)
    assert picture(tmp_path / "cut" / "plot.png") == picture(tmp_path / "straight" / "plot.png")


def test_a_resumed_run_draws_the_kept_points_at_once(tmp_path: Path) -> None:
    kept: list[Any] = []
    run(tmp_path, 5, PlotReport("loss"), kept=kept, save_every=3)
    seen: list[Any] = []

    class Look(Extension):
        priority = 0

        def initialize(self, trainer: Any) -> None:
            seen.append(picture(tmp_path / "plot.png")["lines"])

        def __call__(self, trainer: Any) -> None:
            pass

    run(tmp_path, 3, PlotReport("loss"), Look(), kept=kept)
    assert seen == [[["loss", [[2, 1.5]], "x"]]]


def test_a_curve_that_is_not_asked_for_any_more_is_left_out(tmp_path: Path) -> None:
    kept: list[Any] = []
    run(tmp_path, 4, PlotReport(["loss", "seldom"]), kept=kept)
    run(tmp_path, 6, PlotReport(["loss", "new"]), kept=kept)
    assert [label for label, _, _ in picture(tmp_path / "plot.png")["lines"]] == ["loss"]
    run(tmp_path, 6, PlotReport(["loss"], "epoch"), kept=kept[3:4])
    assert picture(tmp_path / "plot.png")["lines"] == [["loss", [[3.0, 5.5]], "x"]]


def test_not_a_number_is_a_point_of_its_own(tmp_path: Path) -> None:
    class Broken(CountingUpdater):
        def update(self) -> None:
            report("loss", math.nan)
            super().update()

    Trainer(Broken(1), (1, "iteration"), out=tmp_path, extensions=[PlotReport("loss")]).run()
    ((_, [[_, y]], _),) = picture(tmp_path / "plot.png")["lines"]
    assert math.isnan(y)


def test_without_matplotlib_the_run_ends_before_its_first_update(tmp_path: Path, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"PlotReport needs the package matplotlib.*pip install matplotlib"):
        run(tmp_path, 4, PlotReport("loss"))
    assert list(tmp_path.iterdir()) == []


def test_what_matplotlib_cannot_draw_ends_the_run_before_its_first_update(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"matplotlib cannot draw 'bmp'.*It knows pdf, png, svg"):
        run(tmp_path, 4, PlotReport("loss", filename="plot.bmp"))
    with pytest.raises(ValueError, match="matplotlib knows no marker 'cross'"):
        run(tmp_path, 4, PlotReport("loss", marker="cross"))


def test_another_rank_draws_nothing(tmp_path: Path) -> None:
    plot = PlotReport("a", trigger=(1, "iteration"))
    trainer = second_rank(tmp_path)
    plot.initialize(trainer)
    trainer.updater.update()
    plot(trainer)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"y_keys": 5}, TypeError, "y_keys must be a list of names, not 5"),
        ({"y_keys": []}, ValueError, "y_keys is empty"),
        ({"y_keys": "a", "x_key": ["a"]}, TypeError, "x_key must be one name"),
        ({"y_keys": "a", "x_key": ""}, ValueError, "x_key holds an empty name"),
        ({"y_keys": "a", "trigger": 5}, TypeError, "5 is not a trigger"),
        ({"y_keys": "a", "filename": "plot"}, ValueError, "'plot' does not say which kind of picture it is"),
        ({"y_keys": "a", "filename": 5}, TypeError, "filename must be a text, not 5"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PlotReport(**arguments)


def test_a_state_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="The saved state of PlotReport has format 2"):
        PlotReport("a").load_state_dict({"format": 2})
