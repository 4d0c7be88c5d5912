"""What a training step costs on several ranks: ours beside DistributedDataParallel with torch.optim.

    python benchmarks/parameter_step.py [--ranks 2] [--parameters 25000000] [--batch 64] [--rounds 9] [--measure steps]

The ranks are gloo processes on this machine, one thread each. In every round each way of training makes one step after
the other, so that all of them meet the same load; shown are medians over rounds, and the median of each round's ratio
to DistributedDataParallel. *busy* is the processor time of one rank, which other programs on the machine hardly
change. *handed over* is what a rank gives to its collectives in one step, counted at the calls;
*loopback* is what the machine's loopback device carried in a step (all ranks, and whoever else uses it).
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ostinato.dist import Placement, open_group
from ostinato.kvstore import ParameterTrainer
from ostinato.kvstore.collective import CollectiveStore

LAYERS = 7
SGD = {"learning_rate": 1e-4, "momentum": 0.9}


def network(parameters: int) -> nn.Module:
    """Linear layers of equal width with about so many parameters."""
    torch.manual_seed(0)
    width = round((parameters / LAYERS) ** 0.5)
    return nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(width, width), nn.ReLU())))


class OurSteps:
    """A network, a parameter trainer and a store."""

    def __init__(self, group: Any, parameters: int, **options: Any) -> None:
        self.network = network(parameters)
        self.store = CollectiveStore("dist_sync", group)
        self.trainer = ParameterTrainer(
            dict(self.network.named_parameters()), "sgd", SGD, kvstore=self.store, **options
        )

    def __call__(self, inputs: Tensor) -> None:
        self.trainer.zero_grad()
        self.network(inputs).pow(2).mean().backward()
        self.trainer.step(1)

    def handed_over(self) -> Counter[str]:
        return Counter(self.store.handed_over)

    def state_bytes(self) -> int:
        own = self.store._keys.updater or self.trainer._updaters._updaters[0]
        return sum(value.nbytes for state in own.states.values() for value in state.values())


class TheirSteps:
    """DistributedDataParallel with gradients as views of its buckets, and torch.optim.SGD."""

    def __init__(self, parameters: int) -> None:
        self.network = DistributedDataParallel(network(parameters), gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=1e-4, momentum=0.9)

    def __call__(self, inputs: Tensor) -> None:
        self.optimizer.zero_grad()
        self.network(inputs).pow(2).mean().backward()
        self.optimizer.step()

    def handed_over(self) -> Counter[str]:
        return Counter()

    def state_bytes(self) -> int:
        return sum(value["momentum_buffer"].nbytes for value in self.optimizer.state.values())


def loopback_bytes() -> int:
    """Bytes that the loopback device has sent since the machine was started; 0 where nobody counts."""
    counts = Path("/proc/net/dev")
    if not counts.exists():
        return 0
    for line in counts.read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[8])
    return 0


def run(rank: int, arguments: argparse.Namespace, place: str, results: Any) -> None:
    torch.set_num_threads(1)
    with open_group(
        backend="gloo", placement=Placement(rank, arguments.ranks, rank), rendezvous=Path(place) / "meeting"
    ) as group:
        size = arguments.parameters
        makers: dict[str, Callable[[], Any]] = {
            "DistributedDataParallel": lambda: TheirSteps(size),
            "dist_sync, replicas update": lambda: OurSteps(group, size),
            "dist_sync, store updates": lambda: OurSteps(group, size, update_on_kvstore=True),
            "dist_sync, 2bit": lambda: OurSteps(group, size, compression_params={"type": "2bit", "threshold": 1e-4}),
            "dist_sync, 1bit": lambda: OurSteps(group, size, compression_params={"type": "1bit", "threshold": 0}),
        }
        ways = {name: make() for name, make in makers.items()}
        inputs = torch.randn(arguments.batch, round((size / LAYERS) ** 0.5))
        times: dict[str, list[float]] = {name: [] for name in ways}
        busy: dict[str, list[float]] = {name: [] for name in ways}
        on_the_wire: dict[str, list[int]] = {name: [] for name in ways}
        handed: dict[str, Counter[str]] = {}
        for number in range(arguments.rounds + 2):  # the first two warm up: buckets are made, states too
            for name, step in ways.items():
                before = step.handed_over()
                group.barrier()
                bytes_before, start, own_start = loopback_bytes(), time.perf_counter(), time.process_time()
                step(inputs)
                seconds, own_seconds = time.perf_counter() - start, time.process_time() - own_start
                group.barrier()
                if number >= 2:
                    times[name].append(seconds)
                    busy[name].append(own_seconds)
                    on_the_wire[name].append(loopback_bytes() - bytes_before)
                    handed[name] = step.handed_over() - before
        memory = {name: step.state_bytes() for name, step in ways.items()}
        if rank == 0:
            results.put((times, busy, on_the_wire, handed, memory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--parameters", type=int, default=25_200_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as place:
        ranks = [context.Process(target=run, args=(rank, arguments, place, results)) for rank in range(arguments.ranks)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        if any(process.exitcode for process in ranks):
            raise SystemExit("a rank failed; its own output says why")
        times, busy, on_the_wire, handed, memory = results.get()
    theirs = times["DistributedDataParallel"]
    gradient = 4 * arguments.parameters
    print(f"{arguments.ranks} ranks, {arguments.parameters:,} parameters, batch {arguments.batch}")
    print(
        f"{'':28}{'ms a step':>11}{'ratio':>8}{'busy ms':>9}{'state MiB':>11}{'handed over MiB':>17}{'of float32':>12}"
        f"{'loopback MiB':>14}"
    )
    for name, seconds in times.items():
        ratio = statistics.median(one / other for one, other in zip(seconds, theirs, strict=True))
        given = sum(handed[name].values())
        line = (
            f"{name:28}{statistics.median(seconds) * 1e3:11.0f}{ratio:8.2f}{statistics.median(busy[name]) * 1e3:9.0f}"
        )
        line += f"{memory[name] / 2**20:11.1f}"
        line += f"{given / 2**20:17.2f}{f'1/{gradient / given:.1f}':>12}" if given else f"{'':29}"
        print(line + f"{statistics.median(on_the_wire[name]) / 2**20:14.1f}")


if __name__ == "__main__":
    main()
