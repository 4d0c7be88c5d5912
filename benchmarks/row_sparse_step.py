"""What a row-sparse update costs as the table grows, with as many touched rows in every step.

    python benchmarks/row_sparse_step.py [--rows 10000 100000 1000000 10000000] [--touched 1000] [--width 16]

A step pulls the touched rows from the store, pushes a gradient for them, and the store updates them: lazily by SGD with
momentum, and with ``update="dense_lazy"``, whose results are those of the dense rule. Beside them stands the dense rule
itself, where the table is not too large for it. One thread; the median of some steps, in processor time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from ostinato.dist import Alone
from ostinato.kvstore.collective import CollectiveStore
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import create

SGD = {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-4}
TOO_LARGE = 100_000_000
"""Elements from which on the dense rule is left out."""


def steps_of(rows: int, touched: int, width: int, **options: Any) -> Callable[[], None]:
    """A table on a store, and a function that makes one step."""
    store = CollectiveStore("dist_sync", Alone())
    store.set_optimizer(create("sgd", **SGD, **options))
    store.init(0, RowSparse.empty((rows, width)))
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        ids = torch.randint(rows, (touched,), generator=generator)
        pulled = store.row_sparse_pull(0, ids)
        assert isinstance(pulled, RowSparse)
        store.push(0, RowSparse(pulled.indices, torch.ones_like(pulled.values), pulled.shape))

    step()
    # Give every row its memory now: the system hands out a page when it is written to for the first time, which has
    # nothing to do with updates.
    for tensor in (store._keys.tables[0].stored, *store._keys.updater.states[0].values()):
        if isinstance(tensor, torch.Tensor):
            tensor.add_(0)
    return step


def milliseconds(step: Callable[[], None], steps: int) -> float:
    for _ in range(3):
        step()
    times = []
    for _ in range(steps):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return statistics.median(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--touched", type=int, default=1000)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ways = {"lazy": {"lazy_update": True}, "dense_lazy": {"update": "dense_lazy"}, "dense": {}}
    print(f"ms a step, {arguments.touched} touched rows of {arguments.width}")
    print(f"{'rows of the table':>20}" + "".join(f"{name:>14}" for name in ways))
    for rows in arguments.rows:
        line = f"{rows:20,}"
        for name, options in ways.items():
            if name == "dense" and rows * arguments.width >= TOO_LARGE:
                line += f"{'left out':>14}"
                continue
            step = steps_of(rows, arguments.touched, arguments.width, **options)
            line += f"{milliseconds(step, 5 if name == 'dense' else arguments.steps):14.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
