"""One training pass of the recognition backbones, beside the same layers written as short PyTorch programs.

    python benchmarks/backbones.py [--networks r18 r50 mbf] [--batch-size 4] [--rounds 5] [--threads 1]
                                   [--device cuda] [--variants plain channels_last checkpointing bfloat16]

A pass is forward and backward over random pictures of 112 x 112 pixels; no optimizer. *Ours* is what training runs;
*bare* are the same layers in ``nn.Sequential``, without names, checks, precision sections or checkpoints. Their first
weights differ, which changes no cost.

In each round all passes of a table run one after the other in the same process, so that whatever else the machine does
meets all of them. The table gives medians over rounds, and the median of the ratios to the bare pass of the same round.
CPU-seconds count all threads and are steadier than the clock on a shared machine. On a GPU the clock is read after
synchronising.

Memory: *kept* are the bytes of all activations that are kept from the forward for the backward pass, counted by what
autograd saves, without weights. It does not depend on the machine. On a GPU *peak* is the most that was allocated in a
pass.

Variants: ``plain``; ``channels_last`` (weights and pictures in that layout, both networks); ``checkpointing`` (ours
alone: one activation a block); ``bfloat16`` (our precision sections; bare under autocast as a whole).
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ostinato.recognition.backbones import build_backbone

VARIANTS = ("plain", "channels_last", "checkpointing", "bfloat16")
BLOCKS = {"r18": (2, 2, 2, 2), "r34": (3, 4, 6, 3), "r50": (3, 4, 14, 3), "r100": (3, 13, 30, 3)}
Forward = Callable[[], Tensor]
"""Computes a number to go back from."""


class Sum(nn.Module):
    """What two branches give, added."""

    def __init__(self, one: nn.Module, other: nn.Module) -> None:
        super().__init__()
        self.one, self.other = one, other

    def forward(self, values: Tensor) -> Tensor:
        return self.one(values) + self.other(values)


def bare_residual(blocks: tuple[int, ...]) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64)]
    inputs = 64
    for count, outputs in zip(blocks, (64, 128, 256, 512), strict=True):
        for number in range(count):
            stride = 2 if number == 0 else 1
            branch = nn.Sequential(
                nn.BatchNorm2d(inputs),
                nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.PReLU(outputs),
                nn.Conv2d(outputs, outputs, 3, stride, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )
            shortcut: nn.Module = nn.Identity()
            if number == 0:
                shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            layers.append(Sum(branch, shortcut))
            inputs = outputs
    return nn.Sequential(*layers, nn.BatchNorm2d(512), nn.Flatten(), nn.Linear(25088, 512), nn.BatchNorm1d(512))


def bare_mobile() -> nn.Module:
    def unit(
        inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, groups: int = 1
    ) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.PReLU(outputs)]

    def depth_wise(inputs: int, outputs: int, width: int, stride: int) -> nn.Module:
        layers = [*unit(inputs, width, 1), *unit(width, width, 3, stride, 1, width), *unit(width, outputs, 1)[:2]]
        return nn.Sequential(*layers)

    def residual(channels: int, count: int, width: int) -> list[nn.Module]:
        return [Sum(depth_wise(channels, channels, width, 1), nn.Identity()) for _ in range(count)]

    return nn.Sequential(
        *unit(3, 128, 3, 2, 1),
        *unit(128, 128, 3, 1, 1, 64),
        depth_wise(128, 128, 128, 2),
        *residual(128, 4, 128),
        depth_wise(128, 256, 256, 2),
        *residual(256, 6, 256),
        depth_wise(256, 256, 512, 2),
        *residual(256, 2, 256),
        *unit(256, 512, 1),
        *unit(512, 512, 7, groups=512)[:2],
        nn.Flatten(),
        nn.Linear(512, 512, bias=False),
        nn.BatchNorm1d(512),
    )


def make_forward(network: nn.Module, pictures: Tensor, *, channels_last: bool, autocast: bool) -> Forward:
    network = network.to(pictures.device).train()
    if channels_last:
        network = network.to(memory_format=torch.channels_last)
        pictures = pictures.contiguous(memory_format=torch.channels_last)

    def forward() -> Tensor:
        network.zero_grad(set_to_none=True)
        with torch.autocast(pictures.device.type, torch.bfloat16, enabled=autocast):
            embeddings = network(pictures)
        return embeddings.float().square().mean()

    return forward


def forwards(name: str, variants: list[str], pictures: Tensor) -> dict[str, dict[str, Forward]]:
    """Our forward pass and the bare one of each variant."""
    found: dict[str, dict[str, Forward]] = {}
    for variant in variants:
        ours = build_backbone(
            name,
            half_precision=torch.bfloat16 if variant == "bfloat16" else False,
            checkpointing=variant == "checkpointing",
            seed=0,
        )
        last = variant == "channels_last"
        found[variant] = {"ours": make_forward(ours, pictures, channels_last=last, autocast=False)}
        if variant != "checkpointing":
            bare = bare_mobile() if name == "mbf" else bare_residual(BLOCKS[name])
            if variant == "plain":
                check_same_size(name, ours, bare)
            found[variant]["bare"] = make_forward(bare, pictures, channels_last=last, autocast=variant == "bfloat16")
    return found


def check_same_size(name: str, ours: nn.Module, bare: nn.Module) -> None:
    sizes = [sum(parameter.numel() for parameter in network.parameters()) for network in (ours, bare)]
    if sizes[0] != sizes[1]:
        raise SystemExit(f"{name}: the bare network has {sizes[1]:,} parameters, and ours has {sizes[0]:,}")


def kept_bytes(forward: Forward) -> int:
    """Bytes of the activations that are kept for the backward pass, each memory counted once."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter) and tensor.is_floating_point():
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(storages.values())


