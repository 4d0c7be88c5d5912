"""Measures a model on data that it is not trained on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ostinato.dist import Alone, Group, RefusingGroup
from ostinato.errors import ArgumentTypeError
from ostinato.extensions.exact_means import ExactMeans
from ostinato.extensions.loader_share import share_of
from ostinato.extensions.resting import buffers_of_rank_0, evaluation_mode, kept_random_state
from ostinato.extensions.saved_format import check_format
from ostinato.loop import (
    PRIORITY_WRITER,
    Extension,
    TrainerView,
    Trigger,
    capture_random_state,
    report,
    restore_random_state,
    scope,
)
from ostinato.loop.batches import batch_size, call_with_batch, to_device
from ostinato.loop.inner_trigger import ask_inside, get_inner_trigger
from ostinato.loop.loaders import loader_generators, no_batch_error
from ostinato.loop.protocols import ExtensionFunction
from ostinato.loop.unwrapping import unwrapped
from ostinato.loop.updater_arguments import check_functions, checked_device

_log = logging.getLogger(__name__)

STATE_FORMAT = 1


class StandardEvaluator(Extension):
    """Walks a loader with gradients off and reports the means over its samples.

    ::

        def accuracy(batch):
            image, label = batch
            report("accuracy", (model(image).argmax(1) == label).float().mean())

        trainer.extend(StandardEvaluator(model, test_loader, accuracy, prefix="test/"))

    What is evaluated, in this order of preference: the function given; :meth:`evaluate_core` of a subclass; by default
    the model is called as an updater would call it, and ``loss_function`` with what it returns. Numbers travel in two
    ways: with :func:`~ostinato.loop.report`, or as the result, a number or a mapping of numbers (a lone one is called
    ``main``). A value counts as often as there are samples in its batch; a pair (value, weight) says it itself.

    Training does not notice: every module has the mode that it had, also after an exception, and all random generators
    have the states that they had, so that the trained weights do not depend on how often one evaluates.

    With several ranks each one takes its share of the batches, no sample twice and none left out, and all of them
    report the same means: to the last bit those of one process that evaluates the same batches, where the kernels are
    deterministic. What is evaluated must use no collectives. Registered with ``ranks=0``, rank 0 walks the whole set.

    :param model: a module, or modules by name; wrappers of data-parallel training and compilation are taken off.
    :param loader: an iterable of batches that can be walked again and again, or a function that makes one.
    :param function: called with each batch.
    :param loss_function: called with what the model returns and the batch; or several by the name of their loss.
    :param prefix: put before every name that is reported, such as ``validation/``.
    :param weight_by_batch: a value without a weight counts as often as there are samples in its batch; else once.
    :param shard: the loader walks the whole set on every rank, and each rank takes its share. Without it every rank
        evaluates all that its loader yields.
    :param also: what else is done while the model rests, by name, with triggers of their own: ``{"samples":
        (write_samples, (5000, "iteration"))}``. They are called with the trainer. Their triggers are asked when this
        extension runs, so they cannot run more often than it does.
    :param device: where batches are moved to; by default they stay where the loader made them.
    :param group: the ranks that evaluate together, where there is no trainer to ask.
    :raises ArgumentTypeError: when a function cannot be called.
    :raises ArgumentValueError: for an unknown device, and for a bad trigger in ``also``.
    """

    trigger = (1, "epoch")
    priority = PRIORITY_WRITER
    name = "validation"

    def __init__(
        self,
        model: nn.Module | Mapping[str, nn.Module],
        loader: Iterable[Any] | Callable[[], Iterable[Any]],
        function: Callable[[Any], Any] | None = None,
        *,
        loss_function: Callable[[Any, Any], Any] | Mapping[str, Callable[[Any, Any], Any]] | None = None,
        prefix: str = "",
        weight_by_batch: bool = True,
        shard: bool = True,
        also: Mapping[str, tuple[ExtensionFunction, Any]] | None = None,
        device: torch.device | str | None = None,
        group: Group | None = None,
    ) -> None:
        given = model if isinstance(model, Mapping) else {"main": model}
        self.models: dict[str, nn.Module] = {name: unwrapped(module) for name, module in given.items()}
        self.loader = loader
        self.loss_function = check_functions(loss_function, "The loss function")
        self.prefix = prefix
        self.device = checked_device(device)
        self._function = check_functions(function, "The function of an evaluator")
        self._weight_by_batch = weight_by_batch
        self._shard = shard
        self._also = {name: (call, get_inner_trigger(when)) for name, (call, when) in (also or {}).items()}
        self._group = group
        self._warned: set[str] = set()

    def evaluate_core(self, batch: Any) -> Any:
        """What is done with one batch. Reports numbers, or returns them, or both."""
        if self._function is not None:
            return self._function(batch)
        result = call_with_batch(self.models["main"], batch)
        if isinstance(self.loss_function, Mapping):
            return {name: function(result, batch) for name, function in self.loss_function.items()}
        return result if self.loss_function is None else self.loss_function(result, batch)

    def evaluate(self) -> dict[str, float]:
        """The means over the whole set, by name; nothing is reported. A collective if there are several ranks.

        :raises StateError: when the loader yields no batch on any rank.
        """
        return self._evaluate(self._group or Alone(), lambda: None)

    def __call__(self, trainer: TrainerView | None = None) -> dict[str, float]:
        """Evaluate and report. Without a trainer and outside of a scope it only returns the means."""
        group = self._group or self._group_of(trainer)

        def also() -> None:
            if trainer is not None:
                self._run_others(trainer, group)

        means = self._evaluate(group, also)
        observed = {} if trainer is None else trainer.observation
        for name, mean in means.items():
            if name in observed and name not in self._warned:
                self._warned.add(name)
                _log.warning(
                    "The evaluation reports %r, and so did the training of this iteration, whose value is replaced. "
                    "Give the evaluator a prefix, such as 'validation/'.",
                    name,
                )
            report(name, mean)
        return means

    def _evaluate(self, group: Group, also: Callable[[], None]) -> dict[str, float]:
        with kept_random_state(), evaluation_mode(self.models.values()), buffers_of_rank_0(self.models, group):
            means = self._means(group)
            also()
        return {f"{self.prefix}{name}": mean for name, mean in means.items()}

    def _means(self, group: Group) -> dict[str, float]:
        if self._shard and group.size > 1:
            # An order drawn at random must be the same on all ranks, or their shares would overlap.
            restore_random_state(group.broadcast({**capture_random_state(), "cuda": [], "mps": []}))
        loader: Any = self.loader() if callable(self.loader) else self.loader
        batches, means = 0, ExactMeans()
        with kept_random_state(loader_generators(loader)):
            for batch in share_of(loader, group) if self._shard else loader:
                batches += 1
                self._add(means, batch if self.device is None else to_device(batch, self.device))
        total = ExactMeans()
        counts = []
        for count, sums in group.gather((batches, means.sums())):
            counts.append(count)
            total.add_sums(sums)
        if not sum(counts):
            raise no_batch_error(loader)
        return total.compute()

    def _add(self, means: ExactMeans, batch: Any) -> None:
        observed: dict[str, Any] = {}
        with scope(observed):
            result = self.evaluate_core(batch)
            if isinstance(result, Mapping):
                for name, value in result.items():
                    report(name, value)
            elif isinstance(result, torch.Tensor | int | float):
                report("main", result)
            elif result is not None:
                raise ArgumentTypeError(
                    f"The evaluation of a batch returned {type(result).__name__}, and no numbers.",
                    advice="Return a number or a mapping of numbers, or report them and return nothing; a "
                    "loss_function can make numbers of what a model returns.",
                )
        size = batch_size(batch) if self._weight_by_batch else None
        means.add(observed, 1 if size is None else size)

    # --- what else is done meanwhile ---------------------------------------------------------------------------------

    def _run_others(self, trainer: TrainerView, group: Group) -> None:
        if not self._also:
            return
        # Rank 0 decides: a trigger may look at a clock.
        due = group.broadcast([ask_inside(trigger, trainer) for _, trigger in self._also.values()])
        for (call, _), is_due in zip(self._also.values(), due, strict=True):
            if is_due:
                call(trainer)

    def _triggers(self) -> dict[str, Trigger]:
        return {name: trigger for name, (_, trigger) in self._also.items() if isinstance(trigger, Trigger)}

    def initialize(self, trainer: TrainerView) -> None:
        """Let the triggers of what else is done take their base lines."""
        for trigger in self._triggers().values():
            trigger.initialize(trainer)

    def state_dict(self) -> dict[str, Any]:
        """The states of these triggers."""
        return {
            "format": STATE_FORMAT,
            "also": {name: trigger.state_dict() for name, trigger in self._triggers().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with saved triggers; one that the state does not know starts fresh."""
        check_format(state, STATE_FORMAT, self.name or type(self).__name__)
        for name, trigger in self._triggers().items():
            if name in state["also"]:
                trigger.load_state_dict(state["also"][name])

    def _group_of(self, trainer: Any) -> Group:
        """The ranks that run this evaluator together."""
        group = getattr(trainer, "group", None)
        # The trainer refuses collectives to those who run on rank 0 alone.
        return Alone() if group is None or isinstance(group, RefusingGroup) else group
