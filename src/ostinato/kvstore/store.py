"""What every key-value store can be asked.

A store keeps one value for every *key*. Workers *push* gradients under a key; the store adds up what the replicas and
the workers pushed, and either keeps the sum or hands it to an optimizer that changes the stored weight; workers *pull*
what is stored. Which of the two a trainer asks for is decided in :mod:`ostinato.kvstore.decision`.

Every call takes one key or a list of keys. With one key, a value is one tensor or a list with one tensor for each
replica; with a list of keys, it is a list of those. A list call is one exchange: stores put its values together in as
few messages as they can, so a trainer makes one call for a whole step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal, NoReturn, TypeAlias

from torch import Tensor

from ostinato.dist.per_rank import PerRank
from ostinato.errors import OstinatoError
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.runs.row_cut import RowCut, RowCutTable

Key: TypeAlias = int | str
"""A store's keys are all numbers or all text; its first call decides."""

Value: TypeAlias = Tensor | RowSparse
"""A dense tensor, a ``torch.sparse_coo`` tensor whose first dimension is sparse, or the rows of a table."""

Values: TypeAlias = Value | Sequence[Value] | Sequence[Value | Sequence[Value]]
"""For one key: one value or one for each replica. For a list of keys: a list of those."""

Outputs: TypeAlias = Tensor | Sequence[Tensor] | Sequence[Tensor | Sequence[Tensor]]
"""Tensors that are written to, arranged like :data:`Values`. An empty list for a key: nothing is pulled for it."""

Updater: TypeAlias = Callable[[Any, Any, Any], object]
"""Changes stored weights in place: called with (key, sum, stored), or with three lists of equal length."""

Capability: TypeAlias = Literal["optimizer", "row_sparse", "compression", "live_optimizer"]
"""What a store may be able to do:

``optimizer``
    apply an optimizer to what is stored;
``row_sparse``
    take row-sparse gradients and keep tables whose rows are pulled one by one;
``compression``
    send gradients compressed;
``live_optimizer``
    follow changes to the optimizer (rate, multipliers, rescaling) made after it was handed over.
"""


class StoreCallError(OstinatoError, AttributeError):
    """This store has no such call. Fields: ``store``, ``call``."""


