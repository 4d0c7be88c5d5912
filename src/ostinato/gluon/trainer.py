"""Gluon's trainer under its old name and with its old habit: every backward pass overwrites the gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ostinato.kvstore import ParameterTrainer, Store
from ostinato.kvstore.parameter_binding import Parameters


class Trainer(ParameterTrainer):
    """A :class:`~ostinato.kvstore.ParameterTrainer` for loops without ``zero_grad``, as Gluon's are.

    Parameters that say nothing else get ``grad_req`` ``"write"``: a backward pass replaces the gradient of the one
    before. Set ``"add"`` on those that should accumulate, before or after, and clear them by hand. Everything else is
    the parameter trainer's: the same arguments, methods and errors.
    """

    def __init__(
        self,
        params: Parameters,
        optimizer: Any,
        optimizer_params: Mapping[str, Any] | None = None,
        kvstore: str | Store | None = "device",
        compression_params: Mapping[str, Any] | None = None,
        update_on_kvstore: bool | None = None,
    ) -> None:
        super().__init__(params, optimizer, optimizer_params, kvstore, compression_params, update_on_kvstore)
        for handle in self.parameters.values():
            if handle.is_trained and not hasattr(handle.replicas[0], "grad_req"):
                handle.grad_req = "write"
