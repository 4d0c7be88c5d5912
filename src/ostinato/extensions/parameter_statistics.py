"""Reports how the values of parameters and of their gradients are spread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.extensions.models_by_name import find_models, parameters_by_name
from ostinato.loop import PRIORITY_WRITER, Extension, TrainerView, report

Statistic = Callable[[torch.Tensor], torch.Tensor]

PERCENTILES = (0.13, 2.28, 15.87, 50.0, 84.13, 97.72, 99.87)
"""Those of a normal distribution at -3, -2, -1, 0, 1, 2 and 3 standard deviations."""


def percentile(values: torch.Tensor, percent: float) -> torch.Tensor:
    """The value below which so many percent of the values lie, straight between the two nearest ones.

    :param values: one dimension, floating point, not empty.
    :param percent: from 0 to 100.
    """
    # torch.quantile would do the same and refuses more than 16 million values.
    ordered = values.sort().values
    place = percent / 100 * (ordered.numel() - 1)
    below = int(place)
    above = min(below + 1, ordered.numel() - 1)
    return torch.lerp(ordered[below], ordered[above], place - below)


STATISTICS: dict[str, Statistic] = {
    "mean": torch.mean,
    "std": partial(torch.std, correction=0),
    "min": torch.min,
    "max": torch.max,
    "zeros": lambda values: (values == 0).sum(),
    **{f"percentile/{percent:g}": partial(percentile, percent=percent) for percent in PERCENTILES},
}
"""The statistics by name. Each is called with all values of a parameter in one dimension, float32 at least."""


class ParameterStatistics(Extension):
    """Reports statistics of every parameter and its gradient, at the end of every epoch unless told otherwise.

    The names are ``[<prefix>/]<parameter>/data/<statistic>`` and ``[<prefix>/]<parameter>/grad/<statistic>``; where the
    updater has several models, a parameter's name begins with that of its model. The values are tensors on the device
    of the parameter: nothing waits for it until somebody reads them. Parameters without values are left out, and so are
    missing gradients.

    :param models: a module, or modules by name; ``None``: those of the updater.
    :param statistics: names among :data:`STATISTICS`, or functions by name; ``None``: all of :data:`STATISTICS`.
    :param report_params: report the parameters.
    :param report_grads: report the gradients.
    :param prefix: what the names begin with.
    :param trigger: when it reports.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: for an unknown statistic, none at all, or nothing to report.
    """

    priority = PRIORITY_WRITER
    name = "parameter_statistics"

    def __init__(
        self,
        models: nn.Module | Mapping[str, nn.Module] | None = None,
        statistics: Iterable[str] | Mapping[str, Statistic] | None = None,
        *,
        report_params: bool = True,
        report_grads: bool = True,
        prefix: str | None = None,
        trigger: Any = (1, "epoch"),
    ) -> None:
        if not report_params and not report_grads:
            raise ArgumentValueError(
                "ParameterStatistics: neither parameters nor gradients are to be reported.",
                advice="Switch report_params or report_grads on, or leave the extension out.",
            )
        if prefix is not None and not isinstance(prefix, str):
            raise ArgumentTypeError(f"ParameterStatistics: prefix must be a text, not {prefix!r}.", value=prefix)
        self._wanted_models = models
        self._models: dict[str, nn.Module] = {}
        self._statistics = _checked_statistics(statistics)
        self._report_params = report_params
        self._report_grads = report_grads
        self._prefix = f"{prefix}/" if prefix else ""
        self.trigger = trigger

    def initialize(self, trainer: TrainerView) -> None:
        """Find the models.

        :raises ArgumentTypeError: when the models are none.
        :raises StateError: when the updater has no models.
        """
        self._models = find_models(trainer, self._wanted_models, "ParameterStatistics")

    @torch.no_grad()
    def __call__(self, trainer: TrainerView) -> None:
        """Report the statistics of this moment."""
        for name, parameter in parameters_by_name(self._models).items():
            if self._report_params:
                self._report(f"{self._prefix}{name}/data", parameter)
            if self._report_grads and parameter.grad is not None:
                self._report(f"{self._prefix}{name}/grad", parameter.grad)

    def _report(self, name: str, tensor: torch.Tensor) -> None:
        if isinstance(tensor, nn.UninitializedParameter) or tensor.numel() == 0 or tensor.is_complex():
            return
        values = (tensor.to_dense() if tensor.is_sparse else tensor).detach().flatten()
        if not values.is_floating_point() or values.element_size() < 4:
            values = values.float()  # the mean of many half-precision numbers would be rounded away
        for statistic, compute in self._statistics.items():
            report(f"{name}/{statistic}", compute(values))


def _checked_statistics(statistics: Any) -> dict[str, Statistic]:
    if statistics is None:
        return dict(STATISTICS)
    if isinstance(statistics, str) or not isinstance(statistics, Iterable):
        raise ArgumentTypeError(
            f"ParameterStatistics: statistics must be names in a list, or functions by name, not {statistics!r}.",
            name="statistics",
            value=statistics,
        )
    if isinstance(statistics, Mapping):
        chosen = dict(statistics)
    else:
        listed = list(statistics)
        unknown = [name for name in listed if name not in STATISTICS]
        if unknown:
            raise ArgumentValueError(
                f"ParameterStatistics: there is no statistic {unknown[0]!r}.",
                advice=f"There are: {', '.join(STATISTICS)}. Or give functions by name.",
                name="statistics",
                value=statistics,
            )
        chosen = {name: STATISTICS[name] for name in listed}
    if not chosen:
        raise ArgumentValueError(
            "ParameterStatistics: statistics is empty.", advice="Name at least one.", name="statistics"
        )
    for name, compute in chosen.items():
        if not isinstance(name, str) or not callable(compute):
            raise ArgumentTypeError(
                f"ParameterStatistics: statistics must be functions by name, and {name!r} is {compute!r}.",
                name="statistics",
                value=statistics,
            )
    return chosen
