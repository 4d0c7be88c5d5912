"""What the loop costs: nanoseconds of processor time per iteration, with an update that only counts.

Each loop runs the same five extensions: three every iteration and two every hundred, or five that never fire. Beside
ours stand a bare ``for`` loop with the same calls; a loop of the design that text-to-speech recipes know, with and
without the line that it composes for the log in every iteration (which nobody sees here); and pytorch-pfn-extras and
Ignite, where they are installed. Processor time does not count what other programs take, but a machine that is busy
makes every loop slower: compare the rows of one table.

    python benchmarks/loop_overhead.py [--iterations 20000] [--runs 9]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from ostinato.loop import Trainer, UpdaterState

BUSY = ((1, "iteration"), (1, "iteration"), (1, "iteration"), (100, "iteration"), (100, "iteration"))
IDLE = ((10**9, "iteration"),) * 5


class Counter:
    """An extension that only counts its calls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0

    def __call__(self, trainer: Any) -> None:
        self.calls += 1


class CountingUpdater:
    """An updater that only counts."""

    def __init__(self) -> None:
        self.state = UpdaterState()

    def update(self) -> None:
        self.state.advance()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...


def bare(iterations: int, triggers: Any) -> float:
    """Seconds of a hand-written loop with the same calls."""
    updater, extensions = CountingUpdater(), [Counter(f"e{number}") for number in range(5)]
    periods = [period for period, _ in triggers]
    often = [e for e, period in zip(extensions, periods, strict=True) if period == 1]
    seldom = [(e, period) for e, period in zip(extensions, periods, strict=True) if period > 1]
    start = time.process_time()
    for iteration in range(1, iterations + 1):
        updater.update()
        for extension in often:
            extension(None)
        for extension, period in seldom:
            if iteration % period == 0:
                extension(None)
    return time.process_time() - start


def ostinato(iterations: int, triggers: Any) -> float:
    """Seconds of our trainer, from before ``run`` to after it."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(CountingUpdater(), (iterations, "iteration"), out=folder)
        for number, trigger in enumerate(triggers):
            trainer.extend(Counter(f"e{number}"), trigger=trigger)
        start = time.process_time()
        trainer.run()
        return time.process_time() - start


class FormerInterval:
    """A trigger as recipes for text-to-speech have it: it compares two period numbers at every call."""

    def __init__(self, period: int, unit: str) -> None:
        self.period, self.unit = period, unit
        self.last: int | None = None

    def __call__(self, trainer: Any) -> bool:
        index = getattr(trainer.updater.state, self.unit)
        if self.last is None:
            self.last = index
        fires = index // self.period != self.last // self.period
        self.last = index
        return fires


class FormerTrainer:
    """A loop as recipes for text-to-speech have it: a scope for every iteration, then every extension in order."""

    target: dict[str, Any] | None = None

    def __init__(self, iterations: int, triggers: Any, log: logging.Logger | None) -> None:
        self.updater = CountingUpdater()
        self.entries = [(FormerInterval(*trigger), Counter(f"e{number}")) for number, trigger in enumerate(triggers)]
        self.iterations = iterations
        self.log = log
        self.observation: dict[str, Any] = {}

    @contextlib.contextmanager
    def scope(self, target: dict[str, Any]) -> Any:
        before, FormerTrainer.target = FormerTrainer.target, target
        try:
            yield
        finally:
            FormerTrainer.target = before

    def has_finished(self) -> bool:
        return self.updater.state.iteration >= self.iterations

    def run(self) -> None:
        while not self.has_finished():
            self.observation = {}
            with self.scope(self.observation):
                self.updater.update()
                if self.log is not None:
                    line = f"iter: {self.updater.state.iteration}/{self.iterations}, "
                    line += ", ".join(f"{name}: {0.0:.5f} sec" for name in ("avg_reader_cost", "avg_batch_cost"))
                    line += f", avg_samples: {32}, avg_ips: {32.0:.5f} sequences/sec"
                    self.log.info(line)
                for trigger, extension in self.entries:
                    if trigger(self):
                        extension(self)


def former(iterations: int, triggers: Any) -> float:
    """Seconds of a loop of the former design without its log line."""
    trainer = FormerTrainer(iterations, triggers, None)
    start = time.process_time()
    trainer.run()
    return time.process_time() - start


def former_with_line(iterations: int, triggers: Any) -> float:
    """Seconds of a loop of the former design that composes a log line below the level that is shown."""
    log = logging.getLogger("former")
    log.setLevel(logging.WARNING)
    trainer = FormerTrainer(iterations, triggers, log)
    start = time.process_time()
    trainer.run()
    return time.process_time() - start


def pfn_extras(iterations: int, triggers: Any) -> float:
    """Seconds of the manager of pytorch-pfn-extras.

    :raises ImportError: when it is not installed.
    """
    import pytorch_pfn_extras as ppe
    import torch

    with tempfile.TemporaryDirectory() as folder:
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        manager = ppe.training.ExtensionsManager(model, optimizer, 1, iters_per_epoch=iterations, out_dir=folder)
        for number, trigger in enumerate(triggers):
            manager.extend(Counter(f"e{number}"), name=f"e{number}", trigger=trigger)
        state = UpdaterState()
        start = time.process_time()
        while not manager.stop_trigger:
            with manager.run_iteration():
                state.advance()
        return time.process_time() - start


def ignite(iterations: int, triggers: Any) -> float:
    """Seconds of an engine of Ignite.

    :raises ImportError: when it is not installed.
    """
    from ignite.engine import Engine, Events

    state = UpdaterState()
    engine = Engine(lambda engine, batch: state.advance())
    for number, (period, _) in enumerate(triggers):
        engine.add_event_handler(Events.ITERATION_COMPLETED(every=period), Counter(f"e{number}"))
    start = time.process_time()
    engine.run([0] * iterations, max_epochs=1)
    return time.process_time() - start


LOOPS: tuple[tuple[str, Callable[[int, Any], float]], ...] = (
    ("bare loop, same calls", bare),
    ("ostinato.loop.Trainer", ostinato),
    ("former design", former),
    ("former design, log line", former_with_line),
    ("pytorch-pfn-extras", pfn_extras),
    ("ignite", ignite),
)


def measure(loop: Callable[[int, Any], float], iterations: int, triggers: Any, runs: int) -> float:
    """Nanoseconds per iteration, the median of some runs with the garbage collector at rest."""
    times = []
    for _ in range(runs):
        gc.collect()
        gc.disable()
        try:
            times.append(loop(iterations, triggers))
        finally:
            gc.enable()
    return statistics.median(times) / iterations * 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=9)
    arguments = parser.parse_args()
    print(f"{'ns per iteration':28}{'3 fire each time':>18}{'none fires':>14}")
    for name, loop in LOOPS:
        try:
            busy, idle = (measure(loop, arguments.iterations, kind, arguments.runs) for kind in (BUSY, IDLE))
        except ImportError:
            print(f"{name:28}{'not installed':>18}")
            continue
        print(f"{name:28}{busy:18,.0f}{idle:14,.0f}")


if __name__ == "__main__":
    main()