def measure(
    named: dict[tuple[str, str], Forward], rounds: int, device: torch.device
) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """(seconds by the clock, CPU-seconds) of every pass, round by round, after one round to warm up."""
    times: dict[tuple[str, str], list[tuple[float, float]]] = {label: [] for label in named}
    for number in range(rounds + 1):
        for label, forward in named.items():
            clock, cpu = time.perf_counter(), time.process_time()
            forward().backward()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if number:
                times[label].append((time.perf_counter() - clock, time.process_time() - cpu))
    return times


def peak_bytes(forward: Forward) -> int:
    torch.cuda.reset_peak_memory_stats()
    forward().backward()
    return torch.cuda.max_memory_allocated()


def show(name: str, variants: list[str], batch: int, rounds: int, device: torch.device) -> None:
    pictures = torch.rand(batch, 3, 112, 112, device=device) * 2 - 1
    made = forwards(name, variants, pictures)
    named = {(variant, who): forward for variant, each in made.items() for who, forward in each.items()}
    times = measure(named, rounds, device)
    on_gpu = device.type == "cuda"
    which = 0 if on_gpu else 1
    bare = [moment[which] for moment in times.get(("plain", "bare"), [])]
    unit = "s/pass" if on_gpu else "CPU-s/pass"
    print(f"\n{name}, {batch} pictures a pass")
    print(
        f"{'variant':15} {'':5} {'images/s':>9} {unit:>11} {'to bare':>8} {'kept MiB':>9}"
        + (" peak MiB" if on_gpu else "")
    )
    for (variant, who), found in times.items():
        seconds = statistics.median(moment[which] for moment in found)
        clock = statistics.median(moment[0] for moment in found)
        ratio = statistics.median(m[which] / b for m, b in zip(found, bare, strict=True)) if bare else float("nan")
        line = f"{variant:15} {who:5} {batch / clock:9.2f} {seconds:11.4f} {ratio:8.2f} "
        line += f"{kept_bytes(named[variant, who]) / 2**20:9.1f}"
        print(line + (f" {peak_bytes(named[variant, who]) / 2**20:8.0f}" if on_gpu else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=[*BLOCKS, "mbf"], default=["r18", "r50", "mbf"])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS[:3]))
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    place = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    print(f"PyTorch {torch.__version__} on {place}, {arguments.threads} threads")
    for name in arguments.networks:
        show(name, arguments.variants, arguments.batch_size, arguments.rounds, device)


if __name__ == "__main__":
    main()
