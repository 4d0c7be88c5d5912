"""What gradients are multiplied by before they are applied: one over the batch size and over the loss scale."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError, UpdateRefusedError
from ostinato.kvstore.loss_scaler import LossScaler
from ostinato.kvstore.parameters import ParameterHandle
from ostinato.kvstore.store import Store
from ostinato.optim.argument_checks import require_number
from ostinato.optim.rules import Optimizer

Losses = TypeVar("Losses", Tensor, list[Tensor], tuple[Tensor, ...])


class GradientScale:
    """Scales losses, and has the optimizer of a trainer undo that in the step that follows.

    :param optimizer: its ``rescale_grad`` is what the user gave, and is set at every step.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.scaler: LossScaler | None = None
        self._optimizer = optimizer
        self._original = float(optimizer.rescale_grad)
        self._factor = self._original

    @property
    def loss_scale(self) -> float:
        """The factor of the next loss; 1 without a scaler."""
        return 1.0 if self.scaler is None else self.scaler.loss_scale

    def scale_loss(self, loss: Losses) -> Losses:
        """See :meth:`~ostinato.kvstore.ParameterTrainer.scale_loss`."""
        if self.scaler is None:
            raise StateError("This trainer scales no losses.", advice="Set trainer.loss_scaler = LossScaler() first.")
        if not isinstance(loss, Tensor) and not (
            isinstance(loss, (list, tuple)) and all(isinstance(one, Tensor) for one in loss)
        ):
            raise ArgumentTypeError(
                f"A loss is a tensor, or a list of tensors, not {type(loss).__name__}.",
                advice="Scale the loss before backward().",
            )
        self._factor = self._original / self.loss_scale
        if isinstance(loss, Tensor):
            return loss * self.loss_scale
        return type(loss)(one * self.loss_scale for one in loss)

    def unscale(self, handles: Iterable[ParameterHandle]) -> None:
        """See :meth:`~ostinato.kvstore.ParameterTrainer.unscale`."""
        for handle in handles:
            handle.scale_gradients(self._factor)
        self._factor = 1.0

    def begin_step(self, batch_size: float, updating: Store | None) -> None:
        """Tell the optimizer the factor of this step.

        :param updating: the store, where it updates.
        :raises ArgumentValueError: the batch size is not above 0.
        :raises UpdateRefusedError: the store's copy of the optimizer cannot follow.
        """
        if not require_number("batch_size", batch_size) > 0:
            raise ArgumentValueError(
                f"A step was asked for with a batch size of {batch_size!r}.", advice="Give the number of samples."
            )
        factor, optimizer = self._factor / batch_size, self._optimizer
        if (
            updating is not None
            and updating.is_distributed
            and not updating.is_capable("live_optimizer")
            and optimizer.rescale_grad != factor
        ):
            raise UpdateRefusedError(
                f"Gradients are to be multiplied by {factor:g}, and the store {updating.type!r} goes on multiplying by "
                f"{optimizer.rescale_grad:g}: its copy of the optimizer was made at the first step.",
                advice="Keep the batch size, or use update_on_kvstore=False.",
                old=optimizer.rescale_grad,
                new=factor,
            )
        optimizer.rescale_grad = factor

    def end_step(self) -> None:
        """Nothing is scaled until the next loss is."""
        self._factor = self._original
