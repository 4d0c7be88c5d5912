"""What workers of a synchronous store say when one of them is gone or does something else."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
from rank_processes import run_on_ranks

from ostinato.errors import RankFailedError
from ostinato.kvstore.collective import CollectiveStore


def one_is_killed(group: Any) -> None:
    store = CollectiveStore("dist_sync", group)
    store.init("w", torch.zeros(1000))
    store.push("w", torch.ones(1000))
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(3):
        store.push("w", torch.ones(1000))


def one_raises(group: Any) -> None:
    store = CollectiveStore("dist_sync", group)
    store.init("w", torch.zeros(10))
    if group.rank == 2:
        raise KeyError("the cause")
    store.push("w", torch.ones(10))


def test_a_worker_that_was_killed_is_named(tmp_path: Path) -> None:
    results = run_on_ranks(one_is_killed, folder=tmp_path, ranks=3)
    assert results[1].exit_code == -signal.SIGKILL
    for rank in (0, 2):
        error = results[rank].error
        assert isinstance(error, RankFailedError), results[rank].output
        assert 1 in error.fields["missing"]
        assert "cannot go on" in str(error)


def test_a_worker_that_failed_is_named_with_its_own_words(tmp_path: Path) -> None:
    results = run_on_ranks(one_raises, folder=tmp_path, ranks=3)
    assert isinstance(results[2].error, KeyError)
    for rank in (0, 1):
        error = results[rank].error
        assert isinstance(error, RankFailedError), results[rank].output
        assert error.fields["rank"] == 2
        assert "the cause" in str(error)
