"""What a server of the asynchronous store does with a request: a plain object, without threads or connections.

Every push is applied when it arrives, to the part of the key that this server holds; there is one optimizer state for
each key, shared by all workers. Requests and answers are plain trees, and the same requests in the same order always
give the same answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

import torch
from torch import Tensor

from ostinato.errors import ArgumentValueError, OstinatoError, StateError
from ostinato.kvstore.compression import CompressionScheme, decode
from ostinato.kvstore.replica_updaters import refresh_master_copy
from ostinato.kvstore.saved_leaves import changed
from ostinato.kvstore.store import Key
from ostinato.kvstore.transport import Message
from ostinato.optim.rate_schedules import schedule_from_state
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Optimizer, Updater, create

WAIT: Final[Message] = {"wait": True}
"""The answer to a request that cannot be answered yet and has changed nothing: ask again when another request was
answered."""


class ServerCore:
    """The state of one server.

    ======================  ==========================================================================================
    call                    what the request holds, and what the answer
    ======================  ==========================================================================================
    ``init``                ``values`` by key. Worker 0's count; the others wait until they are there. A worker 0
                            that comes back finds what it left
    ``push``                ``values`` by key, ``settings`` (or None); answer: ``versions``, ``num_update``
    ``pull``                ``keys``; answer: ``values`` and ``versions`` by key
    ``pushpull``            both in one
    ``pull_rows``           ``key``, ``rows`` (numbered in this part); answer: ``values``
    ``optimizer``           ``optimizer`` (its state), ``multipliers``; the first one counts
    ``set_value``           ``key``, ``value``; the optimizer state stays
    ``save``                ``lines``: the wanted keys, each with a range of its rows or elements (left out: all);
                            ``cut``: those of which other servers hold parts too, so that a part which was never
                            pushed to gets a state as well; answer: ``states``, ``num_update``
    ``load``                what ``save`` answered; replaces all states
    ``barrier``             ``number``; answered when all workers that are still there have come to it
    ``bye``                 the worker has finished
    ======================  ==========================================================================================

    A value is a tensor, ``{"rows", "values"}``, or ``{"packed", "elements", "type", "threshold"}``.

    :param workers: how many there are.
    :param staleness: how many pushes a worker may be ahead of the slowest one before its next push waits; ``None``: no
        bound.
    :param per_worker_backups: keep what a rule compares with the sending worker's own view
        (``Optimizer.per_worker_states``) as that worker pulled it last, instead of as anybody left it.
    """

    def __init__(self, workers: int, *, staleness: int | None = None, per_worker_backups: bool = True) -> None:
        if workers < 1 or (staleness is not None and staleness < 0):
            raise ArgumentValueError(
                f"A server for {workers} workers with a staleness bound of {staleness} cannot be.",
                advice="There is at least one worker, and a bound is at least 0.",
            )
        self.workers = workers
        self.staleness = staleness
        self._per_worker_backups = per_worker_backups
        self._stored: dict[Key, Tensor] = {}
        self._versions: Counter[Key] = Counter()
        self._updater: Updater | None = None
        self._multipliers: dict[Key, SimpleNamespace] = {}
        self._backups: dict[tuple[int, Key], dict[str, Tensor]] = {}
        self._pushes: Counter[int] = Counter()
        self._gone: set[int] = set()
        self._at_barrier: dict[int, set[int]] = {}
        self._calls: dict[str, Callable[[int, Message], Message]] = {
            "init": self._init,
            "push": self._push,
            "pull": self._pull,
            "pushpull": self._pushpull,
            "pull_rows": self._pull_rows,
            "optimizer": self._set_optimizer,
            "set_value": self._set_value,
            "save": self._save,
            "load": self._load,
            "barrier": self._barrier,
            "bye": self._bye,
        }

    @torch.no_grad()
    def handle(self, worker: int, request: Message) -> Message:
        """Answer one request. Answers share no memory with what is stored.

        A request that cannot be carried out is answered by ``{"error": text, "advice": text, "kind": class name}`` and
        has changed nothing; one that has to wait by :data:`WAIT`.

        :param worker: number of the worker that asks, from 0.
        """
        try:
            call = self._calls.get(str(request.get("call")))
            if call is None or not 0 <= worker < self.workers:
                raise ArgumentValueError(f"A server has no call {request.get('call')!r} for worker {worker}.")
            return call(worker, request)
        except OstinatoError as error:
            return {"error": error.what, "advice": error.advice, "kind": type(error).__name__}

    # --- who is there -----------------------------------------------------------------------------------------------

    def arrived(self, worker: int) -> None:
        """A worker has connected, perhaps again. It starts level with the slowest of the others."""
        self._gone.discard(worker)
        for waiting in self._at_barrier.values():
            waiting.discard(worker)  # it counts its barriers from 1 again
        others = [self._pushes[other] for other in self._here() if other != worker]
        self._pushes[worker] = max(self._pushes[worker], min(others, default=0))

    def lost(self, worker: int) -> None:
        """A worker is gone: nobody waits for it any more."""
        self._gone.add(worker)

    @property
    def has_finished(self) -> bool:
        """True when all workers are gone."""
        return len(self._gone) == self.workers

    def _here(self) -> list[int]:
        return [worker for worker in range(self.workers) if worker not in self._gone]

    def _bye(self, worker: int, request: Message) -> Message:
        self.lost(worker)
        return {}

    def _barrier(self, worker: int, request: Message) -> Message:
        number = int(request["number"])
        self._at_barrier = {old: who for old, who in self._at_barrier.items() if old > number - 3}
        arrived = self._at_barrier.setdefault(number, set())
        arrived.add(worker)
        return {} if arrived.issuperset(self._here()) else WAIT

    # --- values -----------------------------------------------------------------------------------------------------

    def _init(self, worker: int, request: Message) -> Message:
        if worker != 0:
            return {} if all(key in self._stored for key in request["values"]) else WAIT
        for key, value in request["values"].items():
            stored = self._stored.get(key)
            if stored is None:
                self._stored[key] = value.clone()
            elif stored.shape != value.shape:
                raise ArgumentValueError(f"The key {key!r} holds {tuple(stored.shape)} here, not {tuple(value.shape)}.")
        return {}

    def _pull(self, worker: int, request: Message) -> Message:
        keys = request["keys"]
        if any(key not in self._stored for key in keys):
            return WAIT
        self._remember(worker, keys)
        return {
            "values": {key: self._stored[key].clone() for key in keys},
            "versions": {key: self._versions[key] for key in keys},
        }

    def _pull_rows(self, worker: int, request: Message) -> Message:
        key = request["key"]
        if key not in self._stored:
            return WAIT
        stored, rows = self._stored[key], request["rows"]
        if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= len(stored)):
            raise ArgumentValueError(f"A row of {key!r} outside this server's {len(stored)} rows was asked for.")
        if self._updater is not None:
            self._updater.catch_up([key], [stored], [rows])
        self._remember(worker, [key])
        return {"values": stored.index_select(0, rows), "versions": {key: self._versions[key]}}

    def _set_value(self, worker: int, request: Message) -> Message:
        key, value = request["key"], request["value"]
        stored = self._held(key)
        if stored.shape != value.shape:
            raise ArgumentValueError(f"The key {key!r} holds {tuple(stored.shape)} here, not {tuple(value.shape)}.")
        stored.copy_(value)
        if self._updater is not None:
            refresh_master_copy(self._updater, key, stored)
        return {}

    def _held(self, key: Key) -> Tensor:
        if key not in self._stored:
            raise ArgumentValueError(f"The key {key!r} was never initialised.", advice="Call init() first.")
        return self._stored[key]

    # --- updating ---------------------------------------------------------------------------------------------------

    def _push(self, worker: int, request: Message) -> Message:
        updater = self._updater
        if updater is None:
            raise StateError(
                "Something was pushed to an asynchronous store that has no optimizer.",
                advice="An asynchronous store has to update: call set_optimizer() before the first push.",
            )
        gradients = {key: self._gradient(key, value) for key, value in request["values"].items()}
        if self._is_too_far_ahead(worker):
            return WAIT
        if request.get("settings") is not None:
            self._apply_settings(request["settings"])
        # Rows of nobody change nothing, and are not counted.
        keys = [
            key for key, value in gradients.items() if not (isinstance(value, RowSparse) and not len(value.indices))
        ]
        self._recall(worker, keys)
        updater(keys, [gradients[key] for key in keys], [self._stored[key] for key in keys])
        self._versions.update(keys)
        self._pushes[worker] += 1
        return {
            "versions": {key: self._versions[key] for key in gradients},
            "num_update": updater.optimizer.num_update,
        }

    def _pushpull(self, worker: int, request: Message) -> Message:
        if any(key not in self._stored for key in request["keys"]):
            raise ArgumentValueError("A key was pulled that was never initialised.", advice="Call init() first.")
        pushed = self._push(worker, request)
        if pushed is WAIT or not request["keys"]:
            return pushed
        return {**pushed, **self._pull(worker, request)}

    def _gradient(self, key: Key, value: Any) -> Tensor | RowSparse:
        stored = self._held(key)
        if isinstance(value, Tensor):
            gradient: Tensor | RowSparse = value
        elif "rows" in value:
            gradient = RowSparse(value["rows"], value["values"], tuple(stored.shape)).checked()
        else:
            scheme = CompressionScheme(value["type"], value["threshold"])
            gradient = decode(scheme, value["packed"], int(value["elements"])).view(stored.shape)
        if tuple(gradient.shape) != tuple(stored.shape):
            raise ArgumentValueError(
                f"The key {key!r} holds {tuple(stored.shape)} here, and {tuple(gradient.shape)} was pushed."
            )
        return gradient

    def _is_too_far_ahead(self, worker: int) -> bool:
        if self.staleness is None:
            return False
        others = [self._pushes[other] for other in self._here() if other != worker]
        return bool(others) and self._pushes[worker] - min(others) > self.staleness

    def _remember(self, worker: int, keys: list[Key]) -> None:
        """Keep what a worker sees now, for rules that compare with it."""
        if self._updater is None or not self._per_worker_backups:
            return
        for name in self._updater.optimizer.per_worker_states:
            for key in keys:
                self._backups.setdefault((worker, key), {})[name] = self._stored[key].clone()

    def _recall(self, worker: int, keys: list[Key]) -> None:
        assert self._updater is not None
        for key in keys:
            backup = self._backups.get((worker, key), {})
            if backup:
                state = self._updater.state_of(key, self._stored[key])
                for name, seen in backup.items():
                    state[name].copy_(seen)

    # --- the optimizer ----------------------------------------------------------------------------------------------

    def _set_optimizer(self, worker: int, request: Message) -> Message:
        if self._updater is None:
            self._updater = Updater(optimizer_from(request["settings"]["optimizer"]))
            self._updater.optimizer.param_dict = self._multipliers
            self._apply_settings(request["settings"])
        return {}

    def _apply_settings(self, settings: Mapping[str, Any]) -> None:
        """Follow the hyper-parameters of the worker that pushes; counts stay this server's."""
        assert self._updater is not None
        optimizer = self._updater.optimizer
        optimizer.load_state_dict({**settings["optimizer"], "num_update": optimizer.num_update, "counts": {}})
        for key, (rate, decay) in settings["multipliers"].items():
            self._multipliers[key] = SimpleNamespace(lr_mult=rate, wd_mult=decay)

    def _save(self, worker: int, request: Message) -> Message:
        if self._updater is None:
            raise StateError("This store has no optimizer, so it has no states.", advice="Call set_optimizer() first.")
        updater, lines = self._updater, request.get("lines")
        for key in request.get("cut", ()):
            updater.state_of(key, self._held(key))
        for key in updater.states:
            updater.catch_up([key], [self._stored[key]])
        saved = updater.state_dict()
        if lines is not None:
            states = saved["states"].items()
            saved["states"] = {key: self._stretch(key, state, *lines[key]) for key, state in states if key in lines}
        return {"states": saved, "num_update": updater.optimizer.num_update}

    def _stretch(self, key: Key, state: Any, first: int, last: int) -> Any:
        held = self._stored[key]
        count = len(held) if held.ndim else 1
        if (first, last) == (0, count):
            return state
        return changed(state, lambda leaf: leaf[first:last] if leaf.ndim and len(leaf) == count else leaf)

    def _load(self, worker: int, request: Message) -> Message:
        if self._updater is None:
            raise StateError("This store has no optimizer.", advice="Call set_optimizer() before loading its states.")
        self._updater.load_state_dict(request["states"])
        self._updater.optimizer.num_update = int(request["num_update"])
        self._backups.clear()
        return {}


def optimizer_from(state: Mapping[str, Any]) -> Optimizer:
    """Make an optimizer from its ``state_dict``.

    :raises ArgumentValueError: there is no optimizer of this name.
    """
    arguments = {name: value for name, value in state["arguments"].items() if value is not None}
    optimizer = create(state["optimizer"], **arguments)
    if state["schedule"] is not None:
        optimizer.lr_scheduler = schedule_from_state(state["schedule"])
    return optimizer
