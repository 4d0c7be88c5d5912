"""One update of a swap model, beside a bare PyTorch step of the same architecture.

    python benchmarks/swap_update.py [--models original lightweight] [--threads 1 2] [--rounds 5] [--variants ...]

Both steps take random bytes as pictures, 64 x 64, and go through the model, the losses, the gradients and the
optimizer. *Ours* is what training runs: encoder once for both sides, ssim and mse weighted by masks of face, eyes and
mouth, Adam with decay groups. The *bare* step is the shortest PyTorch program for the same layers: ``nn.Conv2d`` with
symmetric padding, ``nn.PixelShuffle``, plain mse, fused Adam. It takes the same bytes.

In each round all steps of a table run one after the other in the same process, so that whatever else the machine does
meets all of them. The table gives medians over rounds, and the median of the ratios within the rounds. CPU-seconds
count all threads and are steadier than the clock on a shared machine. On a GPU the clock is read after synchronising.

Variants: ``float32``; ``channels_last`` (weights and pictures in that layout); ``bfloat16`` (autocast); ``compile``
(torch.compile of the model; needs a C++ compiler on a CPU). Each prints why it is left out where it cannot run.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from ostinato.config import InitializationOptions, LossOptions, ModelOptions, NetworkOptions, OptimizerOptions
from ostinato.dist.devices import computes_half_precision_fast
from ostinato.optim import build_optimizer
from ostinato.swap.losses import SwapLoss
from ostinato.swap.models import build_model
from ostinato.swap.step import training_step

SIZE = 64
VARIANTS = ("float32", "channels_last", "bfloat16", "compile")
Step = Callable[[], None]


class BareModel(nn.Module):
    """The layers of ``original`` or ``lightweight`` and nothing else."""

    def __init__(self, name: str) -> None:
        super().__init__()
        if name == "original":
            halvings, bottleneck, middle, upscale, decoder = (3, 128, 256, 512, 1024), 1024, 1024, 512, (256, 128, 64)
        else:
            halvings, bottleneck, middle, upscale, decoder = (3, 128, 256, 512), 512, 512, 256, (512, 256, 128)
        smallest = SIZE >> (len(halvings) - 1)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(halvings):
            layers += [nn.Conv2d(inputs, outputs, 5, 2, 2), nn.LeakyReLU(0.1, inplace=True)]
        layers += [nn.Flatten(), nn.Linear(smallest * smallest * halvings[-1], bottleneck)]
        layers += [nn.Linear(bottleneck, 4 * 4 * middle), nn.Unflatten(1, (middle, 4, 4)), *self.up(middle, upscale)]
        self.encoder = nn.Sequential(*layers)
        self.decoders = nn.ModuleList()
        for _ in range(2):
            layers = [layer for pair in pairwise((upscale, *decoder)) for layer in self.up(*pair)]
            self.decoders.append(nn.Sequential(*layers, nn.Conv2d(decoder[-1], 3, 5, 1, 2), nn.Sigmoid()))

    @staticmethod
    def up(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs * 4, 3, 1, 1), nn.LeakyReLU(0.1, inplace=True), nn.PixelShuffle(2)]

    def forward(self, x: Tensor) -> list[Tensor]:
        features = self.encoder(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        return [decoder(features[index]) for index, decoder in enumerate(self.decoders)]


class Batch:
    """Random bytes in place of faces, as the loader gives them."""

    def __init__(self, batch_size: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(0)

        def draw(channels: int) -> Tensor:
            shape = (2, batch_size, SIZE, SIZE, channels)
            return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).to(device)

        self.inputs = draw(3)
        self.targets = [draw(3)]
        self.masks = {name: [draw(1)] for name in ("face", "eye", "mouth")}


def our_step(name: str, variant: str, batch: Batch) -> Step:
    device = batch.inputs.device
    model = build_model(
        name,
        model=ModelOptions(name=name),
        initialization=InitializationOptions(),
        network=NetworkOptions(),
        learn_mask=False,
        seed=1,
    ).to(device)
    if variant == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    optimizer = build_optimizer(model.named_parameters(), OptimizerOptions())
    loss = SwapLoss(LossOptions(), False, model.output_sizes).to(device)
    precision = torch.bfloat16 if variant == "bfloat16" else None
    if variant == "compile":
        model.compile()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        training_step(model, loss, batch.inputs, batch.targets, batch.masks, precision=precision)
        optimizer.step()

    return step


def bare_step(name: str, variant: str, batch: Batch) -> Step:
    device = batch.inputs.device
    model = BareModel(name).to(device)
    if variant == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), 5e-5, eps=1e-7, fused=True)
    if variant == "compile":
        model.compile()

    def floats(images: Tensor) -> Tensor:
        pictures = images.permute(0, 1, 4, 2, 3) / 255
        return pictures if variant == "channels_last" else pictures.contiguous()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=variant == "bfloat16"):
            faces = model(floats(batch.inputs))
        targets = floats(batch.targets[0])
        sum((face.float() - target).square().mean() for face, target in zip(faces, targets, strict=True)).backward()
        optimizer.step()

    return step


def why_not_compiled(device: torch.device) -> str | None:
    """None where torch.compile works on ``device``, else its reason."""
    try:
        torch.compile(lambda x: x * 2 + 1)(torch.ones(8, device=device))
    except Exception as error:  # inductor raises many kinds, all of which mean the same here
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return None


def measure(steps: dict[str, Step], rounds: int, device: torch.device) -> dict[str, list[tuple[float, float]]]:
    """(seconds by the clock, CPU-seconds) of every step, round by round, after one round to warm up."""
    times: dict[str, list[tuple[float, float]]] = {label: [] for label in steps}
    for number in range(rounds + 1):
        for label, step in steps.items():
            clock, cpu = time.perf_counter(), time.process_time()
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if number:
                times[label].append((time.perf_counter() - clock, time.process_time() - cpu))
    return times


def show(title: str, times: dict[str, list[tuple[float, float]]], faces: int, reference: str) -> None:
    print(f"\n{title}")
    print(f"  {'step':<24}{'faces/s':>10}{'CPU-s':>9}{'CPU-s over ' + reference:>28}{'time over ' + reference:>28}")
    for label, measured in times.items():
        clock, cpu = (statistics.median(column) for column in zip(*measured, strict=True))
        pairs = list(zip(measured, times[reference], strict=True))
        by_cpu = statistics.median(ours[1] / bare[1] for ours, bare in pairs)
        by_clock = statistics.median(ours[0] / bare[0] for ours, bare in pairs)
        print(f"  {label:<24}{faces / clock:>10.1f}{cpu:>9.3f}{by_cpu:>28.3f}{by_clock:>28.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["original", "lightweight"])
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, min(2, os.cpu_count() or 1)}))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--batch-size", type=int, default=16, help="faces per side")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--slow-bfloat16", action="store_true", help="measure bfloat16 where it is emulated, too")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    place = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    print(f"torch {torch.__version__} on {place}, {arguments.batch_size} faces per side, {SIZE} px")
    batch = Batch(arguments.batch_size, device)
    for name in arguments.models:
        for threads in arguments.threads if device.type == "cpu" else [torch.get_num_threads()]:
            torch.set_num_threads(threads)
            steps: dict[str, Step] = {"bare": bare_step(name, "float32", batch)}
            for variant in arguments.variants:
                if variant == "bfloat16" and not (computes_half_precision_fast(device) or arguments.slow_bfloat16):
                    print("bfloat16 is left out: this processor only emulates it (--slow-bfloat16 measures it)")
                    continue
                if variant == "compile" and (reason := why_not_compiled(device)):
                    print(f"compile is left out: {reason}")
                    continue
                if variant != "float32":
                    steps[f"bare {variant}"] = bare_step(name, variant, batch)
                steps[f"ours {variant}"] = our_step(name, variant, batch)
            times = measure(steps, arguments.rounds, device)
            show(f"{name}, {threads} thread(s)", times, 2 * arguments.batch_size, "bare")
            del steps
            gc.collect()


if __name__ == "__main__":
    main()
