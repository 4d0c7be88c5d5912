"""One optimizer step over 25 million parameters, beside those of torch.optim.

    python benchmarks/optimizer_step.py [--rules sgd adam adamw lamb] [--swap adam lion ...] [--millions 25]
        [--threads 1] [--rounds 7]

About sixty tensors, as a network has them: large matrices, convolutions, and many small vectors. *Ours* is an updater
that is handed all gradients at once, as the parameter trainer does; with ``1/64`` every gradient is rescaled on its
way, which torch leaves to the caller. *plain* are the equations, tensor by tensor (``use_fused_step=False``). *foreach*
and *fused* are torch's. Torch has no lamb; its AdamW stands beside it, which does less: no norms, one walk over the
tensors instead of two.

Below come the optimizers of a swap training as its options build them, each beside torch's *foreach* form. Torch has
neither lion nor adabelief; its SGD with momentum and its AdamW stand beside them, which read and write as much.

In each round all steps run one after the other in the same process, so that whatever else the machine does meets all of
them. The table gives medians over rounds, and medians of the ratios within the rounds. CPU-seconds count all threads
and are steadier than the clock on a shared machine. On a GPU the clock is read after synchronising.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ostinato.config import OptimizerOptions
from ostinato.optim import build_optimizer, optimizer_names
from ostinato.optim.rules import Updater, create

RULES = {
    "sgd": {"learning_rate": 1e-3, "momentum": 0.9, "wd": 1e-4},
    "adam": {"learning_rate": 1e-5},
    "adamw": {"learning_rate": 1e-5, "wd": 1e-2},
    "lamb": {"learning_rate": 1e-5, "wd": 1e-2},
}
TORCH: dict[str, tuple[type[torch.optim.Optimizer], dict[str, float]]] = {
    "sgd": (torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9, "weight_decay": 1e-4}),
    "adam": (torch.optim.Adam, {"lr": 1e-5}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-5, "weight_decay": 1e-2}),
    "lamb": (torch.optim.AdamW, {"lr": 1e-5, "weight_decay": 1e-2}),
}
SWAP_TORCH: dict[str, tuple[type[torch.optim.Optimizer], dict[str, float]]] = {
    "adabelief": (torch.optim.AdamW, {"lr": 1e-5}),
    "adam": (torch.optim.Adam, {"lr": 1e-5}),
    "adamax": (torch.optim.Adamax, {"lr": 1e-5}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-5, "weight_decay": 1e-2}),
    "lion": (torch.optim.SGD, {"lr": 1e-5, "momentum": 0.9}),
    "nadam": (torch.optim.NAdam, {"lr": 1e-5}),
    "rms-prop": (torch.optim.RMSprop, {"lr": 1e-5}),
}
Step = Callable[[], object]


def shapes(millions: float) -> list[tuple[int, ...]]:
    """About sixty shapes: 20 matrices, 10 convolutions, 30 vectors."""
    scale = (millions / 25) ** 0.5
    side, channels = max(1, round(1024 * scale)), max(1, round(224 * scale))
    return [(side, side)] * 20 + [(channels, channels, 3, 3)] * 9 + [(channels * 2, channels, 1, 1)] + [(side,)] * 30


def ours(name: str, sizes: list[tuple[int, ...]], gradients: list[Tensor], **more: float) -> Step:
    weights = [torch.randn(size, device=gradients[0].device) for size in sizes]
    updater, indices = Updater(create(name, **RULES[name], **more)), list(range(len(weights)))
    return lambda: updater(indices, gradients, weights)


def torchs(
    name: str, sizes: list[tuple[int, ...]], gradients: list[Tensor], table: dict[str, Any] = TORCH, **how: bool
) -> Step:
    weights = [torch.nn.Parameter(torch.randn(size, device=gradients[0].device)) for size in sizes]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient
    cls, arguments = table[name]
    return cls(weights, **arguments, **how).step  # type: ignore[arg-type]


def of_a_swap(name: str, sizes: list[tuple[int, ...]], gradients: list[Tensor]) -> Step:
    weights = [torch.nn.Parameter(torch.randn(size, device=gradients[0].device)) for size in sizes]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient
    decay, epsilon = (0.01 if name == "adamw" else 0.0), (-16 if name == "adabelief" else -7)
    options = OptimizerOptions(optimizer=name, weight_decay=decay, epsilon_exponent=epsilon)  # type: ignore[arg-type]
    return build_optimizer([(f"{number}.weight", weight) for number, weight in enumerate(weights)], options).step


def measured(step: Step, device: torch.device) -> tuple[float, float]:
    """Milliseconds of clock and of CPU."""
    clock, cpu = time.perf_counter(), time.process_time()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - clock), 1e3 * (time.process_time() - cpu)


def compare(name: str, sizes: list[tuple[int, ...]], device: torch.device, rounds: int) -> None:
    gradients = [torch.randn(size, device=device) for size in sizes]
    steps = {
        "ours": ours(name, sizes, gradients),
        "ours, 1/64": ours(name, sizes, gradients, rescale_grad=1 / 64),
        "ours, plain": ours(name, sizes, gradients, use_fused_step=False),
        "torch foreach": torchs(name, sizes, gradients, foreach=True),
        "torch fused": torchs(name, sizes, gradients, fused=True),
    }
    title = f"{name}{'  (torch: AdamW)' if name == 'lamb' else ''}"
    show(title, steps, ("torch foreach", "torch fused"), device, rounds)


def compare_swap(name: str, sizes: list[tuple[int, ...]], device: torch.device, rounds: int) -> None:
    gradients = [torch.randn(size, device=device) for size in sizes]
    steps = {
        "as built": of_a_swap(name, sizes, gradients),
        "torch foreach": torchs(name, sizes, gradients, SWAP_TORCH, foreach=True),
    }
    stand_in = {"adabelief": "  (torch: AdamW)", "lion": "  (torch: SGD with momentum)"}.get(name, "")
    show(f"swap: {name}{stand_in}", steps, ("torch foreach",), device, rounds)


def show(title: str, steps: dict[str, Step], references: tuple[str, ...], device: torch.device, rounds: int) -> None:
    for step in steps.values():  # states come into being, and memory with them
        measured(step, device)
    times: dict[str, list[tuple[float, float]]] = {what: [] for what in steps}
    for _ in range(rounds):
        for what, step in steps.items():
            times[what].append(measured(step, device))
    print(f"\n{title}")
    print(
        f"  {'':14} {'ms':>8} {'CPU ms':>8}"
        + "".join(f"{'of ' + each.removeprefix('torch '):>12}" for each in references)
    )
    for what, found in times.items():
        clock, cpu = (statistics.median(each) for each in zip(*found, strict=True))
        ratios = ""
        for reference in references:
            pairs = zip(found, times[reference], strict=True)
            column = 0 if device.type == "cuda" else 1
            ratios += f"{statistics.median(one[column] / other[column] for one, other in pairs):11.2f}x"
        print(f"  {what:14} {clock:8.1f} {cpu:8.1f}{ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rules", nargs="*", default=list(RULES), choices=list(RULES))
    parser.add_argument("--swap", nargs="*", default=list(optimizer_names()), choices=list(optimizer_names()))
    parser.add_argument("--millions", type=float, default=25.0, help="parameters, in millions")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device, sizes = torch.device(options.device), shapes(options.millions)
    count = sum(torch.Size(size).numel() for size in sizes)
    print(
        f"{count / 1e6:.1f} million parameters in {len(sizes)} tensors on {device}, {options.threads} threads of "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}, {platform.machine()}. "
        "Ratios are of CPU time, on a GPU of the clock."
    )
    for name in options.rules:
        compare(name, sizes, device, options.rounds)
    for name in options.swap:
        compare_swap(name, sizes, device, options.rounds)


if __name__ == "__main__":
    main()
