"""The state of a parameter trainer: given away, taken back, and kept waiting until it is known where it belongs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ostinato.errors import ArgumentValueError
from ostinato.kvstore.compression import CompressionScheme, Compressor
from ostinato.kvstore.loss_scaler import LossScaler
from ostinato.kvstore.parameters import ParameterHandle
from ostinato.kvstore.replica_updaters import ReplicaUpdaters
from ostinato.kvstore.saved_leaves import holds_parts
from ostinato.kvstore.tables import TableParameter
from ostinato.kvstore.trainer_states import (
    FORMAT_IN_PARTS,
    check_form,
    copied,
    named_states,
    numbered_states,
    read_from_disk,
    renamed_in_parts,
    renamed_residuals,
    tables_of,
    take_settings,
)
from ostinato.kvstore.trainer_store import TrainerStore
from ostinato.optim.rules import Optimizer


class TrainerState:
    """What the next update of a trainer depends on besides the weights.

    :param handles: the parameters.
    :param optimizer: shared by replicas and store.
    :param updaters: hold the states where no store does.
    :param compression: the trainer's ``compression_params``.
    """

    def __init__(
        self,
        handles: Sequence[ParameterHandle],
        optimizer: Optimizer,
        updaters: ReplicaUpdaters,
        compression: Mapping[str, Any] | None,
    ) -> None:
        self._handles = handles
        self._optimizer = optimizer
        self._updaters = updaters
        self._compression = compression
        self._waiting: dict[str, Any] | None = None
        self._handed_over: dict[str, Any] | None = None  # in parts, to the last who asked

    def saved(self, trainer_store: TrainerStore, scaler: LossScaler | None, *, in_parts: bool) -> dict[str, Any]:
        """See :meth:`~ostinato.kvstore.ParameterTrainer.state_dict`."""
        store, updating = trainer_store.opened, trainer_store.updating
        if updating is None:
            raw = self._updaters.state_dict()
        else:
            raw = updating.optimizer_states_in_parts() if in_parts else updating.save_optimizer_states()
        state = named_states(raw, self._optimizer, self._handles)
        names = {handle.index: handle.name for handle in self._handles}
        if store is None:
            state["residuals"] = []
        elif in_parts:
            state["residuals"] = renamed_in_parts(store.residuals_in_parts(), names.get)
        else:
            state["residuals"] = list(renamed_residuals(store.residuals(), names.get))
        if in_parts:
            state["format"] = FORMAT_IN_PARTS
            state["tables"] = {
                table.name: store.rows_in_parts(table.index)
                for table in self._handles
                if store is not None and isinstance(table, TableParameter) and table.is_handed_over
            }
        if self._waiting is not None:
            # Loaded, and not taken over yet because a shape or the store is missing. A save may remove the files.
            self._waiting = read_from_disk(self._waiting, self._handles)
            parts = ("states", "counts", "residuals", *(("tables",) if in_parts else ()))
            state.update({part: self._waiting[part] for part in parts if part in self._waiting})
        state["loss_scaler"] = None if scaler is None else scaler.state_dict()
        if in_parts:
            self._handed_over = state
        return state

    def load(self, state: Mapping[str, Any], scaler: LossScaler | None) -> None:
        """Check a state, take its settings, and let the rest wait for :meth:`take`; see
        :meth:`~ostinato.kvstore.ParameterTrainer.load_state_dict`."""
        is_rows_alone = isinstance(state, Mapping) and state.keys() == {"tables"}
        if not is_rows_alone:
            check_form(state)
        if self._is_living(state):
            return
        if is_rows_alone:
            self._waiting = {**(self._waiting or {}), "tables": tables_of(state, self._handles)}
            return
        checked = take_settings(state, self._optimizer, self._handles, self._check_residuals)
        if scaler is not None and checked["loss_scaler"] is not None:
            scaler.load_state_dict(checked["loss_scaler"])
        self._waiting = checked

    def _is_living(self, state: Mapping[str, Any]) -> bool:
        """Whether this is what :meth:`saved` last gave, in parts: who finds nothing to load gives it back.

        :raises ArgumentValueError: these are parts that were not saved and read again.
        """
        if state is self._handed_over:
            return True
        if not holds_parts([state.get(part) for part in ("residuals", "states", "tables")]):
            return False
        raise ArgumentValueError(
            "A state was given back in the parts that are handed over to be saved.",
            advice="Let the ranks save it together (Snapshot does) and load that, or use state_dict() alone.",
        )

    def keep(self) -> None:
        """The tensors may be living ones, which somebody trains on with until :meth:`take` comes: copy them."""
        if self._waiting is not None:
            kept = self._waiting.keys() & {"states", "counts", "residuals", "tables"}
            self._waiting = {**self._waiting, **{part: copied(self._waiting[part]) for part in kept}}

    def take(self, trainer_store: TrainerStore) -> None:
        """Give what waits to the store and to the replicas' updaters."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        store, updating = trainer_store.opened, trainer_store.updating
        numbers = {handle.name: handle.index for handle in self._handles}
        if updating is not None:
            for name, rows in waiting["tables"].items():
                updating.load_rows(numbers[name], rows)
        if "states" not in waiting:  # rows alone
            return
        if updating is not None:
            updating.load_optimizer_states(numbered_states(waiting, self._optimizer, self._handles))
        else:
            there = read_from_disk({**waiting, "residuals": []}, self._handles)
            self._updaters.load_state_dict(numbered_states(there, self._optimizer, self._handles))
        if self._compression is not None and store is not None:
            store.load_residuals(renamed_residuals(waiting["residuals"], numbers.get))

    def _check_residuals(self, residuals: Sequence[Mapping[str, Any]]) -> None:
        """Refuse what would not fit later, when it is too late."""
        if self._compression is not None and residuals:
            Compressor(CompressionScheme.from_params(self._compression)).load_sum_of(residuals[:1])
