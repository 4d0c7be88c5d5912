"""The store of asynchronous training: servers keep and update the weights, workers come and go at their own pace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ostinato.dist import Group
from ostinato.errors import ArgumentTypeError, StateError
from ostinato.kvstore.built_in_store import are_finite
from ostinato.kvstore.compression import CompressionScheme, Compressor
from ostinato.kvstore.distributed_store import DistributedStore
from ostinato.kvstore.placed_array import Placed, placed_value
from ostinato.kvstore.registry import register_built_in
from ostinato.kvstore.row_sparse_exchange import row_borders
from ostinato.kvstore.row_sparse_tables import ROWS_FILE, checked_row_ids
from ostinato.kvstore.server_link import ServerLink
from ostinato.kvstore.server_placement import Part
from ostinato.kvstore.server_states import ServerStates
from ostinato.kvstore.store import Key, Store, Value, Values
from ostinato.kvstore.store_arguments import check_saved_states, checked_optimizer, no_optimizer
from ostinato.kvstore.summing import sum_values
from ostinato.kvstore.transport import Message, Transport
from ostinato.optim.rate_schedules import RateSchedule
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Optimizer
from ostinato.runs.row_cut import RowCut, RowCutTable


class AsyncStore(DistributedStore):
    """``dist_async``: a push is applied by the servers as it arrives, and nobody waits for the other workers.

    The update always runs on the store. There is one optimizer state for each key, which all workers push to, so
    momentum mixes their gradients, and counts and schedules advance once for every worker's push. Rate, multipliers,
    decay and rescaling follow the worker that pushes.

    Started alone, without servers, a worker keeps a server in its own process. Otherwise servers are processes of their
    own: ``ostinato launch --servers N`` starts them and tells the workers.

    :param type: the name it was created by.
    :param group: the workers; ``None`` for those of this process. Only rank and size are used.
    :param transport: the way to the servers; ``None`` for the one that the environment names.
    :param staleness: for a server in this process, see :class:`~ostinato.kvstore.server_core.ServerCore`.
    """

    def __init__(
        self,
        type: str = "dist_async",
        group: Group | None = None,
        *,
        transport: Transport | None = None,
        staleness: int | None = None,
    ) -> None:
        super().__init__(type, group)
        self._servers = ServerLink(transport, self._group, staleness)
        self._placed: dict[Key, Placed] = {}
        self._states = ServerStates(self._servers, self._placed)
        self._optimizer: Optimizer | None = None
        self._told: dict[str, Any] | None = None
        self.versions: Counter[Key] = Counter()
        """For each key, how many updates the value had seen that came with the last answer."""

    def __repr__(self) -> str:
        return f"AsyncStore({self._type!r}, {len(self._placed)} keys)"

    @property
    def bytes_sent(self) -> int:
        """Bytes of this worker's messages so far."""
        return self._servers.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Bytes of the servers' answers to this worker so far."""
        return self._servers.bytes_received

    # --- keys and values ------------------------------------------------------------------------------------------

    def init(self, key: Key | Sequence[Key], value: Values) -> None:
        """See :meth:`Store.init`. Returns when worker 0's values have arrived."""
        servers = self._servers.servers
        rule = "elements" if self._optimizer is None else self._optimizer.cut
        placed: dict[Key, Placed] = {}
        whole: dict[Key, Tensor] = {}
        for one, first in self._firsts(key, value).items():
            is_table = isinstance(first, RowSparse)
            dense = first.to_dense() if isinstance(first, RowSparse) else first
            number = one if isinstance(one, int) else len(self._placed) + len(placed)
            placed[one] = placed_value(number, dense, servers, rule=rule, scheme=self._scheme, is_table=is_table)
            whole[one] = dense.detach()
        messages: dict[int, Message] = {}
        for one, where in placed.items():
            for part in where.parts:
                message = messages.setdefault(part.server, {"call": "init", "values": {}})
                message["values"][one] = where.piece(part, whole[one]) if self.rank == 0 else None
        self._servers.ask(messages)
        self._placed.update(placed)

    def _read(self, outputs: Mapping[Key, Sequence[Tensor]]) -> None:
        wanted = {key: targets for key, targets in outputs.items() if targets}
        if wanted:
            messages = {server: {"call": "pull", "keys": keys} for server, keys in self._keys_by_server(wanted).items()}
            self._read_answers(self._servers.ask(messages), wanted)

    def _rows(self, key: Key, row_ids: Tensor) -> RowSparse:
        placed = self._placed[key]
        rows = checked_row_ids(self._label(key), row_ids, placed.shape)
        if not placed.by_rows:
            whole = torch.empty(placed.shape, dtype=placed.dtype)
            self._read({key: [whole]})
            return RowSparse(rows, whole[rows.cpu()].to(row_ids.device), tuple(placed.shape))
        there, chosen = rows.cpu(), {}
        for part in placed.parts:
            chosen[part] = (there >= part.start) & (there < part.start + part.length)
        messages: dict[int, Message] = {
            part.server: {"call": "pull_rows", "key": key, "rows": there[mine] - part.start}
            for part, mine in chosen.items()
            if bool(mine.any())
        }
        answers = self._servers.ask(messages)
        values = torch.empty((len(there), *placed.shape[1:]), dtype=placed.dtype)
        for part, mine in chosen.items():
            if part.server in messages:
                values[mine] = answers[part.server]["values"]
                self.versions[key] = answers[part.server]["versions"][key]
        return RowSparse(rows, values.to(row_ids.device), tuple(placed.shape))

    def _replace(self, key: Key, value: Tensor) -> None:
        placed = self._placed[key]
        self.barrier()  # what others pushed before comes before
        if self.rank == 0:
            self._servers.ask(
                {
                    part.server: {"call": "set_value", "key": key, "value": placed.piece(part, value)}
                    for part in placed.parts
                }
            )
        self.barrier()

    def _own_rows(self, key: Key) -> Tensor | RowCut:
        """This worker's share of the rows, pulled."""
        rank, size = self._seat()
        total = self._placed[key].shape[0]
        first, last = row_borders(total, size)[rank : rank + 2]
        rows = self._rows(key, torch.arange(first, last)).values
        return rows if size == 1 else RowCut(rows, first, total, file=ROWS_FILE)

    def _take_rows(self, key: Key, rows: Tensor | RowCutTable) -> None:
        """Worker 0 hands them to the servers, part by part, and the others wait for it."""
        placed = self._placed[key]
        self.barrier()
        if self.rank == 0:
            for part in placed.parts:
                value = placed.cut_rows(part, rows)
                self._servers.ask({part.server: {"call": "set_value", "key": key, "value": value}})
        self.barrier()

    # --- the exchange ---------------------------------------------------------------------------------------------

    def _exchange(
        self,
        values: Mapping[Key, Sequence[Value]],
        outputs: Mapping[Key, Sequence[Tensor]],
        *,
        only_if_finite: bool,
        in_place: bool,
    ) -> bool:
        """One message to each server. A key with nothing to push is pulled only."""
        if self._optimizer is None:
            raise StateError(
                "Something was pushed to an asynchronous store that has no optimizer.",
                advice="An asynchronous store has to update: call set_optimizer() before the first push.",
            )
        given = {key: self._checked(key, pushed) for key, pushed in values.items() if pushed}
        if only_if_finite and not are_finite(given):
            return False
        outputs = {key: targets for key, targets in outputs.items() if targets}
        sums = {key: _sum(pushed) for key, pushed in given.items()}
        messages: dict[int, Message] = {}
        for server, keys in self._keys_by_server(outputs).items():
            messages[server] = {"call": "pushpull", "values": {}, "keys": keys}
        for key, total in sums.items():
            for part, piece in self._pieces(key, total):
                message = messages.setdefault(part.server, {"call": "pushpull", "values": {}, "keys": []})
                message["values"][key] = piece
        settings = self._settings()
        if settings != self._told:
            # Every server has to know, also those that this push does not touch.
            for server in range(self._servers.servers):
                messages.setdefault(server, {"call": "pushpull", "values": {}, "keys": []})["settings"] = settings
        answers = self._servers.ask(messages)
        self._told = settings
        self._optimizer.num_update = max(
            [self._optimizer.num_update, *(int(answer["num_update"]) for answer in answers.values())]
        )
        self._read_answers(answers, outputs)
        return True

    def _pieces(self, key: Key, total: Value) -> Iterator[tuple[Part, Any]]:
        placed = self._placed[key]
        if isinstance(total, RowSparse):
            if not placed.by_rows:
                yield from self._pieces(key, total.to_dense())
                return
            indices, rows = total.indices.cpu(), total.values.cpu()
            for part in placed.parts:
                mine = (indices >= part.start) & (indices < part.start + part.length)
                yield part, {"rows": indices[mine] - part.start, "values": rows[mine]}
            return
        if self._compressor is None:
            for part in placed.parts:
                yield part, placed.piece(part, total.detach())
            return
        scheme = self._compressor.scheme
        packed = self._compressor.compress(key, total.detach().contiguous())
        for part in placed.parts:
            elements = placed.piece(part, total).numel()
            words = packed if len(placed.parts) == 1 else packed[scheme.packed_bytes(part.start) :]
            words = words[: scheme.packed_bytes(elements)]
            sent = {"packed": words, "elements": elements, "type": scheme.type, "threshold": scheme.threshold}
            yield part, sent

    def _keys_by_server(self, keys: Mapping[Key, object]) -> dict[int, list[Key]]:
        found: dict[int, list[Key]] = {}
        for key in keys:
            for part in self._placed[key].parts:
                found.setdefault(part.server, []).append(key)
        return found

    def _read_answers(self, answers: Mapping[int, Message], outputs: Mapping[Key, Sequence[Tensor]]) -> None:
        for key, targets in outputs.items():
            placed = self._placed[key]
            if len(placed.parts) == 1:
                whole = answers[placed.parts[0].server]["values"][key].view(placed.shape)
            else:
                whole = torch.empty(placed.shape, dtype=placed.dtype)
                for part in placed.parts:
                    placed.piece(part, whole).copy_(answers[part.server]["values"][key])
            self.versions[key] = min(answers[part.server]["versions"][key] for part in placed.parts)
            self._write(key, whole, targets)

    # --- the optimizer --------------------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """See :meth:`Store.set_optimizer`. Servers make their own from its settings, and are told of every change.

        :raises ArgumentTypeError: its schedule is a function, which cannot be sent.
        :raises StateError: keys were initialised before.
        """
        optimizer = checked_optimizer(optimizer)
        if self._placed:
            raise StateError(
                "An optimizer was given to an asynchronous store after its first key.",
                advice="Call set_optimizer() before the first key is initialised.",
            )
        if optimizer.lr_scheduler is not None and not isinstance(optimizer.lr_scheduler, RateSchedule):
            raise ArgumentTypeError(
                "The learning rate comes from a function, and servers can only be told of a schedule by its settings.",
                advice="Use one of ostinato.optim.rate_schedules.",
            )
        self._optimizer = optimizer
        settings = self._settings()
        self._servers.ask_all({"call": "optimizer", "settings": settings})
        self._told = settings

    def _settings(self) -> dict[str, Any]:
        optimizer = self._optimizer
        assert optimizer is not None
        multipliers = {
            key: [float(getattr(parameter, "lr_mult", 1.0)), float(getattr(parameter, "wd_mult", 1.0))]
            for key, parameter in optimizer.param_dict.items()
        }
        return {"optimizer": {**optimizer.state_dict(), "counts": {}, "num_update": 0}, "multipliers": multipliers}

    def save_optimizer_states(self) -> dict[str, Any]:
        """See :meth:`Store.save_optimizer_states`. Other workers may go on pushing meanwhile."""
        return self._states.whole(self._updating())

    def optimizer_states_in_parts(self) -> dict[str, Any]:
        """See :meth:`Store.optimizer_states_in_parts`. Of what is cut over servers each worker asks for its share."""
        rank, size = self._seat()
        if size == 1:
            return self.save_optimizer_states()
        return self._states.in_parts(self._updating(), rank, size)

    def load_optimizer_states(self, states: Mapping[str, Any]) -> None:
        """See :meth:`Store.load_optimizer_states`. Worker 0's count, and the others wait for it.

        :raises StateError: keys are not initialised yet, so it is not known which server takes what.
        """
        optimizer = self._updating()
        self._states.load(check_saved_states(states), optimizer, is_first=self.rank == 0)

    def _updating(self) -> Optimizer:
        if self._optimizer is None:
            raise no_optimizer()
        return self._optimizer

    # --- compression ----------------------------------------------------------------------------------------------

    def set_gradient_compression(self, parameters: Mapping[str, Any]) -> None:
        """See :meth:`Store.set_gradient_compression`. Pushes are compressed, pulls are not.

        :raises StateError: keys were initialised before; they are cut between words.
        """
        if self._placed:
            raise StateError(
                "Compression was asked of an asynchronous store after its first key.",
                advice="Call set_gradient_compression() before the first key is initialised.",
            )
        self._scheme = CompressionScheme.from_params(parameters)
        self._compressor = Compressor(self._scheme)

    def residuals(self) -> list[dict[str, Any]]:
        """See :meth:`Store.residuals`: what this worker alone has held back. Workers do not wait for one another, so in
        the places of the others is nothing."""
        if self._compressor is None:
            return []
        own = self._compressor.state_dict()
        rank, size = self._seat()
        return [own if worker == rank else {**own, "residuals": {}} for worker in range(size)]

    # --- working with a trainer -----------------------------------------------------------------------------------

    def barrier(self) -> None:
        """See :meth:`Store.barrier`. Workers that are gone are not waited for."""
        self._servers.barrier()

    def close(self) -> None:
        """See :meth:`Store.close`. Servers end when all workers have closed."""
        self._servers.close()

    def _has(self, key: Key) -> bool:
        return key in self._placed

    def _is_table(self, key: Key) -> bool:
        return self._placed[key].is_table

    def _shape(self, key: Key) -> torch.Size:
        return self._placed[key].shape


def _sum(values: Sequence[Value]) -> Value:
    """The sum over the replicas of this worker."""
    return values[0] if len(values) == 1 else sum_values(values, values[0].device)


_factory: Callable[[str, Any], Store] = AsyncStore
register_built_in("dist_async", _factory)
