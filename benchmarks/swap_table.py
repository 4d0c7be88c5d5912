"""Every loss, every optimizer and every way of clipping, trained for a while on real faces.

    python benchmarks/swap_table.py FACES_A FACES_B [--model lightweight] [--iterations 300] [--batch 2]
        [--only losses optimizers clipping | ROW ...] [--results swap_table.json] [--lpips-files FILE ...]

Each row of the table is a training of its own, from the same first weights and with the same batches, that differs from
the default setting (ssim and mse, adam, no clipping) in one thing. Losses that may stand first stand alone; the others
are companions of the default's. The table says whether every loss was finite, the mean loss of the first and the last
tenth of the iterations, and whether it fell; for companions the same of their own part. Clipping limits are small
enough to act on these models.

*Time* is the ratio to an update of the default setting, which is timed ten times in each training, right after an
update of the row's own, so that whatever else the machine does meets both; the median is given. Reading is not counted.
With one thread on a CPU it is the time that the processor worked, else the clock's.

A row that is in the file of results already, with the same model, iterations, batch and seed, is not trained again, so
the program can be stopped at any time, and continued by the same command. Without files, the lpips losses have random
weights of the usual size: enough to see that they train, and what they cost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ostinato.config import SwapOptions
from ostinato.config.loading import LoaderOptions
from ostinato.faces.loader import SwapLoader
from ostinato.loop import read_scalars, scope
from ostinato.optim import build_optimizer
from ostinato.swap.face_folders import FaceFolders, crop_settings, scan_folders, with_centering
from ostinato.swap.losses import LpipsWeights, SwapLoss, function_weights, read_lpips_weights
from ostinato.swap.losses.lpips_networks import NETWORKS
from ostinato.swap.training import build_swap_model, default_cache_folder
from ostinato.swap.updater import SwapUpdater

MAIN = (
    "ssim",
    "ms_ssim",
    "mse",
    "mae",
    "logcosh",
    "smooth_loss",
    "l_inf_norm",
    "gmsd",
    "pixel_gradient_diff",
    "laploss",
    "ffl",
)
COMPANIONS = ("flip", "lpips_alex", "lpips_squeeze", "lpips_vgg16")
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {},
    "adamw": {"weight_decay": 0.004},
    "adamax": {},
    "nadam": {},
    "adabelief": {"epsilon_exponent": -16},
    "lion": {"learning_rate": 1e-5},
    "rms-prop": {},
}
CLIPPING = {"none": 1.0, "value": 0.001, "norm": 0.05, "global_norm": 0.1, "autoclip": 1.0}
DEFAULT = "default"


@dataclass(frozen=True)
class Row:
    """A training of its own.

    :param kind: ``losses``, ``optimizers`` or ``clipping``.
    :param changes: what differs from the defaults, by section.
    :param part: the companion loss that is looked at besides the total.
    """

    name: str
    kind: str
    changes: dict[str, dict[str, Any]]
    part: str | None = None


def all_rows() -> list[Row]:
    rows = [Row(DEFAULT, "losses", {})]
    for name in MAIN:
        rows.append(Row(name, "losses", {"loss": {"loss_function": name, "loss_function_2": "none"}}))
    for name in COMPANIONS:
        changes: dict[str, Any] = {"loss_function_3": name, "loss_weight_3": 100 if name == "flip" else 25}
        rows.append(Row(name, "losses", {"loss": changes}, name))
    for name, settings in OPTIMIZERS.items():
        rows.append(Row(name, "optimizers", {"optimizer": {"optimizer": name, **settings}}))
    for name, limit in CLIPPING.items():
        clipping = {"gradient_clipping": name, "clipping_value": limit}
        rows.append(Row(f"clipping {name}", "clipping", {"optimizer": clipping}))
    return rows


def random_weights(name: str) -> LpipsWeights:
    network, generator = NETWORKS[name], torch.Generator().manual_seed(0)
    trunk = {
        key: torch.randn(shape, generator=generator) * (math.sqrt(2 / math.prod(shape[1:])) if len(shape) > 1 else 0.05)
        for key, shape in network.trunk_shapes.items()
    }
    head = tuple(torch.rand(1, n, 1, 1, generator=generator) * 0.1 for n in network.channels)
    return LpipsWeights(name, trunk, head)


class Table:
    """Trains the rows.

    :param arguments: of the command line.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.folders = scan_folders({"a": arguments.a, "b": arguments.b}, skip_bad=True, tell=print)
        self.options = with_centering(self.folders, self._base(), is_new=True, tell=print)

    def _base(self) -> SwapOptions:
        model = {"name": self.arguments.model, "lowmem": self.arguments.lowmem}
        return SwapOptions.model_validate({"seed": self.arguments.seed, "model": model})

    def changed(self, row: Row) -> SwapOptions:
        tree = self.options.model_dump()
        for section, changes in row.changes.items():
            tree[section] |= changes
        return SwapOptions.model_validate(tree)

    @contextlib.contextmanager
    def updater(self, options: SwapOptions) -> Generator[SwapUpdater]:
        model = build_swap_model(options, tuple(self.folders.scans)).to(self.arguments.device)
        wanted = function_weights(options.loss)
        if self.arguments.lpips_files:
            lpips = read_lpips_weights(wanted, self.arguments.lpips_files)
        else:
            lpips = {name: random_weights(name) for name in wanted if name in NETWORKS}
        loss = SwapLoss(options.loss, options.mask.learn_mask, model.output_sizes, lpips).to(self.arguments.device)
        loader = self._loader(options, self.folders, model.input_size, model.output_sizes)
        loader.open()
        with contextlib.closing(loader):
            optimizer = build_optimizer(model.named_parameters(), options.optimizer)
            yield SwapUpdater(model, loss, optimizer, loader, options=options.optimizer, network=options.network)

    def _loader(self, options: SwapOptions, folders: FaceFolders, inputs: int, outputs: tuple[int, ...]) -> SwapLoader:
        return SwapLoader(
            {side: scan.paths for side, scan in folders.scans.items()},
            crop=crop_settings(options, max(inputs, *outputs)),
            input_size=inputs,
            output_sizes=outputs,
            batch_size=self.arguments.batch,
            seed=self.arguments.seed,
            augmentation=options.augmentation,
            loader=LoaderOptions(num_processes=self.arguments.workers),
            cache_dir=default_cache_folder(),
        )

    def observed(self, updater: SwapUpdater) -> tuple[dict[str, float], float]:
        """One update: its losses, and its seconds without reading."""
        by_work = self.arguments.device == "cpu" and self.arguments.threads == 1
        clock = time.thread_time if by_work else time.perf_counter
        observation: dict[str, Any] = {}
        started = clock()
        with scope(observation):
            updater.update()
        names = [name for name in observation if name.startswith("loss/")]
        values = read_scalars([observation[name] for name in names])  # waits for the device
        seconds = clock() - started - (0.0 if by_work else updater.batch_read_time)
        return dict(zip(names, values, strict=True)), seconds

    def train(self, row: Row) -> dict[str, Any]:
        iterations = self.arguments.iterations
        totals, parts, ratios, times = [], [], [], []
        started = time.perf_counter()
        with self.updater(self.changed(row)) as updater, self.updater(self.options) as reference:
            for iteration in range(iterations):
                losses, seconds = self.observed(updater)
                times.append(seconds)
                totals.append(losses["loss/total"])
                if row.part is not None:
                    parts.append(sum(value for name, value in losses.items() if name.endswith(f"/{row.part}")))
                if iteration % max(1, iterations // 10) == iterations // 20:
                    ratios.append(seconds / self.observed(reference)[1])
            is_finite = all(math.isfinite(loss) for loss in totals) and all(
                bool(parameter.isfinite().all()) for parameter in updater.model.parameters()
            )
        tenth = max(1, iterations // 10)
        shown = parts or totals
        return {
            "first": statistics.fmean(totals[:tenth]),
            "last": statistics.fmean(totals[-tenth:]),
            "part_first": statistics.fmean(parts[:tenth]) if parts else None,
            "part_last": statistics.fmean(parts[-tenth:]) if parts else None,
            "finite": is_finite,
            "decreasing": is_finite
            and all(statistics.fmean(each[-tenth:]) < statistics.fmean(each[:tenth]) for each in (totals, shown)),
            "time_ratio": statistics.median(ratios),
            "ms": 1e3 * statistics.median(times),
            "seconds": time.perf_counter() - started,
        }


def show(rows: list[Row], results: dict[str, dict[str, Any]]) -> None:
    kind = ""
    for row in rows:
        found = results.get(row.name)
        if found is None:
            continue
        if row.kind != kind:
            kind = row.kind
            print(
                f"\n{kind:<22}{'first':>10}{'last':>10}{'last/first':>12}{'finite':>8}{'falls':>7}{'time':>8}{'ms':>8}"
            )
        first, last = found["first"], found["last"]
        words = ["yes" if found[key] else "NO" for key in ("finite", "decreasing")]
        print(
            f"  {row.name:<20}{first:>10.5f}{last:>10.5f}{last / first:>12.3f}{words[0]:>8}{words[1]:>7}"
            f"{found['time_ratio']:>7.2f}x{found['ms']:>8.1f}"
        )
        if found["part_first"] is not None:
            first, last = found["part_first"], found["part_last"]
            print(f"    {'its own part':<18}{first:>10.5f}{last:>10.5f}{last / first:>12.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("a", type=Path, help="faces of one side")
    parser.add_argument("b", type=Path, help="faces of the other")
    parser.add_argument("--model", default="lightweight", choices=["lightweight", "original"])
    parser.add_argument("--lowmem", action="store_true", help="the smaller form of original")
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--batch", type=int, default=2, help="faces per side")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", help="kinds (losses optimizers clipping) or names of rows")
    parser.add_argument("--results", type=Path, default=Path("swap_table.json"))
    parser.add_argument("--lpips-files", nargs="+", default=[])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="threads that prepare batches")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = all_rows()
    if arguments.only:
        known = {name for row in rows for name in (row.kind, row.name)}
        unknown = [name for name in arguments.only if name not in known]
        if unknown:
            parser.error(f"there is no row or kind called {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        rows = [row for row in rows if {row.kind, row.name} & set(arguments.only)]
    model = f"{arguments.model}{' lowmem' if arguments.lowmem else ''}"
    setting = f"{model}, {arguments.iterations} iterations, batch {arguments.batch}, seed {arguments.seed}"
    stored = json.loads(arguments.results.read_text()) if arguments.results.exists() else {}
    results = stored.setdefault(setting, {})
    todo = [row for row in rows if row.name not in results]
    place = torch.cuda.get_device_name() if arguments.device.startswith("cuda") else platform.machine()
    print(f"torch {torch.__version__} on {place}, {setting}; {len(todo)} of {len(rows)} rows to train")
    if any(row.name != DEFAULT for row in todo) and DEFAULT not in {row.name for row in rows} | results.keys():
        todo.insert(0, all_rows()[0])  # what others are compared with, and two of them are
    if todo:
        table = Table(arguments)
        for row in todo:
            same = table.changed(row) == table.options and row.name != DEFAULT
            results[row.name] = results[DEFAULT] if same and DEFAULT in results else table.train(row)
            unfinished = arguments.results.with_suffix(".new")
            unfinished.write_text(json.dumps(stored, indent=1))
            unfinished.replace(arguments.results)
            print(f"{row.name}: {results[row.name]['seconds']:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    show(rows, results)


if __name__ == "__main__":
    main()
