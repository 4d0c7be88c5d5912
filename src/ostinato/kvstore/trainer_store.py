"""The store of a parameter trainer: opened when it is first needed, and filled as parameters take their shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ostinato.errors import ContractError, StateError
from ostinato.kvstore.decision import Decision
from ostinato.kvstore.first_values import give_first_values
from ostinato.kvstore.parameters import ParameterHandle
from ostinato.kvstore.store import Store
from ostinato.kvstore.store_opening import open_store
from ostinato.kvstore.tables import TableParameter
from ostinato.kvstore.weight_versions import WeightVersions
from ostinato.optim.rules import Optimizer


class TrainerStore:
    """Which store a trainer has, whether that updates, and which parameters it has not taken yet.

    :param given: name of a store, a store, or None for none.
    :param versions: is told which weights are as the store has them.
    :param asked: ``update_on_kvstore`` as the user gave it.
    :param compression: ``compression_params`` as the user gave them.
    """

    def __init__(
        self,
        given: str | Store | None,
        handles: Sequence[ParameterHandle],
        optimizer: Optimizer,
        versions: WeightVersions,
        *,
        asked: bool | None,
        compression: Mapping[str, Any] | None,
    ) -> None:
        self.given = given
        self.opened: Store | None = None
        """The store; None before it is opened, and where there is none."""
        self.decision: Decision | None = None
        """Where updates run; None before that is decided."""
        self.waiting = list(handles)
        """Parameters without a shape, which the store has not taken; all of them before it is opened."""
        self._handles = handles
        self._optimizer = optimizer
        self._versions = versions
        self._asked = asked
        self._compression = compression

    @property
    def updating(self) -> Store | None:
        """The store, where updates run on it."""
        return self.opened if self.decision is not None and self.decision.update_on_kvstore is True else None

    def open(self) -> None:
        """See :meth:`~ostinato.kvstore.ParameterTrainer.open`. A collective."""
        if self.decision is None:
            self.opened, self.decision = open_store(
                self.given, self._handles, self._optimizer, asked=self._asked, compression=self._compression
            )
        if not self.waiting:
            return
        ready = [handle for handle in self.waiting if not handle.is_deferred]
        for handle in ready:
            handle.watch()
        give_first_values(ready, self.opened)
        self._versions.remember(ready)
        taken = {handle.index for handle in ready}
        self.waiting = [handle for handle in self.waiting if handle.index not in taken]

    def refuse_updating(self, call: str) -> None:
        """Refuse a call that makes no sense where the store updates.

        :raises ContractError: it does.
        """
        if self.updating is not None:
            raise ContractError(
                f"{call}() was called, and updates run on the store, where nobody holds the reduced gradient.",
                advice="Call step() alone, or make the trainer with update_on_kvstore=False.",
            )

    def reset(self) -> None:
        """See :meth:`~ostinato.kvstore.ParameterTrainer.reset_store`."""
        store = self.opened
        if store is not None and store.is_distributed:
            raise StateError(
                f"The store {store.type!r} is shared with other processes and cannot be made anew.",
                advice="Make a new trainer on all ranks.",
            )
        tables = [handle for handle in self._handles if isinstance(handle, TableParameter)]
        if tables and store is not None:
            raise StateError(
                f"The store holds the table {tables[0].name!r}, which would be lost.",
                advice="Save it with all_rows() and make a new trainer.",
            )
        if store is not None:
            store.close()
        self.opened = self.decision = None
        self.waiting = list(self._handles)
        self._versions.forget()
