"""Workers and servers as real processes that meet at a file."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rank_processes import run_on_ranks

from ostinato.errors import BadInputError
from ostinato.kvstore.server_core import ServerCore
from ostinato.kvstore.server_desk import ServerDesk
from ostinato.kvstore.transport import Message, ServerLostError
from ostinato.kvstore.transport_gloo import GlooTransport, open_rendezvous, serve
from ostinato.kvstore.worker_store import AsyncStore
from ostinato.optim.rules import Updater, create

LIMIT = 90.0
"""Seconds of time-outs that are not meant to pass: much longer than a loaded machine needs."""
SHORT = 10.0
"""Seconds of the one time-out that is meant to pass."""


def open_store(meeting: Path, worker: int, workers: int, servers: int, timeout: float = LIMIT) -> AsyncStore:
    transport = GlooTransport(str(meeting), worker, servers, timeout)
    return AsyncStore(group=SimpleNamespace(rank=worker, size=workers), transport=transport)


def run_server(meeting: Path, server: int, workers: int, desk: ServerDesk | None = None, **options: Any) -> bool:
    desk = desk or ServerDesk(ServerCore(workers, **options), patience=1.0)
    return serve(desk, str(meeting), server, LIMIT)


class FragileDesk(ServerDesk):
    """A server that does what a key called ``die`` or ``hang`` says when it is pulled."""

    def answer(self, worker: int, request: Message) -> Message:
        if request.get("key") == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if request.get("key") == "hang":
            threading.Event().wait(2 * SHORT)
            os._exit(0)
        return super().answer(worker, request)


# --- all workers are well ------------------------------------------------------------------------------------------


def all_is_well(placement: Any, meeting: Path) -> Any:
    """Three workers and two servers."""
    os.environ["MXNET_KVSTORE_BIGARRAY_BOUND"] = "10"
    place, workers = meeting.with_name("servers"), 3
    if placement.rank >= workers:
        return run_server(place, placement.rank - workers, workers)
    store = open_store(place, placement.rank, workers, 2)
    store.set_optimizer(create("sgd", learning_rate=0.5))
    out = torch.zeros(40)
    store.broadcast("w", torch.arange(40.0) + placement.rank, out)
    begun = out.clone()
    store.barrier()  # nobody waits for anybody by themselves: a push may come before another worker's first pull
    for _ in range(5):
        store.pushpull("w", torch.full((40,), float(placement.rank)), out)
    store.barrier()
    store.pull("w", out)
    store.barrier()
    store.close()
    return begun, out, store.versions["w"], store.bytes_sent > 0 and store.bytes_received > 0


def test_workers_share_weights_on_servers(tmp_path: Path) -> None:
    results = run_on_ranks(all_is_well, folder=tmp_path, ranks=5, opened=False)
    assert [result.error for result in results] == [None] * 5, [result.output for result in results]
    for result in results[:3]:
        begun, out, version, counted = result.value
        assert torch.equal(begun, torch.arange(40.0))
        assert torch.equal(out, torch.arange(40.0) - 0.5 * 5 * (0 + 1 + 2))
        assert (version, counted) == (15, True)
    assert [result.value for result in results[3:]] == [True, True]


# --- a worker dies -------------------------------------------------------------------------------------------------


def a_worker_dies(placement: Any, meeting: Path) -> Any:
    place = meeting.with_name("servers")
    if placement.rank == 3:
        return run_server(place, 0, 3, staleness=1)
    store = open_store(place, placement.rank, 3, 1)
    store.set_optimizer(create("sgd", learning_rate=1.0))
    out = torch.zeros(2)
    store.broadcast("w", torch.zeros(2), out)
    store.pushpull("w", torch.ones(2), out)
    store.barrier()
    if placement.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    store.barrier()  # opens only once the server has noticed
    for _ in range(4):  # nor does the bound on staleness wait for the dead
        store.pushpull("w", torch.ones(2), out)
    store.barrier()
    store.pull("w", out)
    store.barrier()
    store.close()
    return out


def test_when_a_worker_dies_the_others_go_on(tmp_path: Path) -> None:
    results = run_on_ranks(a_worker_dies, folder=tmp_path, ranks=4, opened=False)
    assert results[2].exit_code == -signal.SIGKILL
    for result in results[:2]:
        assert result.error is None, result.output
        assert result.value.tolist() == [-11, -11]
    assert results[3].error is None


# --- a server dies, or hangs ---------------------------------------------------------------------------------------


def train(store: AsyncStore, out: torch.Tensor, turns: range) -> None:
    for turn in turns:
        store.pushpull("w", torch.tensor([1.0, -2.0]) * (turn + 1), out)


def a_server_fails(placement: Any, meeting: Path) -> Any:
    """One worker, three servers one after the other: the first dies, the second hangs, the third goes on."""
    place = [meeting.with_name(f"servers_{number}") for number in range(3)]
    if placement.rank > 0:
        number = placement.rank - 1
        return run_server(place[number], 0, 1, FragileDesk(ServerCore(1)))
    rule, out, said = create("adam", learning_rate=0.1), torch.zeros(2), []
    weights, states = torch.zeros(2), None
    for number, key in enumerate(["die", "hang", None]):
        store = open_store(place[number], 0, 1, 1, SHORT if key == "hang" else LIMIT)
        store.set_optimizer(rule)
        store.broadcast("w", weights, out)
        if states is not None:
            store.load_optimizer_states(states)
        train(store, out, range(2 * number, 2 * number + 2))
        weights, states = out.clone(), store.save_optimizer_states()
        if key is not None:
            try:
                store._servers.ask({0: {"call": "pull_rows", "key": key}})
            except ServerLostError as error:
                said.append(str(error))
        store.close()
    return out, said


def test_when_a_server_fails_the_worker_is_told_and_states_are_restored(tmp_path: Path) -> None:
    results = run_on_ranks(a_server_fails, folder=tmp_path, ranks=4, opened=False)
    assert results[0].error is None, results[0].output
    out, said = results[0].value
    assert "Server 0 of the asynchronous store is gone." in said[0]
    assert f"did not answer within {SHORT:g} seconds" in said[1]
    assert all("load_states()" in text for text in said)
    expected, updater = torch.zeros(2), Updater(create("adam", learning_rate=0.1))
    for turn in range(6):
        updater("w", torch.tensor([1.0, -2.0]) * (turn + 1), expected)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("place", ["missing/file", "127.0.0.1:1"])
def test_a_place_where_nobody_can_meet_is_named(place: str) -> None:
    with pytest.raises(BadInputError, match=place):
        open_rendezvous(place, 1.0)
