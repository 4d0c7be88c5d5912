"""What a step of the head of face recognition costs: processor seconds, memory, and bytes sent.

    python benchmarks/partial_fc.py [--classes 10000 100000 1000000] [--rates 0.1 1.0] [--ranks 2 4] [--steps 4]

1. One rank: forward, backward and update of Partial FC, beside a plain head (normalise, one product, margin, cross
   entropy, torch's SGD on all rows) and pytorch-metric-learning's ArcFaceLoss, where that is installed. Embeddings of
   512 numbers, 128 samples a step, one thread; the median of some steps in processor time, the peak of the process'
   resident memory, and what of it a class accounts for.
2. The same number of sampled rows, among 100 000 classes and among a million: a step must not grow with the classes.
3. Several ranks on gloo, with the bytes that each hands to torch.distributed's collectives, counted by wrapping these,
   and what a ring sends of them.

Each measurement runs in a process of its own. What does not fit into the memory that is free now is left out.

Measured on one core of an AMD EPYC that others used too, torch 2.13::

    One rank, 512 numbers an embedding, 128 samples; processor seconds a step
                head    classes  rate   forward  backward   update    total  peak MiB  bytes/class
          partial_fc     10,000  0.10     0.005     0.003    0.007    0.015       289        7,232
          partial_fc     10,000  1.00     0.024     0.019    0.030    0.077       291        7,422
               plain     10,000  1.00     0.029     0.120    0.012    0.159       530       32,513
     metric_learning     10,000  1.00     0.038     0.113    0.008    0.155       618       41,773
          partial_fc    100,000  0.10     0.029     0.022    0.050    0.101       647        4,484
          partial_fc    100,000  1.00     0.269     0.189    0.305    0.756       687        4,897
               plain    100,000  1.00     0.535     1.944    0.260    2.738      1716       15,694
     metric_learning    100,000  1.00     0.673     1.943    0.254    2.919      1755       16,095
          partial_fc  1,000,000  0.10     0.331     0.215    0.465    1.015      4207        4,181
          partial_fc  1,000,000  1.00     2.752     1.882    3.096    7.741      4645        4,640
               plain  1,000,000  1.00  left out: needs 16 GiB, more than are free
     metric_learning  1,000,000  1.00  left out: needs 16 GiB, more than are free

    As many sampled rows among 100,000 and 1,000,000 classes; processor milliseconds a step
          rows     100,000   1,000,000   ratio
         1,000        18.5        19.4    1.05
        10,000       102.9       112.4    1.09
        50,000       593.6       583.4    0.98

    Several ranks on gloo, 128 samples each, sampling rate 0.1; of the slowest rank
     ranks    classes  seconds  peak MiB  bytes sent a step   data parallel
         2    100,000    0.096       457            528,400     204,800,000
         2  1,000,000    0.912      2259            528,400   2,048,000,000
         4    100,000    0.093       368          1,585,248     307,200,000
         4  1,000,000    0.769      1290          1,585,248   3,072,000,000
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZE, BATCH = 512, 128
RATE = 0.1
MIB = 2**20


# --- one rank --------------------------------------------------------------------------------------------------------


def free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    return 2**62


def needed_bytes(what: str, classes: int, rate: float) -> int:
    """Roughly, to know what to leave out."""
    rows, logits = 4 * SIZE * classes, 4 * BATCH * classes
    if what == "partial_fc":
        return 2 * rows + int(rate * 2 * logits) + 500 * MIB
    return 6 * rows + 8 * logits + 500 * MIB


Phases = tuple[Callable[[Any, Any], Any], Callable[[], None], Callable[[], None]]
"""forward (embeddings, labels) -> loss; update; what comes after it."""


def partial_fc(classes: int, rate: float) -> Phases:
    from ostinato.recognition import class_centres
    from ostinato.recognition.margins import arcface
    from ostinato.recognition.partial_fc import PartialFC

    # The first values are not what is measured here, and take half a minute for a million classes.
    class_centres.fill_initial_centres = lambda rows, first, seed: rows.normal_(0.0, 0.01)
    head = PartialFC(classes, SIZE, arcface(), sampling_rate=rate)
    for table in (head.weight, *head.centres.tables.values()):
        table.add_(0)  # every page gets its memory now, as it would within the first steps
    return head, lambda: head.step(RATE), lambda: None


def plain(classes: int, rate: float) -> Phases:
    import torch
    from torch.nn.functional import cross_entropy, linear, normalize

    from ostinato.recognition.margins import arcface, margin_logits

    weight = torch.nn.Parameter(torch.empty(classes, SIZE).normal_(0.0, 0.01))
    optimizer = torch.optim.SGD([weight], lr=RATE, momentum=0.9, weight_decay=5e-4)
    margin = arcface()

    def forward(embeddings: Any, labels: Any) -> Any:
        cosines = linear(normalize(embeddings), normalize(weight))
        return cross_entropy(margin_logits(cosines, labels, margin), labels)

    return forward, optimizer.step, optimizer.zero_grad


def metric_learning(classes: int, rate: float) -> Phases:
    import torch
    from pytorch_metric_learning.losses import ArcFaceLoss

    loss = ArcFaceLoss(num_classes=classes, embedding_size=SIZE)
    optimizer = torch.optim.SGD(loss.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4)
    return loss, optimizer.step, optimizer.zero_grad


HEADS: dict[str, Callable[[int, float], Phases]] = {
    "partial_fc": partial_fc,
    "plain": plain,
    "metric_learning": metric_learning,
}


def measure(what: str, classes: int, rate: float, steps: int) -> dict[str, float]:
    """In this process: medians in processor seconds, and the peak of its memory in bytes."""
    import torch

    torch.set_num_threads(1)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    forward, update, after = HEADS[what](classes, rate)
    generator = torch.Generator().manual_seed(0)
    times: list[tuple[float, float, float, float]] = []
    for _ in range(steps + 1):
        embeddings = torch.randn((BATCH, SIZE), generator=generator, requires_grad=True)
        labels = torch.randint(classes, (BATCH,), generator=generator)
        marks = [time.process_time()]
        loss = forward(embeddings, labels)
        marks.append(time.process_time())
        loss.backward()
        marks.append(time.process_time())
        update()
        after()
        marks.append(time.process_time())
        times.append((marks[1] - marks[0], marks[2] - marks[1], marks[3] - marks[2], marks[3] - marks[0]))
    medians = [statistics.median(column) for column in zip(*times[1:], strict=True)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return dict(zip(("forward", "backward", "update", "total"), medians, strict=True)) | {"peak": peak, "base": base}


def in_a_process(*arguments: object) -> dict[str, float] | None:
    """What :func:`measure` finds in a fresh process; None if it failed, for want of memory or of a package."""
    done = subprocess.run(
        [sys.executable, __file__, "--measure", json.dumps(arguments)], capture_output=True, text=True, check=False
    )
    return json.loads(done.stdout) if done.returncode == 0 else None


def one_rank_table(all_classes: list[int], rates: list[float], steps: int) -> None:
    print(f"\nOne rank, {SIZE} numbers an embedding, {BATCH} samples; processor seconds a step")
    print(f"{'head':>16}{'classes':>11}{'rate':>6}{'forward':>10}{'backward':>10}{'update':>9}{'total':>9}", end="")
    print(f"{'peak MiB':>10}{'bytes/class':>13}")
    jobs = [(what, classes, rate) for classes in all_classes for what in HEADS for rate in rates]
    for what, classes, rate in jobs:
        if what != "partial_fc" and rate != rates[-1]:
            continue  # they know no rate
        shown = f"{what:>16}{classes:11,}{rate if what == 'partial_fc' else 1.0:6.2f}"
        if needed_bytes(what, classes, rate) > free_bytes():
            print(f"{shown}  left out: needs {needed_bytes(what, classes, rate) / 2**30:.0f} GiB, more than are free")
            continue
        found = in_a_process(what, classes, rate, steps)
        if found is None:
            print(f"{shown}  left out: it failed (is the package installed, and the memory free?)")
            continue
        seconds = "".join(
            f"{found[name]:{width}.3f}"
            for name, width in (("forward", 10), ("backward", 10), ("update", 9), ("total", 9))
        )
        print(
            f"{shown}{seconds}{found['peak'] / MIB:10.0f}{(found['peak'] - found['base']) / classes:13,.0f}", flush=True
        )


# --- as many rows among more classes ---------------------------------------------------------------------------------


def fixed_rows(few: int, many: int, sampled: int, steps: int) -> dict[str, float]:
    """Both heads in one process, taking turns, so that both meet the same weather."""
    import torch

    torch.set_num_threads(1)
    heads = [partial_fc(classes, sampled / classes) for classes in (few, many)]
    times: list[list[float]] = [[], []]
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps + 1):
        for number, (forward, update, _) in enumerate(heads):
            embeddings = torch.randn((BATCH, SIZE), generator=generator, requires_grad=True)
            labels = torch.randint((few, many)[number], (BATCH,), generator=generator)
            start = time.process_time()
            forward(embeddings, labels).backward()
            update()
            times[number].append(time.process_time() - start)
    return {"few": statistics.median(times[0][1:]), "many": statistics.median(times[1][1:])}


def fixed_rows_table(steps: int) -> None:
    few, many = 10**5, 10**6
    print(f"\nAs many sampled rows among {few:,} and {many:,} classes; processor milliseconds a step")
    print(f"{'rows':>10}{few:>12,}{many:>12,}{'ratio':>8}")
    for sampled in (1000, 10_000, 50_000):
        needed = needed_bytes("partial_fc", few, 1.0) + needed_bytes("partial_fc", many, 0.1)
        if needed > free_bytes():
            print(f"{sampled:10,}  left out: needs {needed / 2**30:.0f} GiB, more than are free")
            continue
        found = in_a_process("fixed", few, many, sampled, steps)
        assert found is not None
        ratio = found["many"] / found["few"]
        print(f"{sampled:10,}{1e3 * found['few']:12.1f}{1e3 * found['many']:12.1f}{ratio:8.2f}", flush=True)


# --- several ranks ---------------------------------------------------------------------------------------------------

COUNTED = ("all_gather_into_tensor", "all_gather_single", "all_gather", "all_reduce", "all_to_all_single")
"""Names in torch.distributed, old and new."""


def count_bytes() -> Counter[str]:
    """Wrap the collectives of torch.distributed, so that each call is counted with its bytes."""
    import torch.distributed as dist

    from ostinato.kvstore import collective_calls

    handed_over: Counter[str] = Counter()

    def wrapped(name: str, call: Callable[..., Any], place: int) -> Callable[..., Any]:
        def counting(*arguments: Any, **keywords: Any) -> Any:
            tensor = arguments[place]
            handed_over[name] += tensor.numel() * tensor.element_size()
            return call(*arguments, **keywords)

        return counting

    for name in COUNTED:
        if hasattr(dist, name):
            setattr(dist, name, wrapped(name, getattr(dist, name), 0 if name == "all_reduce" else 1))
    # This one was looked up when its module was imported.
    gather = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
    collective_calls._all_gather_flat = getattr(dist, gather)
    return handed_over


def sent_by_a_ring(handed_over: Counter[str], size: int) -> float:
    part = {"all_reduce": 2 / size, "all_to_all_single": 1 / size}
    return sum((size - 1) * part.get(name, 1.0) * number for name, number in handed_over.items())


def rank_of_many(rank: int, size: int, classes: int, rate: float, steps: int, folder: str) -> None:
    import torch

    from ostinato.dist import Placement, open_group
    from ostinato.recognition import class_centres
    from ostinato.recognition.margins import arcface
    from ostinato.recognition.partial_fc import PartialFC

    torch.set_num_threads(1)
    class_centres.fill_initial_centres = lambda rows, first, seed: rows.normal_(0.0, 0.01)
    with open_group(
        backend="gloo", placement=Placement(rank, size, rank), rendezvous=Path(folder) / "meeting"
    ) as group:
        head = PartialFC(classes, SIZE, arcface(), sampling_rate=rate, group=group)
        handed_over = count_bytes()
        times = []
        for number in range(steps + 1):
            generator = torch.Generator().manual_seed(1000 * number + rank)
            embeddings = torch.randn((BATCH, SIZE), generator=generator, requires_grad=True)
            labels = torch.randint(classes, (BATCH,), generator=generator)
            if number == 1:
                handed_over.clear()
            start = time.process_time()
            head(embeddings, labels).backward()
            head.step(RATE)
            times.append(time.process_time() - start)
        found = {
            "seconds": statistics.median(times[1:]),
            "sent": sent_by_a_ring(handed_over, size) / steps,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        (Path(folder) / f"rank_{rank}.json").write_text(json.dumps(found))


def many_ranks_table(ranks: list[int], all_classes: list[int], rate: float, steps: int) -> None:
    print(f"\nSeveral ranks on gloo, {BATCH} samples each, sampling rate {rate}; of the slowest rank")
    print(f"{'ranks':>6}{'classes':>11}{'seconds':>9}{'peak MiB':>10}{'bytes sent a step':>19}{'data parallel':>16}")
    context = multiprocessing.get_context("spawn")
    for size in ranks:
        for classes in all_classes:
            needed = needed_bytes("partial_fc", classes, rate) + size * 400 * MIB
            if needed > free_bytes():
                print(f"{size:6}{classes:11,}  left out: needs {needed / 2**30:.0f} GiB, more than are free")
                continue
            with tempfile.TemporaryDirectory() as folder:
                processes = [
                    context.Process(target=rank_of_many, args=(rank, size, classes, rate, steps, folder))
                    for rank in range(size)
                ]
                for process in processes:
                    process.start()
                for process in processes:
                    process.join()
                found = [json.loads((Path(folder) / f"rank_{rank}.json").read_text()) for rank in range(size)]
            worst = {name: max(one[name] for one in found) for name in found[0]}
            # What a data-parallel classifier would send: the gradient of all centres, reduced over the ranks.
            dense = 8 * (size - 1) / size * classes * SIZE
            line = f"{size:6}{classes:11,}{worst['seconds']:9.3f}{worst['peak'] / MIB:10.0f}"
            print(f"{line}{worst['sent']:19,.0f}{dense:16,.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        what, *others = json.loads(arguments.measure)
        print(json.dumps(fixed_rows(*others) if what == "fixed" else measure(what, *others)))
        return
    one_rank_table(arguments.classes, arguments.rates, arguments.steps)
    fixed_rows_table(max(arguments.steps, 8))
    many_ranks_table(
        arguments.ranks, [classes for classes in arguments.classes if classes > 10**4], 0.1, arguments.steps
    )


if __name__ == "__main__":
    main()
