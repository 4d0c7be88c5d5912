"""How long a save holds up training, beside one in-memory copy of the state and beside torch.save.

    python benchmarks/save_stall.py [--parameters 80] [--saves 5] [--folder DIR] [--prepare]

The state is that of a model with Adam: three numbers for each parameter. The in-memory copy into memory that is there
already is the floor: nothing that lets training change the tensors again can be faster. The first save also has to
get that memory from the system, so it is shown apart; in training the writer does that during the first iterations.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ostinato.runs import GenerationContent, GenerationWriter, RunFolder

LAYERS = 24


def make_state(parameters: int) -> dict[str, Tensor]:
    """Weights of about ``parameters`` numbers in layers of two sizes, half of them channels-last convolutions."""
    side = max(1, int((parameters / LAYERS / 9) ** 0.5))
    weights = {}
    for layer in range(LAYERS):
        weight = torch.randn(side, side, 3, 3)
        weights[f"layer{layer}.weight"] = weight.to(memory_format=torch.channels_last) if layer % 2 else weight
        weights[f"layer{layer}.bias"] = torch.randn(side)
    return weights


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=float, default=80, help="millions of parameters (default 80)")
    parser.add_argument("--saves", type=int, default=5, help="how often each is measured (default 5)")
    parser.add_argument("--folder", type=Path, help="where to save (default: a temporary folder)")
    parser.add_argument("--prepare", action="store_true", help="get the memory beforehand, as training does")
    options = parser.parse_args()

    model = make_state(int(options.parameters * 1e6))
    optimizer = {
        "state": {
            name: {"step": torch.tensor(1.0), "exp_avg": torch.randn_like(t), "exp_avg_sq": torch.rand_like(t)}
            for name, t in model.items()
        }
    }
    everything = [*model.values(), *(t for entry in optimizer["state"].values() for t in entry.values())]
    size = sum(t.numel() * t.element_size() for t in everything)
    print(f"state: {size / 2**20:.0f} MiB in {len(everything)} tensors, {torch.get_num_threads()} thread(s)")

    targets = [torch.empty_like(t) for t in everything]

    def copy() -> None:
        for target, source in zip(targets, everything, strict=True):
            target.copy_(source)

    copy()
    copies, stalls, behind, plain = [], [], [], []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "state.pt"
        with RunFolder(Path(folder) / "run").open() as run:
            run.begin_session(start_iteration=0)
            writer = GenerationWriter(run).open()
            if options.prepare:
                writer.prepare(everything)
                writer.flush()
            # In turns, so that whatever else this machine does meets all of them.
            for save in range(options.saves + 1):
                copies.append(seconds(copy))
                writer.submit(GenerationContent(save, model, optimizer))
                stalls.append(writer.last_hold_up)
                behind += [result.seconds for result in writer.flush() if result.error is None]
                plain.append(seconds(lambda: torch.save({"model": model, "optimizer": optimizer}, path)))
            writer.close()

    first, *stalls = stalls
    floor = min(copies)
    print(f"{'':28}{'best':>10}{'median':>10}{'copies':>10}")
    for name, values in (
        ("one in-memory copy", copies),
        ("our save, hold-up", stalls),
        ("our first save, hold-up", [first]),
        ("torch.save, hold-up", plain),
        ("our save in the background", behind),
    ):
        print(f"{name:28}{min(values):10.3f}{statistics.median(values):10.3f}{min(values) / floor:10.2f}")
    print("seconds; copies: the best time as a multiple of the best in-memory copy.")
    print("In the background: write, checksum, flush to the disk, rename, read back. torch.save does not flush.")


if __name__ == "__main__":
    main()
