"""A parameter trainer in the place of a ``torch.optim`` optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ostinato.kvstore.parameter_trainer import ParameterTrainer


class LoopOptimizer:
    """Lets the loop's updaters train through a store: they call ``zero_grad()`` and ``step()``, and keep the state.

    ::

        trainer = ParameterTrainer(dict(model.named_parameters()), "adam", kvstore="dist_sync")
        updater = StandardUpdater(model, LoopOptimizer(trainer), loader)

    Losses are scaled by the trainer's own ``loss_scaler``, not by a GradScaler, which would decide on every rank alone.

    :param trainer: what is stepped.
    :param batch_size: what the summed gradient is divided by. Left out, it is the number of losses in the sum, one for
        each replica on each rank, which is right for losses that are means over their batch.
    :param ignore_stale_grad: leave parameters alone that no rank has back-propagated to.
    """

    def __init__(
        self, trainer: ParameterTrainer, *, batch_size: float | None = None, ignore_stale_grad: bool = False
    ) -> None:
        self.trainer = trainer
        self.batch_size = batch_size
        self.ignore_stale_grad = ignore_stale_grad

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """One group, to be read: the first replica's trained parameters, and the rate of the last update."""
        handles = self.trainer.parameters.values()
        parameters = [handle.replicas[0] for handle in handles if handle.is_trained]
        return [{"params": parameters, "lr": self.trainer.learning_rate}]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear all gradients. The first call opens the trainer, so that the first pass has the weights of rank 0."""
        self.trainer.open()
        self.trainer.zero_grad(set_to_none)

    def step(self) -> None:
        """Add up the gradients and apply them. A collective."""
        self.trainer.open()
        self.trainer.step(self._losses() if self.batch_size is None else self.batch_size, self.ignore_stale_grad)

    def _losses(self) -> int:
        store = self.trainer.kvstore
        # An asynchronous store applies every worker's gradient by itself.
        workers = 1 if store is None or store.is_asynchronous else store.num_workers
        return workers * self.trainer.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`ParameterTrainer.state_dict`."""
        return self.trainer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`ParameterTrainer.load_state_dict`."""
        self.trainer.load_state_dict(state)
