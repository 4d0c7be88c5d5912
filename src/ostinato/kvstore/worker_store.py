"""The store of asynchronous training: servers keep and update the weights, workers come and go at their own pace."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ostinato.dist import Group
from ostinato.dist.per_rank import PerRank
from ostinato.errors import ArgumentTypeError, ArgumentValueError, OstinatoError, StateError
from ostinato.kvstore.built_in_store import (
    BuiltInStore,
    check_residuals,
    check_saved_states,
    checked_group,
    checked_optimizer,
    no_compression,
    no_optimizer,
    refuse_compression,
)
from ostinato.kvstore.collective_calls import seat_of_this_process
from ostinato.kvstore.compression import CompressionScheme, Compressor, is_finite, residuals_for_rank
from ostinato.kvstore.keys import single_key
from ostinato.kvstore.registry import register_built_in
from ostinato.kvstore.row_sparse_exchange import row_borders
from ostinato.kvstore.row_sparse_tables import ROWS_FILE, checked_row_ids
from ostinato.kvstore.saved_leaves import changed
from ostinato.kvstore.server_core import ServerCore
from ostinato.kvstore.server_desk import ServerDesk
from ostinato.kvstore.server_placement import Part
from ostinato.kvstore.server_settings import settings_from
from ostinato.kvstore.server_states import Placed, placed_value
from ostinato.kvstore.store import Key, Outputs, Store, Value, Values
from ostinato.kvstore.summing import as_value, sum_values
from ostinato.kvstore.transport import Message, ServerRefusedError, Transport
from ostinato.kvstore.transport_gloo import GlooTransport
from ostinato.kvstore.transport_in_process import InProcessTransport
from ostinato.optim.rate_schedules import RateSchedule
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Optimizer
from ostinato.runs.row_cut import RowCut, RowCutTable

SERVERS_FILE = "server_states"
"""What the files begin with to which workers save states that are cut over the servers."""

_ERRORS: dict[str, type[OstinatoError]] = {
    kind.__name__: kind for kind in (ArgumentTypeError, ArgumentValueError, StateError)
}
"""Errors of a server that are raised here as what they are there."""


class AsyncStore(BuiltInStore):
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
        super().__init__(type)
        self._group = checked_group(group)
        if transport is not None and not callable(getattr(transport, "request", None)):
            raise ArgumentTypeError(
                f"The transport is {transport.__class__.__name__}, which takes no requests.",
                advice="Leave it out to take the one that the environment names.",
            )
        self._transport = transport
        if staleness is not None and (isinstance(staleness, bool) or not isinstance(staleness, int) or staleness < 0):
            raise ArgumentValueError(
                f"The staleness bound is {staleness!r}.", advice="Give a whole number of pushes from 0 up, or None."
            )
        self._staleness = staleness
        self._placed: dict[Key, Placed] = {}
        self._numbers: dict[Key, int] = {}
        self._optimizer: Optimizer | None = None
        self._told: dict[str, Any] | None = None
        self._compressor: Compressor | None = None
        self._barriers = 0
        self._is_closed = False
        self.versions: Counter[Key] = Counter()
        """For each key, how many updates the value had seen that came with the last answer."""

    def __repr__(self) -> str:
        return f"AsyncStore({self._type!r}, {len(self._placed)} keys)"

    # --- who takes part -------------------------------------------------------------------------------------------

    def _seat(self) -> tuple[int, int]:
        if self._group is not None:
            return self._group.rank, self._group.size
        return seat_of_this_process()

    @property
    def bytes_sent(self) -> int:
        """Bytes of this worker's messages so far."""
        return 0 if self._transport is None else self._transport.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Bytes of the servers' answers to this worker so far."""
        return 0 if self._transport is None else self._transport.bytes_received

    def _open(self) -> Transport:
        if self._is_closed:
            raise StateError("The store was closed, and is used again.", advice="Make a new store.")
        if self._transport is None:
            rank, size = self._seat()
            settings = settings_from(os.environ)
            if settings is not None:
                self._transport = GlooTransport(settings.rendezvous, rank, settings.servers, settings.timeout)
            elif size == 1:
                self._transport = InProcessTransport([ServerDesk(ServerCore(1, staleness=self._staleness))])
            else:
                raise StateError(
                    f"An asynchronous store was opened by worker {rank} of {size}, and there are no servers.",
                    advice="Start the program with 'ostinato launch --servers N'.",
                )
        return self._transport

    def _ask(self, messages: Mapping[int, Message]) -> dict[int, Message]:
        answers = self._open().request(messages)
        for server, answer in answers.items():
            if "error" in answer:
                kind = _ERRORS.get(answer["kind"], ServerRefusedError)
                raise kind(answer["error"], advice=answer["advice"], server=server, kind=answer["kind"])
        return answers

    def _ask_all(self, message: Message) -> dict[int, Message]:
        return self._ask(dict.fromkeys(range(self._open().servers), message))

    # --- keys and values ------------------------------------------------------------------------------------------

    def init(self, key: Key | Sequence[Key], value: Values) -> None:
        """See :meth:`Store.init`. Returns when worker 0's values have arrived."""
        servers = self._open().servers
        rule = "elements" if self._optimizer is None else self._optimizer.cut
        scheme = None if self._compressor is None else self._compressor.scheme
        placed: dict[Key, Placed] = {}
        whole: dict[Key, Tensor] = {}
        for one, first in self._firsts(key, value).items():
            is_table = isinstance(first, RowSparse)
            dense = first.to_dense() if isinstance(first, RowSparse) else first
            number = one if isinstance(one, int) else len(self._numbers) + len(placed)
            placed[one] = placed_value(number, dense, servers, rule=rule, scheme=scheme, is_table=is_table)
            whole[one] = dense.detach()
        messages: dict[int, Message] = {}
        for one, where in placed.items():
            for part in where.parts:
                message = messages.setdefault(part.server, {"call": "init", "values": {}})
                message["values"][one] = where.piece(part, whole[one]) if self.rank == 0 else None
        self._ask(messages)
        self._placed.update(placed)
        self._numbers.update({one: len(self._numbers) + k for k, one in enumerate(placed)})

    def push(self, key: Key | Sequence[Key], value: Values, priority: int | Sequence[int] = 0) -> None:
        """See :meth:`Store.push`. Returns when the servers have applied it."""
        self._exchange(self._known(key, value), {})

    def pull(
        self, key: Key | Sequence[Key], out: Outputs, priority: int | Sequence[int] = 0, ignore_sparse: bool = True
    ) -> None:
        """See :meth:`Store.pull`."""
        wanted = {
            one: outputs
            for one, outputs in self._known(key, out).items()
            if outputs and not (ignore_sparse and self._placed[one].is_table)
        }
        if wanted:
            messages = {server: {"call": "pull", "keys": keys} for server, keys in self._keys_by_server(wanted).items()}
            self._read_answers(self._ask(messages), wanted)

    def pushpull(
        self,
        key: Key | Sequence[Key],
        value: Values,
        out: Outputs | None = None,
        priority: int | Sequence[int] = 0,
        *,
        only_if_finite: bool = False,
    ) -> bool:
        """See :meth:`Store.pushpull`. One message to each server. A key with nothing to push is pulled only."""
        values = self._known(key, value)
        outputs = values if out is None else self._known(key, out)
        if only_if_finite:
            pushed = (as_value(one) for many in values.values() for one in many)
            if not all(bool(is_finite(one.values if isinstance(one, RowSparse) else one)) for one in pushed):
                return False
        self._exchange(values, {one: targets for one, targets in outputs.items() if targets})
        return True

    def _rows(self, key: Key, row_ids: Tensor) -> RowSparse:
        placed = self._placed[key]
        rows = checked_row_ids(self._label(key), row_ids, placed.shape)
        if not placed.by_rows:
            whole = torch.empty(placed.shape, dtype=placed.dtype)
            self.pull(key, whole)
            return RowSparse(rows, whole[rows.cpu()].to(row_ids.device), tuple(placed.shape))
        there, chosen = rows.cpu(), {}
        for part in placed.parts:
            chosen[part] = (there >= part.start) & (there < part.start + part.length)
        messages: dict[int, Message] = {
            part.server: {"call": "pull_rows", "key": key, "rows": there[mine] - part.start}
            for part, mine in chosen.items()
            if bool(mine.any())
        }
        answers = self._ask(messages)
        values = torch.empty((len(there), *placed.shape[1:]), dtype=placed.dtype)
        for part, mine in chosen.items():
            if part.server in messages:
                values[mine] = answers[part.server]["values"]
                self.versions[key] = answers[part.server]["versions"][key]
        return RowSparse(rows, values.to(row_ids.device), tuple(placed.shape))

    def set_value(self, key: Key, value: Tensor) -> None:
        """See :meth:`Store.set_value`. All workers wait for one another."""
        self._known(single_key(key), [])
        self._check_tensor(key, value)
        placed = self._placed[key]
        self.barrier()  # what others pushed before comes before
        if self.rank == 0:
            self._ask(
                {
                    part.server: {"call": "set_value", "key": key, "value": placed.piece(part, value.detach())}
                    for part in placed.parts
                }
            )
        self.barrier()

    # --- the exchange ---------------------------------------------------------------------------------------------

    def _exchange(self, values: Mapping[Key, Sequence[Value]], outputs: Mapping[Key, Sequence[Tensor]]) -> None:
        if self._optimizer is None:
            raise StateError(
                "Something was pushed to an asynchronous store that has no optimizer.",
                advice="An asynchronous store has to update: call set_optimizer() before the first push.",
            )
        sums = {key: self._sum(key, pushed) for key, pushed in values.items() if pushed}
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
            for server in range(self._open().servers):
                messages.setdefault(server, {"call": "pushpull", "values": {}, "keys": []})["settings"] = settings
        answers = self._ask(messages)
        self._told = settings
        self._optimizer.num_update = max(
            [self._optimizer.num_update, *(int(answer["num_update"]) for answer in answers.values())]
        )
        self._read_answers(answers, outputs)

    def _sum(self, key: Key, pushed: Sequence[Value]) -> Value:
        for value in pushed:
            self._check_shape(key, value, "was pushed")
            if self._compressor is not None:
                refuse_compression(self._label(key), value)
        values = [as_value(value) for value in pushed]
        for value in values:
            if isinstance(value, RowSparse):
                value.checked()
        if len(values) == 1:
            return values[0]
        return sum_values(values, values[0].device)

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
        self._ask_all({"call": "optimizer", "settings": settings})
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
        saved = self._saved({key: (0, placed.lines) for key, placed in self._placed.items()})
        return {**saved, "states": {key: self._placed[key].shaped(state) for key, state in saved["states"].items()}}

    def optimizer_states_in_parts(self) -> dict[str, Any]:
        """See :meth:`Store.optimizer_states_in_parts`. Of what is cut over servers each worker asks for its share."""
        rank, size = self._seat()
        if size == 1:
            return self.save_optimizer_states()
        cut = {key: placed for key, placed in self._placed.items() if len(placed.parts) > 1}
        borders = {key: row_borders(placed.lines, size)[rank : rank + 2] for key, placed in cut.items()}
        asked = {key: (first, last) for key, (first, last) in borders.items()}
        if rank == 0:  # the others' word of what is not cut is not heard
            asked |= {key: (0, placed.lines) for key, placed in self._placed.items() if key not in cut}
        saved = self._saved(asked)
        for key, placed in cut.items():
            first, last = borders[key]

            def part(leaf: Tensor, first: int = first, last: int = last, lines: int = placed.lines) -> Tensor | RowCut:
                is_cut = leaf.ndim > 0 and len(leaf) == last - first
                return RowCut(leaf, first, lines, file=SERVERS_FILE) if is_cut else leaf

            if key in saved["states"]:
                saved["states"][key] = changed(saved["states"][key], part)
        return saved

    def _saved(self, asked: Mapping[Key, tuple[int, int]]) -> dict[str, Any]:
        """States of these keys, of each the lines from the first to the last (not included) number."""
        optimizer = self._updating()
        requests: dict[int, dict[Key, tuple[int, int]]] = {server: {} for server in range(self._open().servers)}
        where = {key: self._placed[key].overlaps(*lines) for key, lines in asked.items()}
        for key, overlaps in where.items():
            for part, first, last in overlaps:
                requests[part.server][key] = (first, last)
        answers = self._ask(
            {
                server: {
                    "call": "save",
                    "lines": {key: list(lines) for key, lines in of_server.items()},
                    "cut": [key for key in of_server if len(self._placed[key].parts) > 1],
                }
                for server, of_server in requests.items()
                if of_server
            }
        )
        states: dict[Key, Any] = {}
        counts: Counter[Key] = Counter()
        for key, overlaps in where.items():
            found = [
                (last - first, answers[part.server]["states"]["states"].get(key)) for part, first, last in overlaps
            ]
            if found[0][1] is not None:
                states[key] = self._placed[key].join(found)
        for answer in answers.values():
            for key, count in answer["states"]["counts"].items():
                counts[key] = max(counts[key], count)
        return {"format": 1, "optimizer": optimizer.name, "states": states, "counts": dict(counts)}

    def rows_in_parts(self, key: Key) -> Tensor | RowCut:
        """See :meth:`Store.rows_in_parts`. Every worker pulls its share of the rows."""
        rank, size = self._seat()
        self._known(single_key(key), [])
        total = self._placed[key].shape[0]
        first, last = row_borders(total, size)[rank : rank + 2]
        rows = self._rows(key, torch.arange(first, last)).values
        return rows if size == 1 else RowCut(rows, first, total, file=ROWS_FILE)

    def load_rows(self, key: Key, rows: Tensor | RowCutTable) -> None:
        """See :meth:`Store.load_rows`. Worker 0 hands them to the servers, part by part, and the others wait for it."""
        self._known(single_key(key), [])
        self._check_rows(key, rows)
        placed = self._placed[key]
        self.barrier()
        if self.rank == 0:
            for part in placed.parts:
                value = placed.cut_rows(part, rows)
                self._ask({part.server: {"call": "set_value", "key": key, "value": value}})
        self.barrier()

    def load_optimizer_states(self, states: Mapping[str, Any]) -> None:
        """See :meth:`Store.load_optimizer_states`. Worker 0's count, and the others wait for it.

        :raises StateError: keys are not initialised yet, so it is not known which server takes what.
        """
        optimizer = self._updating()
        check_saved_states(states)
        missing = [key for key in states["states"] if key not in self._placed]
        if missing:
            raise StateError(
                f"A state for the key {missing[0]!r} was loaded before the key was initialised.",
                advice="Initialise the keys first.",
                key=missing[0],
            )
        self.barrier()
        if self.rank == 0:
            for server in range(self._open().servers):
                own = {
                    key: self._placed[key].cut(part, state)
                    for key, state in states["states"].items()
                    for part in self._placed[key].parts
                    if part.server == server
                }
                counts = {key: states["counts"].get(key, 0) for key in own}
                message = {"call": "load", "states": {**states, "states": own, "counts": counts}}
                self._ask({server: {**message, "num_update": optimizer.num_update}})
        self.barrier()

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
        self._compressor = Compressor(CompressionScheme.from_params(parameters))

    def residuals(self) -> list[dict[str, Any]]:
        """See :meth:`Store.residuals`: what this worker alone has held back. Workers do not wait for one another, so in
        the places of the others is nothing."""
        if self._compressor is None:
            return []
        own = self._compressor.state_dict()
        rank, size = self._seat()
        return [own if worker == rank else {**own, "residuals": {}} for worker in range(size)]

    def residuals_in_parts(self) -> list[dict[str, Any]] | PerRank:
        """See :meth:`Store.residuals_in_parts`."""
        if self._compressor is None or self.num_workers == 1:
            return self.residuals()
        return PerRank([self._compressor.state_dict()])

    def load_residuals(self, residuals: Sequence[Mapping[str, Any]]) -> None:
        """See :meth:`Store.load_residuals`."""
        if not check_residuals(residuals):
            return
        if self._compressor is None:
            raise no_compression()
        self._compressor.load_sum_of(residuals_for_rank(residuals, *self._seat()))

    # --- working with a trainer -----------------------------------------------------------------------------------

    def barrier(self) -> None:
        """See :meth:`Store.barrier`. Workers that are gone are not waited for."""
        self._barriers += 1
        self._ask({0: {"call": "barrier", "number": self._barriers}})

    def close(self) -> None:
        """See :meth:`Store.close`. Servers end when all workers have closed."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.close()

    def _has(self, key: Key) -> bool:
        return key in self._placed

    def _shape(self, key: Key) -> torch.Size:
        return self._placed[key].shape


_factory: Callable[[str, Any], Store] = AsyncStore
register_built_in("dist_async", _factory)
