"""Gluon's trainer for PyTorch: parameters and an optimizer bound once, then ``step(batch_size)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ostinato.errors import ArgumentTypeError, ArgumentValueError, ContractError, StateError
from ostinato.kvstore.compression import CompressionScheme
from ostinato.kvstore.decision import check_aggregation
from ostinato.kvstore.fresh_gradients import FreshGradients, find_fresh_gradients
from ostinato.kvstore.gradient_scale import GradientScale, Losses
from ostinato.kvstore.loss_scaler import LossScaler
from ostinato.kvstore.optimizer_binding import bind_optimizer
from ostinato.kvstore.parameter_binding import Parameters, bind_parameters
from ostinato.kvstore.parameter_update import ParameterUpdate
from ostinato.kvstore.parameters import ParameterHandle, some
from ostinato.kvstore.replica_updaters import ReplicaUpdaters
from ostinato.kvstore.store import Store
from ostinato.kvstore.tables import TableParameter
from ostinato.kvstore.trainer_state import TrainerState
from ostinato.kvstore.trainer_state_files import read_states, write_states_once
from ostinato.kvstore.trainer_store import TrainerStore
from ostinato.kvstore.weight_versions import WeightVersions
from ostinato.optim.argument_checks import require_finite, require_flag, require_mapping, require_path
from ostinato.optim.nearest_names import did_you_mean
from ostinato.optim.row_sparse_gradient import RowSparse

if TYPE_CHECKING:
    from ostinato.kvstore.loop_optimizer import LoopOptimizer


class ParameterTrainer:
    """Applies an optimizer to parameters, after adding up their gradients over replicas and ranks.

    The usual loop::

        trainer = ParameterTrainer(dict(model.named_parameters()), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        trainer.open()  # all replicas on all ranks begin with rank 0's weights
        for inputs, targets in loader:
            trainer.zero_grad()
            loss_function(model(inputs), targets).sum().backward()
            trainer.step(len(inputs))

    The gradient that is applied is the *sum* over replicas and ranks, divided by the batch size given to :meth:`step`:
    for losses summed over samples give the number of samples of all ranks together, for losses that are means already
    give the number of losses that were summed.

    Nothing is opened here. The first call that needs it creates the store, decides where updates run (see
    :mod:`ostinato.kvstore.decision`) and brings every replica on every rank to rank 0's values. Every public call that
    says so is then a collective: all ranks make it, in the same order.

    :param params: parameters by name, ordered by name, or a list of them in an order that all ranks share. An element
        is an ``nn.Parameter``, a list of its replicas, a :class:`~ostinato.kvstore.ParameterHandle` or a
        :class:`~ostinato.kvstore.TableParameter`. Lazy parameters may still be without a shape.
    :param optimizer: the name of one of :mod:`ostinato.optim.rules`, such an optimizer, or one of ``torch.optim``
        (class or object).
    :param optimizer_params: keyword arguments of the optimizer; only with a name or a class.
    :param kvstore: name of a store, a store, or None for none.
    :param compression_params: such as ``{"type": "2bit", "threshold": 0.5}``.
    :param update_on_kvstore: True: the store updates; False: the replicas do; None: whichever suits.
    :raises ArgumentValueError: ``params`` is of a wrong kind or empty, the optimizer has an unknown name, or
        ``update_on_kvstore=True`` meets an optimizer that takes several weights in one call.
    :raises ArgumentTypeError: an unknown keyword of the optimizer.
    :raises ContractError: the parameters are on different devices, or an optimizer object came with parameters.
    :raises StateError: a parameter has no value yet, or a table belongs to another trainer.
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
        if compression_params is not None and not isinstance(compression_params, Mapping):
            CompressionScheme.from_params(compression_params)  # says what is wrong
        if update_on_kvstore is not None and not isinstance(update_on_kvstore, bool):
            raise ArgumentTypeError(
                f"update_on_kvstore is True, False or None, not {update_on_kvstore!r}.",
                advice="Leave it out to let the store decide.",
            )
        self._handles = bind_parameters(params)
        self._optimizer = bind_optimizer(optimizer, optimizer_params, self._handles)
        check_aggregation(update_on_kvstore, self._optimizer.aggregate_num > 1)
        for handle in self._handles:
            if isinstance(handle, TableParameter):
                handle.bind(self)
        self._by_name = {handle.name: handle for handle in self._handles}
        self._replicas = len(self._handles[0].replicas)
        compression = None if compression_params is None else dict(compression_params)
        self._updaters = ReplicaUpdaters(self._optimizer, self._replicas)
        self._versions = WeightVersions()
        self._store = TrainerStore(
            kvstore,
            self._handles,
            self._optimizer,
            self._versions,
            asked=update_on_kvstore,
            compression=compression,
        )
        self._scale = GradientScale(self._optimizer)
        self._update = ParameterUpdate(
            self._handles, self._updaters, self._versions, self._scale, compresses=compression is not None
        )
        self._state = TrainerState(self._handles, self._optimizer, self._updaters, compression)
        for handle in self._handles:
            handle.watch()

    def __repr__(self) -> str:
        return f"ParameterTrainer({len(self._handles)} parameters, {self._optimizer!r}, {self._store.given!r})"

    # --- what it is made of ---------------------------------------------------------------------------------------

    @property
    def parameters(self) -> dict[str, ParameterHandle]:
        """The parameters by name, in their order; multipliers are set here, or on the ``nn.Parameter``."""
        return dict(self._by_name)

    @property
    def optimizer(self) -> Any:
        """The optimizer, the same object for all replicas and for the store."""
        return self._optimizer

    @property
    def num_replicas(self) -> int:
        """How many copies of the parameters there are in this process."""
        return self._replicas

    @property
    def kvstore(self) -> Store | None:
        """The store; None before the first step, and where there is none."""
        return self._store.opened

    @property
    def update_on_kvstore(self) -> bool | None:
        """Where updates run: True on the store, False on the replicas, None on the replicas without a store.

        :raises StateError: before the first step nothing is decided.
        """
        if self._store.decision is None:
            raise StateError("Where updates run is decided by the first step.", advice="Ask again after it.")
        return self._store.decision.update_on_kvstore

    @property
    def learning_rate(self) -> float:
        """The rate that the last update used, before multipliers; the schedule's, where there is one."""
        return float(self._optimizer.learning_rate)

    def set_learning_rate(self, rate: float) -> None:
        """Change the rate; the next update uses it, wherever it runs.

        :raises UpdateRefusedError: a schedule gives the rate.
        """
        self._optimizer.set_learning_rate(rate)

    def set_multipliers(
        self, *, lr_mult: Mapping[str, float] | None = None, wd_mult: Mapping[str, float] | None = None
    ) -> None:
        """Set factors of rate and weight decay by parameter name; the next update uses them.

        :raises ArgumentValueError: no parameter has such a name, and the nearest ones are suggested; or a factor is
            not finite. Nothing is set then.
        :raises ArgumentTypeError: a factor is no number. Nothing is set then.
        """
        for given in (lr_mult, wd_mult):
            if given is not None:
                require_mapping("The multipliers", given, "Write {'bias': 2.0}.")
        for name, factor in (*(lr_mult or {}).items(), *(wd_mult or {}).items()):
            require_finite(f"The multiplier of {self._handle(name).name!r}", factor)
        for name, factor in (lr_mult or {}).items():
            self._by_name[name].lr_mult = factor
        for name, factor in (wd_mult or {}).items():
            self._by_name[name].wd_mult = factor

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear all gradients. Parameters with ``grad_req`` write need no clearing."""
        require_flag("set_to_none", set_to_none)
        for handle in self._handles:
            handle.zero_grad(set_to_none)

    def as_optimizer(self, models: Sequence[nn.Module]) -> LoopOptimizer:
        """What the loop's updaters step in this trainer's place; ``StandardUpdater(model, trainer, loader)`` asks.

        See :class:`~ostinato.kvstore.LoopOptimizer`, which can be told a batch size too.
        """
        from ostinato.kvstore.loop_optimizer import LoopOptimizer  # which knows this class

        return LoopOptimizer(self, models)

    # --- updating -------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Create the store, decide where updates run and bring all replicas to rank 0's values, as far as that is not
        done. Every call that needs it does this by itself; replicas or ranks whose first weights differ want it before
        the first forward pass. A collective.

        Row-sparse gradients that decide where updates run have to be announced then (``grad_stype``), because no
        gradient is there to be seen.
        """
        self._store.open()
        self._state.take(self._store)

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Add up the gradients and apply them. A collective.

        An error leaves weights, gradients, optimizer state and freshness as they were, on every rank.

        :param batch_size: what the summed gradient is divided by, above 0.
        :param ignore_stale_grad: leave parameters alone that no rank has back-propagated to since their last update:
            no decay, no momentum, no count.
        :raises UpdateRefusedError: such a parameter exists and is not ignored; or the batch size changed and the
            store's copy of the optimizer cannot follow.
        """
        require_flag("ignore_stale_grad", ignore_stale_grad)
        self._scale.begin_step(batch_size, self._store.updating)
        self.open()
        self._check_workers_agree()
        found = self._look_at_gradients(ignore_stale_grad)
        if self._store.updating is not None:
            self._update.on_store(self._store.updating, found)
        else:
            self._update.add_up(self._store.opened, found.unsummed)
            self._update.on_replicas(self._store.opened, found.fresh)
        self._scale.end_step()

    def allreduce_grads(self) -> None:
        """Add up the gradients and leave the sum in every replica's gradient buffer, to be changed before
        :meth:`update`. Gradients that no backward pass has written since are not added up again. A collective.

        :raises ContractError: the store updates.
        """
        self.open()
        self._store.refuse_updating("allreduce_grads")
        self._update.add_up(self._store.opened, self._look_at_gradients(ignore_stale_grad=True).unsummed)

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Apply gradients that were added up by :meth:`allreduce_grads`. A collective, like :meth:`step`.

        :raises ContractError: the store updates.
        :raises StateError: some gradients are not added up yet. Nothing is changed then.
        :raises UpdateRefusedError: see :meth:`step`.
        """
        require_flag("ignore_stale_grad", ignore_stale_grad)
        self.open()
        self._store.refuse_updating("update")
        self._scale.begin_step(batch_size, None)
        self._check_workers_agree()
        found = self._look_at_gradients(ignore_stale_grad)
        if found.unsummed and (self._store.opened is not None or self._replicas > 1):
            raise StateError(
                f"The gradient of {some([handle.name for handle in found.unsummed])} was written by a backward pass "
                "and not added up over replicas and ranks since.",
                advice="Call allreduce_grads() after the last backward pass and before update(), or step() alone.",
            )
        self._update.on_replicas(self._store.opened, found.fresh)
        self._scale.end_step()

    def holding(self) -> AbstractContextManager[None]:
        """Inside this, backward does not start exchanging gradients: more passes add to them before the next step."""
        return nullcontext() if self._store.opened is None else self._store.opened.holding()

    def _check_workers_agree(self) -> None:
        """Ranks that scale or step differently would drift apart without a word."""
        if self._store.opened is not None:
            optimizer = self._optimizer
            self._store.opened.check_workers_agree(
                {"rate": optimizer.learning_rate, "wd": optimizer.wd, "rescale_grad": optimizer.rescale_grad}
            )

    def _look_at_gradients(self, ignore_stale_grad: bool) -> FreshGradients:
        return find_fresh_gradients(
            self._handles,
            self._store.opened,
            self._versions,
            without_value={handle.index for handle in self._store.waiting},
            ignore_stale_grad=ignore_stale_grad,
        )

    # --- loss scaling ---------------------------------------------------------------------------------------------

    @property
    def loss_scaler(self) -> LossScaler | None:
        """Scales losses for float16, see :meth:`scale_loss`; None: no scaling, and gradients are not looked at."""
        return self._scale.scaler

    @loss_scaler.setter
    def loss_scaler(self, scaler: LossScaler | None) -> None:
        self._scale.scaler = scaler

    @property
    def last_update_skipped(self) -> bool:
        """The last step found gradients that are not finite and changed nothing; only with a ``loss_scaler``."""
        return self._update.was_skipped

    def scale_loss(self, loss: Losses) -> Losses:
        """Multiply a loss, or each of a list of losses, by the loss scale; the next step divides by it again.

        :raises StateError: there is no ``loss_scaler``.
        """
        return self._scale.scale_loss(loss)

    def unscale(self) -> None:
        """Take the loss scale out of the gradients now, to clip or look at them; the next step leaves it out.

        A gradient buffer that a backward pass writes afterwards is scaled again, so this comes after the last one.
        """
        self._scale.unscale(self._handles)

    # --- weights --------------------------------------------------------------------------------------------------

    def set_data(self, name: str, value: Tensor) -> None:
        """Replace a weight on all replicas, and on the store; its optimizer state stays. All ranks call it.

        Loading a checkpoint into the model does the same: a weight that changed since the last step is noticed there.

        :raises ArgumentValueError: there is no such parameter, or the shape is another one.
        """
        self._handle(name).set_data(value)

    def reset_store(self) -> None:
        """Forget the store, what it decided and the optimizer state that it holds; the next step starts anew.

        :raises StateError: the store is distributed, or holds tables.
        """
        self._store.reset()

    def replace_table(self, table: TableParameter, value: Tensor) -> None:
        """Replace all rows of a table. A collective where the store is distributed."""
        self._opened_store().set_value(table.index, value)

    def pull_rows(self, table: TableParameter, row_ids: Sequence[Tensor]) -> list[RowSparse]:
        """Pull rows of a table, once for each list of row numbers. A collective where the store is distributed."""
        found = self._opened_store().row_sparse_pull(table.index, list(row_ids), -table.index)
        assert isinstance(found, list)
        return found

    def pull_table(self, table: TableParameter) -> Tensor:
        """Pull a whole table to the first replica's device. A collective where the store is distributed."""
        store = self._opened_store()
        whole = torch.empty(table.shape, dtype=table.dtype, device=table.devices[0])
        if store.is_distributed:
            found = store.row_sparse_pull(table.index, torch.arange(len(whole), device=whole.device))
            assert isinstance(found, RowSparse)
            return whole.copy_(found.values)
        store.pull(table.index, whole, ignore_sparse=False)
        return whole

    def _opened_store(self) -> Store:
        self.open()
        assert self._store.opened is not None, "a trainer of tables has a store"
        return self._store.opened

    def catch_up(self, name: str, rows: Tensor | None = None) -> None:
        """Bring rows of a dense weight up to date whose updates were put off (SGD's ``update="dense_lazy"``).

        Comes before a forward pass reads them, and without ``rows`` before a model is evaluated or exported. Where the
        store updates, what is pulled is up to date.

        :param rows: row numbers, any shape; None for all.
        """
        handle = self._handle(name)
        if rows is not None and not isinstance(rows, Tensor):
            raise ArgumentTypeError(
                f"Row numbers are a tensor of integers, not {type(rows).__name__}.", advice="Use torch.as_tensor()."
            )
        if self._store.updating is None and not handle.is_deferred:
            self._updaters.catch_up(handle, rows)
            self._versions.remember([handle])

    # --- states ---------------------------------------------------------------------------------------------------

    def state_dict(self, *, in_parts: bool = False) -> dict[str, Any]:
        """Everything that the next update depends on besides the weights, as a plain tree, by parameter name.

        The tensors are the living ones. A collective where a distributed store updates.

        :param in_parts: for a run folder that ranks save together (:class:`~ostinato.extensions.Snapshot`): each rank
            gives the part it owns of what is cut over the ranks, as :class:`~ostinato.runs.RowCut` leaves, and what
            its own compression holds back, as a :class:`~ostinato.runs.PerRank` leaf; the rows of tables are there
            too. No rank waits for another, and none holds the whole of what is cut.
        """
        return self._state.saved(self._store, self.loss_scaler, in_parts=in_parts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state_dict` gave, on any number of ranks and replicas and in any order of names.

        May come before the first step. Multipliers are not part of a state: they stay as they are here.

        Of residuals of compression, rank r of W takes over the sum of those of the old ranks r, r + W, r + 2 W, ...: in
        sum all that was owed is still owed.

        :raises ArgumentValueError: the state is of another optimizer, of an unknown format, or a tensor in it does not
            fit its parameter. Nothing is changed then.
        :raises StateError: what compression held back belongs to another type of compression. Nothing is changed then.
        """
        self._state.load(state, self.loss_scaler)
        if self._store.decision is not None:
            self._state.take(self._store)
        else:
            self._state.keep()

    def save_states(self, path: str | Path) -> None:
        """Write :meth:`state_dict` to a file, whole or not at all. A collective; rank 0 writes, the others wait for it
        (but where training is asynchronous).

        :raises OSError: the file cannot be written.
        :raises ContractError: the store updates, and a parameter has no shape yet.
        """
        file = require_path("path", path)
        self.open()
        if self._store.updating is not None and self._store.waiting:
            raise ContractError(
                f"{some([h.name for h in self._store.waiting])} has no shape yet, so the store has no state for it.",
                advice="Run the model once before saving.",
            )
        write_states_once(file, self.state_dict(), self._store.opened)

    def load_states(self, path: str | Path) -> None:
        """Continue from a file of :meth:`save_states`, or from a ``.states`` file of MXNet. All ranks read it.

        :raises BadInputError: the file cannot be read, or is damaged.
        :raises ArgumentValueError: what it holds does not fit; see :meth:`load_state_dict`. Nothing is changed then.
        """
        self.load_state_dict(read_states(require_path("path", path), self._optimizer, self._handles))

    def _handle(self, name: str) -> ParameterHandle:
        if not isinstance(name, str) or name not in self._by_name:
            raise ArgumentValueError(f"No parameter is named {name!r}.", advice=did_you_mean(f"{name}", self._by_name))
        return self._by_name[name]
