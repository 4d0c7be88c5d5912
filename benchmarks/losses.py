"""Time and memory of each loss function with its gradient, beside libraries that compute the same.

    python benchmarks/losses.py [--sizes 64 128 256] [--losses ssim ffl ...] [--batch 16] [--threads 1] [--rounds 5]
    python benchmarks/losses.py --step [--rounds 5]

One call takes a batch of pictures with three channels, computes the loss, its mean, and the gradient for the drawn
pictures. The table gives the median over rounds, and how much the call takes at its highest beyond what was there
before (for the pictures, the gradient and all in between; on Linux from the resident set, on a GPU from PyTorch's
allocator), also in maps of the size of the drawn pictures. In each round all rows of a size run one after the other, so
that whatever else the machine does meets all of them; the ratio to a library is the median of the ratios within rounds.

Libraries that are not installed are left out: ``pip install kornia torchmetrics pytorch-msssim focal-frequency-loss``.
*Same* says whether a library computes the same numbers; the others are there because their work is alike.

``--step`` compares ssim and mse together, weighted by masks, with the forward and backward pass of the model
``original`` that they belong to: they should take at most a quarter of it.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ostinato.config import InitializationOptions, LossOptions, ModelOptions, NetworkOptions
from ostinato.swap.losses import LpipsWeights, SwapLoss, build_loss, loss_names
from ostinato.swap.losses.lpips_networks import NETWORKS
from ostinato.swap.models import build_model

Function = Callable[[Tensor, Tensor], Tensor]


def random_weights(name: str) -> LpipsWeights:
    """Weights of the right shapes; what they are makes no difference to time and memory."""
    network = NETWORKS[name]
    generator = torch.Generator().manual_seed(0)
    trunk = {key: torch.randn(shape, generator=generator) * 0.05 for key, shape in network.trunk_shapes.items()}
    return LpipsWeights(name, trunk, tuple(torch.rand(1, n, 1, 1, generator=generator) for n in network.channels))


def our_function(name: str, size: int, device: torch.device) -> Function:
    weights = {name: random_weights(name)} if name in NETWORKS else None
    return build_loss(name, (size,), weights).to(device)


def libraries(size: int) -> dict[str, list[tuple[str, bool, Function]]]:
    """For each loss the libraries at hand: name, whether it computes the same, and the call."""
    found: dict[str, list[tuple[str, bool, Function]]] = {}

    def add(loss: str, module: str, same: bool, make: Callable[..., Function]) -> None:
        try:
            loaded = importlib.import_module(module)
        except ImportError:
            return
        found.setdefault(loss, []).append((module.partition(".")[0], same, make(loaded)))

    add("ssim", "kornia.metrics", True, lambda k: lambda t, p: 1 - k.ssim(t, p, 11))
    add("ssim", "torchmetrics.functional.image", True, lambda m: _torchmetrics(m))
    add("ssim", "pytorch_msssim", False, lambda m: lambda t, p: 1 - m.ssim(t, p, data_range=1.0))
    if size > 160:
        add("ms_ssim", "pytorch_msssim", False, lambda m: lambda t, p: 1 - m.ms_ssim(t, p, data_range=1.0))
    add(
        "smooth_loss",
        "kornia.losses",
        True,
        lambda k: lambda t, p: k.charbonnier_loss(p * 255, t * 255, reduction="none") / 255,
    )
    add("ffl", "focal_frequency_loss", True, lambda m: m.FocalFrequencyLoss())
    return found


def _torchmetrics(module: object) -> Function:
    similarity = module.structural_similarity_index_measure  # type: ignore[attr-defined]

    def call(target: Tensor, prediction: Tensor) -> Tensor:
        _, full = similarity(prediction, target, data_range=1.0, sigma=1.5, return_full_image=True)
        return 1 - full

    return call


def call_with_gradient(function: Function, target: Tensor, prediction: Tensor) -> None:
    prediction.grad = None
    function(target, prediction).mean().backward()


def seconds_of(call: Callable[[], None], device: torch.device) -> float:
    """Of one call, after one that does not count."""
    call()
    _wait(device)
    start = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - start


def peak_bytes(call: Callable[[], None], device: torch.device) -> int | None:
    """How much memory a call takes at its highest, beyond what was there before; None where nobody knows."""
    gc.collect()
    if device.type == "cuda":
        _wait(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        _wait(device)
        return torch.cuda.max_memory_allocated(device) - before
    if not sys.platform.startswith("linux"):
        return None
    # What earlier calls freed is given back, or the call would find it there.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    call()
    return max(_status("VmHWM") - before, 0)


def _status(entry: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{entry}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {entry}")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def compare_losses(names: list[str], size: int, batch: int, rounds: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(batch, 3, size, size, generator=generator)
    prediction = (0.9 * target + 0.1 * torch.rand(batch, 3, size, size, generator=generator)).to(device)
    target, prediction = target.to(device), prediction.requires_grad_()
    beside = libraries(size)
    rows: list[tuple[str, str, str, Function]] = []
    for name in names:
        try:
            rows.append((name, "ours", "", our_function(name, size, device)))
        except ValueError as error:
            print(f"{name:20} left out: {error}")
            continue
        rows += [(name, library, "same" if same else "alike", f) for library, same, f in beside.get(name, [])]
    calls = [lambda f=function: call_with_gradient(f, target, prediction) for *_, function in rows]
    times: list[list[float]] = [[] for _ in rows]
    for _ in range(rounds):
        for index, call in enumerate(calls):
            times[index].append(seconds_of(call, device))
    peaks = []
    for call in calls:
        prediction.grad = None
        peaks.append(peak_bytes(call, device))
    print(f"\n{size} x {size} pixels, batch {batch}")
    print(f"{'loss':20} {'by':22} {'':6} {'ms':>9} {'MiB':>8} {'maps':>6}  ours / library, time")
    map_bytes = target.numel() * target.element_size()
    own: list[float] = []
    for (name, by, same, _), taken, peak in zip(rows, times, peaks, strict=True):
        ratio = ""
        if by == "ours":
            own = taken
        else:
            ratio = f"{statistics.median(o / t for o, t in zip(own, taken, strict=True)):.2f}"
        memory = "       ?      ?" if peak is None else f"{peak / 2**20:8.1f} {peak / map_bytes:6.1f}"
        print(f"{name:20} {by:22} {same:6} {statistics.median(taken) * 1e3:9.2f} {memory}  {ratio}")


def compare_with_step(batch: int, rounds: int, device: torch.device) -> None:
    options = {
        "model": ModelOptions(name="original"),
        "initialization": InitializationOptions(),
        "network": NetworkOptions(),
    }
    model = build_model("original", learn_mask=False, seed=1, **options).to(device)
    size = model.output_sizes[0]
    loss = SwapLoss(LossOptions(), False, (size,)).to(device)
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator).to(device)

    inputs = draw(2, batch, 3, model.input_size, model.input_size)
    target = draw(batch, 3, size, size)
    prediction = draw(batch, 3, size, size).requires_grad_()
    masks = {name: [draw(batch, 1, size, size)] for name in ("face", "eye", "mouth")}

    def step() -> None:
        model.zero_grad(set_to_none=True)
        torch.stack([outputs[0].sum() for outputs in model(inputs)]).sum().backward()

    def both_sides() -> None:
        prediction.grad = None
        for _ in range(2):
            loss([prediction], [target], masks).total.backward()

    taken = [(seconds_of(step, device), seconds_of(both_sides, device)) for _ in range(rounds)]
    of_model, of_losses = (statistics.median(column) for column in zip(*taken, strict=True))
    share = statistics.median(losses / model_ for model_, losses in taken)
    print(f"\noriginal, {size} x {size} pixels, two sides, batch {batch}")
    print(f"model, forward and backward  {of_model * 1e3:9.2f} ms")
    print(f"ssim and mse with masks      {of_losses * 1e3:9.2f} ms   {share:.3f} of the model's")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--losses", nargs="+", default=list(loss_names()), choices=loss_names())
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--step", action="store_true", help="compare ssim and mse with the model's step instead")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    print(f"{where}, {os.cpu_count()} processors, {arguments.threads} threads, torch {torch.__version__}")
    if arguments.step:
        compare_with_step(arguments.batch, arguments.rounds, device)
        return
    for size in arguments.sizes:
        compare_losses(arguments.losses, size, arguments.batch, arguments.rounds, device)


if __name__ == "__main__":
    main()
