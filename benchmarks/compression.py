"""What gradient compression costs on one core, beside a copy of the same gradient and the plain version.

    python benchmarks/compression.py [--elements 25000000] [--rounds 7]

Figures are processor time of one thread, the fastest of some rounds, as gigabytes of float32 gradient a second. *pack*
makes words and residual from a gradient, *decode* adds what words stand for to a sum. *numpy in blocks* is what the
stores use on a CPU; *tensor operations* is what they use elsewhere; the *plain* version is the specification.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from ostinato.kvstore.compression import CompressionScheme, add_decoded, quantise, quantise_plainly
from ostinato.kvstore.compression.one_pass import quantise_in_one_pass

PLAIN_ELEMENTS = 20_000


def fastest(call: Callable[[], object], rounds: int) -> float:
    """Seconds of processor time of the fastest of some calls, after one to warm up."""
    call()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=25_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    elements, rounds = arguments.elements, arguments.rounds
    gradient = torch.randn(elements, generator=torch.Generator().manual_seed(0)) * 0.3
    residual, total = torch.zeros(elements), torch.zeros(elements)

    print(f"{'GB of float32 gradient a second':34}{'pack':>10}{'decode':>10}{'bytes sent':>16}")
    seconds = fastest(lambda: total.copy_(gradient), rounds)
    print(f"{'copy':34}{4 * elements / seconds / 1e9:10.2f}{'':10}{4 * elements:16,}")
    for scheme in (CompressionScheme("2bit", 0.5), CompressionScheme("1bit", 0.0)):
        packed = torch.empty(scheme.packed_bytes(elements), dtype=torch.uint8)
        ways: list[tuple[str, Callable[[], object]]] = [
            ("numpy in blocks", lambda s=scheme, p=packed: quantise(s, gradient, residual, p)),
            ("tensor operations", lambda s=scheme, p=packed: quantise_in_one_pass(s, gradient, residual, p)),
        ]
        for number, (name, pack) in enumerate(ways):
            speed = 4 * elements / fastest(pack, rounds) / 1e9
            line = f"{scheme.type + ', ' + name:34}{speed:10.2f}"
            if number == 0:
                seconds = fastest(lambda s=scheme, p=packed: add_decoded(s, p, total), rounds)
                line += f"{4 * elements / seconds / 1e9:10.2f}{len(packed):16,}  (1/{4 * elements / len(packed):.0f})"
            print(line)
        few = gradient[:PLAIN_ELEMENTS].tolist()
        seconds = fastest(lambda s=scheme, few=few: quantise_plainly(s, few, [0.0] * len(few)), 1)
        print(f"{scheme.type + ', plain':34}{4 * len(few) / seconds / 1e9:10.5f}")


if __name__ == "__main__":
    main()
