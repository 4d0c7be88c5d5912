"""What bounds one update of a swap model: operations by share of the time, and how near the arithmetic is to the peak.

    python benchmarks/swap_bounds.py [--models original lightweight] [--threads 1] [--rounds 3] [--peak-size 1024]

For our step and for the bare step of ``swap_update.py``, in the same process: the share of the processor's time that
each kind of operation takes (PyTorch's profiler, time in the operation itself), the multiplications and additions of
one update (PyTorch's flop counter), and their rate beside the rate of a square matrix product on the same threads just
before. Our step computes convolutions on the smallest pictures as matrix products, which therefore hold more than the
dense layers there.

A product is about the best that a machine's float32 arithmetic gives: an update that comes near it is bound by
arithmetic, and only fewer operations or a narrower number format make it faster; one that stays far below waits for
memory or for the overhead of small operations.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch.autograd.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

from swap_update import Batch, Step, bare_step, our_step

KINDS = {
    "convolutions": ("conv", "nnpack"),
    "matrix products": ("addmm", "aten::mm", "bmm", "linear"),
    "optimizer": ("adam", "foreach"),
}
OTHER = "everything else"


def kind_of(operation: str) -> str:
    name = operation.lower()
    return next((kind for kind, marks in KINDS.items() if any(mark in name for mark in marks)), OTHER)


@contextmanager
def quiet_stderr() -> Generator[None, None, None]:
    """Keep out what PyTorch's profiler tells of itself, below Python's own stream."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def shares(step: Step, rounds: int) -> dict[str, float]:
    """Part of the time in operations, per kind, over ``rounds`` steps."""
    with quiet_stderr(), profile(use_kineto=False) as profiler:
        for _ in range(rounds):
            step()
    times: Counter[str] = Counter()
    for event in profiler.key_averages():
        times[kind_of(event.key)] += event.self_cpu_time_total
    return {kind: times[kind] / times.total() for kind in (*KINDS, OTHER)}


def operations(step: Step) -> int:
    """Floating-point operations of the convolutions and dense layers of one step, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def rate(operation: Step, flops: int, rounds: int) -> float:
    """Operations per CPU-second, the best of several: what the machine gives when nothing disturbs it."""
    best = float("inf")
    for _ in range(rounds):
        cpu = time.process_time()
        operation()
        best = min(best, time.process_time() - cpu)
    return flops / best


def product_rate(size: int, rounds: int) -> float:
    left, right = torch.rand(size, size), torch.rand(size, size)
    out = torch.empty(size, size)
    torch.mm(left, right, out=out)
    return rate(lambda: torch.mm(left, right, out=out), 2 * size**3, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["original", "lightweight"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16, help="faces per side")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peak-size", type=int, default=1024, help="side of the matrices of the product beside it")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.batch_size} faces per side, {arguments.threads} thread(s), float32")
    columns = "".join(f"{kind:>17}" for kind in (*KINDS, OTHER))
    print(f"  {'step':<20}{'GFLOP':>8}{'rate over product':>19}{columns}")
    batch = Batch(arguments.batch_size, torch.device("cpu"))
    for name in arguments.models:
        for label, make in (("bare", bare_step), ("ours", our_step)):
            step = make(name, "float32", batch)
            flops = operations(step)
            ratios = []
            for _ in range(arguments.rounds):
                peak = product_rate(arguments.peak_size, 5)
                ratios.append(rate(step, flops, 1) / peak)
            parts = "".join(f"{share:>17.1%}" for share in shares(step, arguments.rounds).values())
            print(
                f"  {name + ', ' + label:<20}{flops / 1e9:>8.0f}{statistics.median(ratios):>19.2f}{parts}", flush=True
            )
            del step
            gc.collect()


if __name__ == "__main__":
    main()
