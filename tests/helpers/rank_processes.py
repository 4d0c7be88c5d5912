"""Real processes that are the ranks of one job, on gloo and a file: no ports to choose, nothing left behind.

::

    def adds_up(group, number):            # at the top of a test module
        return group.sum_of([number + group.rank])

    def test_something(tmp_path):
        results = run_on_ranks(adds_up, 10, folder=tmp_path)
        assert [result.value for result in results] == [[21.0], [21.0]]

The processes are forked from one that has imported torch and Ostinato already, so starting them costs next to nothing.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
import multiprocessing
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT = 900.0
"""Seconds until processes that have not ended are killed, and the test fails: much more than any of them needs."""

_PRELOAD = [
    "torch",
    "torch.distributed",
    "torch._dynamo",  # an optimizer's first step would import it in every process, for more than a second
    "ostinato.dist.torch_group",
    "ostinato.loop",
    "ostinato.extensions",
    "ostinato.recognition.training",
]


@dataclass(frozen=True)
class RankResult:
    """What became of one process."""

    rank: int
    value: Any
    """What the function returned; ``None`` if it did not."""
    error: BaseException | None
    """What it raised; a ``RuntimeError`` with the traceback as text where the exception itself cannot travel."""
    exit_code: int | None
    """As of a program that does the same: 1 after an exception, negative after a signal; ``None``: it had to be killed
    because it did not end."""
    output: str
    """Its standard output and error output."""


def run_on_ranks(
    function: Callable[..., Any],
    *arguments: Any,
    folder: Path,
    ranks: int = 2,
    timeout: float = 120.0,
    opened: bool = True,
    environment: Mapping[str, str] | None = None,
    while_running: Callable[[list[int]], None] | None = None,
) -> list[RankResult]:
    """Call ``function(group, *arguments)`` in a process for each rank, and return what became of them, in rank order.

    :param function: at the top of a module that is a file; found again in the processes by file and name.
    :param arguments: the same for all ranks; they travel by pickle. The rank is in the group.
    :param folder: an empty one, for the file at which the ranks meet and for their results; the test's own temporary
        folder will do, also for several calls.
    :param timeout: seconds of the group's collectives.
    :param opened: whether the function is given an open group, which is closed behind it; else its
        ``Placement`` and the path of the file to meet at.
    :param environment: variables to set in the processes.
    :param while_running: called with the process ids once all processes have started.
    """
    place = Path(folder) / f"ranks_{len(list(Path(folder).glob('ranks_*')))}"
    place.mkdir(parents=True)
    source = inspect.getsourcefile(function)
    assert source is not None
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    job = (source, function.__qualname__, ranks, timeout, opened, str(place), dict(environment or {}), sys.path[:])
    (place / "arguments").write_bytes(pickle.dumps(arguments))
    processes = [context.Process(target=_run, args=(rank, *job), daemon=True) for rank in range(ranks)]
    for process in processes:
        process.start()
    try:
        if while_running is not None:
            while_running([process.pid for process in processes if process.pid is not None])
        end = time.monotonic() + LIMIT
        for process in processes:
            process.join(max(0.0, end - time.monotonic()))
    finally:
        late = [process.is_alive() for process in processes]
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()
    return [_result(rank, place, process, late[rank]) for rank, process in enumerate(processes)]


def _result(rank: int, place: Path, process: Any, was_late: bool) -> RankResult:
    value, error = None, None
    stored = place / f"result_{rank}"
    if stored.exists():
        value, error = pickle.loads(stored.read_bytes())
    log = place / f"output_{rank}"
    output = log.read_text(errors="replace") if log.exists() else ""
    return RankResult(rank, value, error, None if was_late else process.exitcode, output)


def _run(
    rank: int,
    source: str,
    name: str,
    ranks: int,
    timeout: float,
    opened: bool,
    place: str,
    environment: dict[str, str],
    search_path: list[str],
) -> None:
    descriptor = os.open(Path(place) / f"output_{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(place)
    os.environ.update(environment)
    sys.path[:] = search_path
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    stored = Path(place) / f"result_{rank}"
    try:
        value = _call(rank, source, name, ranks, timeout, opened, place)
    except BaseException as error:
        stored.write_bytes(_pickled(None, error))
        raise
    stored.write_bytes(_pickled(value, None))


def _call(rank: int, source: str, name: str, ranks: int, timeout: float, opened: bool, place: str) -> Any:
    from ostinato.dist import Placement, open_group

    specification = importlib.util.spec_from_file_location("rank_functions", source)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["rank_functions"] = module
    specification.loader.exec_module(module)
    function = module
    for part in name.split("."):
        function = getattr(function, part)
    arguments = pickle.loads((Path(place) / "arguments").read_bytes())
    placement = Placement(rank, ranks, rank)
    meeting = Path(place) / "meeting"
    if not opened:
        return function(placement, meeting, *arguments)
    with open_group(backend="gloo", timeout=timeout, placement=placement, rendezvous=meeting) as group:
        return function(group, *arguments)


def _pickled(value: Any, error: BaseException | None) -> bytes:
    try:
        data = pickle.dumps((value, error))
        pickle.loads(data)
    except Exception:  # whatever it holds cannot travel
        text = "".join(traceback.format_exception(error)) if error is not None else f"cannot be pickled: {value!r}"
        return pickle.dumps((None, RuntimeError(text)))
    return data
