"""A parameter trainer in the place of a ``torch.optim`` optimizer."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore.parameter_trainer import ParameterTrainer
from ostinato.optim.argument_checks import require_flag, require_number


class LoopOptimizer:
    """Lets the loop's updaters train through a store: they call ``zero_grad()`` and ``step()``, and keep the state.

    ::

        trainer = ParameterTrainer(dict(model.named_parameters()), "adam", kvstore="dist_sync")
        updater = StandardUpdater(model, LoopOptimizer(trainer, [model]), loader)

    The updaters make one by themselves when they are given a trainer: ``StandardUpdater(model, trainer, loader)``.

    Losses are scaled by the trainer's own ``loss_scaler``, not by a GradScaler, which would decide on every rank alone.

    :param trainer: what is stepped.
    :param models: the trainer is opened right before one of these first runs in training, so that the first pass, after
        a restore too, has rank 0's weights on all replicas and ranks. Without them the first step does it.
    :param batch_size: what the summed gradient is divided by. Left out, it is the number of losses in the sum, one for
        each replica on each rank, which is right for losses that are means over their batch.
    :param ignore_stale_grad: leave parameters alone that no rank has back-propagated to.
    """

    weights_in_state = ("tables",)
    """What :class:`~ostinato.extensions.Snapshot` saves with the weights, whatever it saves of the optimizers: the rows
    of tables. Updates of rows that ``update="dense_lazy"`` has put off belong to the optimizer's state."""

    def __init__(
        self,
        trainer: ParameterTrainer,
        models: Iterable[nn.Module] = (),
        *,
        batch_size: float | None = None,
        ignore_stale_grad: bool = False,
    ) -> None:
        if not isinstance(trainer, ParameterTrainer):
            raise ArgumentTypeError(
                f"The trainer is a ParameterTrainer, not {type(trainer).__name__}.",
                advice="The loop's updaters take an optimizer of torch as it is.",
            )
        if isinstance(models, nn.Module):
            raise ArgumentTypeError("models is one model, and a list is needed.", advice="Write [model].")
        models = list(models) if isinstance(models, Iterable) else [models]
        if not all(isinstance(model, nn.Module) for model in models):
            raise ArgumentTypeError(f"models is {models!r}, and a list of models is needed.", advice="Write [model].")
        if batch_size is not None and not require_number("batch_size", batch_size) > 0:
            raise ArgumentValueError(f"The batch size is {batch_size!r}.", advice="Give a number above 0, or None.")
        self.trainer = trainer
        self.batch_size = batch_size
        self.ignore_stale_grad = require_flag("ignore_stale_grad", ignore_stale_grad)
        mine = weakref.ref(self)

        # A plain function: a model that is copied before it runs does not copy the trainer along.
        def before_forward(module: nn.Module, _inputs: Any) -> None:
            optimizer = mine()
            # A rank may look at the model alone before training begins, and opening needs all of them.
            if optimizer is not None and module.training and torch.is_grad_enabled():
                optimizer._open()

        self._waiting = [model.register_forward_pre_hook(before_forward) for model in models]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """One group, to be read: the first replica's trained parameters, and the rate of the last update."""
        handles = self.trainer.parameters.values()
        parameters = [handle.replicas[0] for handle in handles if handle.is_trained]
        return [{"params": parameters, "lr": self.trainer.learning_rate}]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear all gradients."""
        self.trainer.zero_grad(set_to_none)

    def step(self) -> None:
        """Add up the gradients and apply them. A collective."""
        self.trainer.open()
        self.trainer.step(self._losses() if self.batch_size is None else self.batch_size, self.ignore_stale_grad)

    def _open(self) -> None:
        for hook in self._waiting:
            hook.remove()
        self._waiting.clear()
        self.trainer.open()

    def _losses(self) -> int:
        store = self.trainer.kvstore
        # An asynchronous store applies every worker's gradient by itself.
        workers = 1 if store is None or store.is_asynchronous else store.num_workers
        return workers * self.trainer.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`ParameterTrainer.state_dict`: in parts, as ranks save a run together."""
        return self.trainer.state_dict(in_parts=True)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`ParameterTrainer.load_state_dict`. ``{"tables": ...}`` alone loads the rows of tables alone."""
        self.trainer.load_state_dict(state)