class Store(ABC):
    """A key-value store. A plug-in derives from this and gives at least the abstract members.

    Constructing a store opens nothing; what it needs of other processes it takes when the first key is initialised.
    """

    built_in: ClassVar[bool] = False
    """True for the stores of this package; a name is looked up among plug-ins first."""

    @property
    @abstractmethod
    def type(self) -> str:
        """The lower-cased name the store was created by, such as ``"dist_sync"``."""

    @property
    def rank(self) -> int:
        """Number of this worker, from 0."""
        return 0

    @property
    def num_workers(self) -> int:
        """How many workers share the store, at least 1. Servers are not counted."""
        return 1

    @property
    def is_distributed(self) -> bool:
        """True when other processes share the store, or could."""
        return "dist" in self.type

    @property
    def is_asynchronous(self) -> bool:
        """True when a push is applied as it arrives, without waiting for the other workers."""
        return self.is_distributed and "_async" in self.type

    @abstractmethod
    def is_capable(self, capability: Capability) -> bool:
        """Tell whether the store can do this, see :data:`Capability`."""

    # --- keys and values ----------------------------------------------------------------------------------------

    def init(self, key: Key | Sequence[Key], value: Values) -> None:
        """Create keys, each with a copy of its value; worker 0's value counts. All workers have to call this.

        A :class:`RowSparse` value makes a table whose rows are pulled with :meth:`row_sparse_pull`; rows that it does
        not list are zero.

        :raises ArgumentValueError: the key exists, or is of the other kind.
        """
        self._refuse("init")

    @abstractmethod
    def broadcast(
        self, key: Key | Sequence[Key], value: Values, out: Outputs, priority: int | Sequence[int] = 0
    ) -> None:
        """:meth:`init` and :meth:`pull` in one, so once per key: every output receives worker 0's value."""

    def push(self, key: Key | Sequence[Key], value: Values, priority: int | Sequence[int] = 0) -> None:
        """Add up the values over replicas and workers; update what is stored, or replace it where nothing updates.

        The values are left as they are, and the store keeps no reference to them. Where nothing updates, a row-sparse
        push replaces the listed rows.

        :raises ArgumentValueError: a key is unknown, a shape does not fit, or a row number is out of range.
        """
        self._refuse("push")

    def pull(
        self, key: Key | Sequence[Key], out: Outputs, priority: int | Sequence[int] = 0, ignore_sparse: bool = True
    ) -> None:
        """Copy what is stored to the outputs, after this worker's own last push of the key.

        :param ignore_sparse: pass over tables whose rows are pulled one by one; with False, pull them whole.
        """
        self._refuse("pull")

    @abstractmethod
    def pushpull(
        self,
        key: Key | Sequence[Key],
        value: Values,
        out: Outputs | None = None,
        priority: int | Sequence[int] = 0,
        *,
        only_if_finite: bool = False,
    ) -> bool:
        """:meth:`push` and :meth:`pull` in one exchange; dense and row-sparse values may stand side by side.

        A key of a table with the output ``[]`` is pushed and not pulled.

        :param out: where to pull to; without it what is pulled overwrites the values, which is how replicas receive
            the sum of their gradients.
        :param priority: a hint: larger runs earlier. It never changes results.
        :param only_if_finite: look at every sum before anything is stored or updated; if one of them holds a NaN or an
            infinity, on any worker, change nothing at all: neither what is stored nor outputs nor residuals. An
            asynchronous store looks at what this worker pushes.
        :returns: False when ``only_if_finite`` made the store leave everything as it was.
        """

    def row_sparse_pull(
        self, key: Key | Sequence[Key], row_ids: Tensor | Sequence[Tensor], priority: int | Sequence[int] = 0
    ) -> RowSparse | list[RowSparse]:
        """Pull some rows of a table.

        :param row_ids: integers of any shape, repeats and any order allowed. A list for a list of keys; a list for one
            key gives one result for each entry.
        :returns: for each, the unique rows in ascending order, on the device of its ``row_ids``.
        :raises ArgumentValueError: a row number is out of range.
        """
        self._refuse("row_sparse_pull")

    # --- updating on the store ----------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: Any) -> None:
        """Let the store apply this optimizer to every sum. Called before the first key is initialised.

        The very object is kept: a store with the capability ``live_optimizer`` reads rate, multipliers, rescaling and
        schedule from it at every update, wherever the update runs, and keeps its ``num_update`` up to date, so that the
        rate which a trainer reports is the rate which is used.
        """
        self._refuse("set_optimizer")

    def set_updater(self, updater: Updater) -> None:
        """Let a function change what is stored: ``updater(key, sum, stored)``. Only for stores of one process."""
        self._refuse("set_updater")

    def save_optimizer_states(self) -> dict[str, Any]:
        """Give the state of the optimizer on the store as a plain tree. All workers have to call this.

        It has the form of :meth:`ostinato.optim.rules.Updater.state_dict`, by key, with whole tensors whatever way the
        store has cut them: another number of workers can load it, and so can replicas. Only rank 0 needs the tensors;
        what the other ranks receive is complete too, unless the store documents otherwise.

        :raises StateError: the store does not update.
        """
        self._refuse("save_optimizer_states")

    def optimizer_states_in_parts(self) -> dict[str, Any]:
        """The same for a run that ranks save together: of what is cut over the workers, each one's own part.

        Parts are :class:`~ostinato.runs.RowCut` leaves, so no worker holds the whole of them; what all workers share
        counts as worker 0 gives it. All workers have to call this, and need not wait for one another.
        """
        return self.save_optimizer_states()

    def load_optimizer_states(self, states: Mapping[str, Any]) -> None:
        """Continue from what :meth:`save_optimizer_states` or :meth:`optimizer_states_in_parts` gave, also before keys
        are initialised. In the places of parts are then :class:`~ostinato.runs.RowCutTable` leaves.

        All workers have to call this, each with the whole states. The settings of the optimizer are not part of them:
        its object is shared with the caller.

        :raises StateError: the store does not update.
        :raises ArgumentValueError: the states do not fit. Nothing is changed then.
        """
        self._refuse("load_optimizer_states")

    def set_value(self, key: Key, value: Tensor) -> None:
        """Replace what is stored under a key and keep its optimizer state. Worker 0's value counts; all have to call.

        A float32 master copy of the weight follows the new value.

        :raises ArgumentValueError: the key is unknown or the shape is another one.
        """
        self._refuse("set_value")

    def rows_in_parts(self, key: Key) -> Tensor | RowCut:
        """The rows of a table for a run that ranks save together, as :meth:`optimizer_states_in_parts` does."""
        self._refuse("rows_in_parts")

    def load_rows(self, key: Key, rows: Tensor | RowCutTable) -> None:
        """Continue with the saved rows of a table. All workers have to call this, each with the whole table; it reads
        what it needs. Comes before the states are loaded that belong to them.
        """
        self._refuse("load_rows")

    # --- compression --------------------------------------------------------------------------------------------

    def set_gradient_compression(self, parameters: Mapping[str, Any]) -> None:
        """Send gradients compressed from now on: ``{"type": "2bit", "threshold": 0.5}``. Cannot be switched off.

        :raises ArgumentValueError: the type is missing or unknown, or the threshold is refused.
        """
        self._refuse("set_gradient_compression")

    def residuals(self) -> list[dict[str, Any]]:
        """What compression has held back so far: one state for each worker or replica that compresses, in their order.

        Each has the form of :meth:`ostinato.kvstore.compression.Compressor.state_dict`, by key. Empty where nothing is
        compressed. All workers have to call this, and each is given the states of all.
        """
        return []

    def residuals_in_parts(self) -> list[dict[str, Any]] | PerRank:
        """The same for a run that ranks save together: this worker's own alone, as a leaf of its rank."""
        return self.residuals()

    def load_residuals(self, residuals: Sequence[Mapping[str, Any]]) -> None:
        """Continue from what :meth:`residuals` gave, with any number of workers: what is owed in sum stays the same.

        :raises StateError: they belong to another type of compression, or this store does not compress.
        """
        if residuals:
            self._refuse("load_residuals")

    # --- working with a trainer ---------------------------------------------------------------------------------

    def agree(self, flags: Sequence[bool]) -> list[bool]:
        """True where any worker says True, with the same answer on every worker. A collective.

        An asynchronous store gives the worker its own flags back, because workers do not wait for each other there.
        """
        return list(flags)

    def check_workers_agree(self, facts: Mapping[str, Any]) -> None:  # noqa: B027
        """Compare facts such as rates and scales over the workers, where a store can do so and is asked to.

        :raises StateError: a worker says something else.
        """

    def watch(self, parameters: Mapping[Key, Sequence[Tensor]]) -> None:  # noqa: B027 - nothing to do is an answer
        """Learn which parameters' gradients will be pushed under which keys, one parameter for each replica.

        A store may then hook backward and start exchanging before it is asked. Starting early must not show: until
        :meth:`pushpull` is called for a key the ``grad`` of its parameters stays the local one, a gradient that changes
        after the exchange has started is exchanged again, and an exchange that nobody asks for is dropped.
        """

    def holding(self) -> AbstractContextManager[None]:
        """Inside this, backward does not start exchanges: more backward passes follow before the next step."""
        return nullcontext()

    def name_keys(self, names: Mapping[Key, str]) -> None:  # noqa: B027
        """Learn the names of the parameters behind the keys, for messages."""

    def barrier(self) -> None:  # noqa: B027
        """Wait for all workers."""

    def close(self) -> None:  # noqa: B027
        """Let go of hooks, buffers, connections and threads. The store cannot be used afterwards; may be repeated."""

    def _refuse(self, call: str) -> NoReturn:
        raise StoreCallError(
            f"The store {self.type!r} has no {call}().",
            advice="Use one of the built-in stores: local, device, dist_sync, dist_async.",
            store=self.type,
            call=call,
        )
