"""Where the time of an update goes, found out without a run folder and, if wanted, without reading any file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from ostinato.config import check_together
from ostinato.dist import Alone, Group
from ostinato.dist.devices import choose_device
from ostinato.recognition import phase_times as phases
from ostinato.recognition.building import (
    build_head,
    build_network,
    build_updater,
    open_images,
    open_loader,
    place_network,
)
from ostinato.recognition.data import RecognitionBatch
from ostinato.recognition.data.loader import rank_positions
from ostinato.recognition.data.opening import SYNTHETIC
from ostinato.recognition.memory import memory_advice
from ostinato.recognition.partial_fc import PartialFC
from ostinato.recognition.rate_schedule import RateSchedule, scaled_rate
from ostinato.recognition.request import RecognitionRequest
from ostinato.recognition.run_options import Tell, asked_options
from ostinato.recognition.training import BuildNetwork
from ostinato.recognition.updater import BatchSource, RecognitionUpdater

WARM_UP = 3
"""Updates that are not counted: memory is got and kernels are chosen in them."""

_BATCHES = 4


@dataclass(frozen=True)
class SpeedReport:
    """What was measured, the same on every rank.

    :param seconds: of each phase, the median over the updates, of the slowest rank.
    :param update_seconds: of a whole update, its median, of the slowest rank.
    :param images: of an update, over all ranks.
    :param classes: of the head.
    :param bytes_backbone: handed to collectives in an update for the backbone's gradients, by one rank.
    :param bytes_head: the same for the head.
    :param peak_bytes: memory of a CUDA device, the most of any rank; None elsewhere.
    :param collectives_head: seconds of an update that pass in collectives of the head, the median over the updates, of
        the slowest rank; they are part of the head's phases.
    :param collectives_backbone: the same for the gradients and statistics of the backbone, as far as nothing is
        computed meanwhile; part of the exchange and of the backbone's backward phase. Batch norms that are synchronised
        count as computing.
    """

    seconds: Mapping[str, float]
    update_seconds: float
    images: int
    classes: int
    bytes_backbone: int
    bytes_head: int
    peak_bytes: int | None
    collectives_head: float = 0.0
    collectives_backbone: float = 0.0

    @property
    def images_per_second(self) -> float:
        """Over all ranks."""
        return self.images / self.update_seconds

    def lines(self) -> list[str]:
        """The table for people."""
        whole = sum(self.seconds.values())
        lines = [f"{'':<18} {'ms':>9}   share"]
        for phase in phases.PHASES:
            seconds = self.seconds.get(phase, 0.0)
            lines.append(f"{phase:<18} {1000 * seconds:9.2f} {100 * seconds / whole if whole else 0:6.1f} %")
        lines.append(f"{'update':<18} {1000 * self.update_seconds:9.2f}")
        talking = self.collectives_head + self.collectives_backbone
        if talking:
            share = 100 * talking / self.update_seconds
            lines.append(
                f"{'in collectives':<18} {1000 * talking:9.2f} {share:6.1f} % of the update, within the phases above: "
                f"head {1000 * self.collectives_head:,.2f} ms, backbone {1000 * self.collectives_backbone:,.2f} ms"
            )
        lines.append(f"{self.images_per_second:,.1f} images/s with {self.images:,} images an update")
        if self.bytes_backbone or self.bytes_head:
            lines.append(
                f"handed to other ranks in an update, by each: {self.bytes_backbone / 2**20:,.2f} MiB of gradients and "
                f"statistics of the backbone, {self.bytes_head / 2**20:,.3f} MiB of the head"
            )
        if self.peak_bytes is not None:
            lines.append(f"most memory on a device: {self.peak_bytes / 2**20:,.0f} MiB")
        return lines


class MemoryBatches:
    """A few batches that lie in memory and come again and again: training without any reading.

    Labels are spread over all classes, so that an update has as many of them as one of a real set.

    :param batch_size: images over all ranks.
    """

    def __init__(self, classes: int, batch_size: int, image_size: int, group: Group, seed: int = 0) -> None:
        self.batch_size = batch_size
        self._own = len(rank_positions(0, batch_size, group.rank, group.size))
        generator = torch.Generator().manual_seed(seed * 1_000_003 + group.rank)
        self._batches = [self._drawn(classes, image_size, generator) for _ in range(_BATCHES)]
        self._position = 0

    def _drawn(self, classes: int, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        images = torch.randint(0, 256, (self._own, size, size, 3), dtype=torch.uint8, generator=generator)
        return images.permute(0, 3, 1, 2), torch.randint(0, classes, (self._own,), generator=generator)

    @property
    def epoch_length(self) -> int:
        """Images in all of them."""
        return _BATCHES * self.batch_size

    def next_batch(self) -> RecognitionBatch:
        """The next one."""
        images, labels = self._batches[self._position // self.batch_size % _BATCHES]
        self._position += self.batch_size
        return RecognitionBatch(images, labels, self._position // self.epoch_length, self._position)

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        return {"position": self._position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a position."""
        self._position = int(state["position"])


def measure_speed(
    request: RecognitionRequest,
    *,
    updates: int,
    tell: Tell,
    group: Group | None = None,
    build: BuildNetwork | None = None,
) -> SpeedReport:
    """Train a throw-away model for some updates and look at the clock. A collective; writes nothing.

    With the data ``synthetic`` nothing is read: batches lie in memory. With real data, reading is measured too.

    :param updates: that count; a few more are made before.
    """
    group = Alone() if group is None else group
    options = asked_options(request, tell).options
    check_together(options)
    options = options.model_copy(update={"seed": 0 if options.seed is None else options.seed})
    with contextlib.ExitStack() as stack:
        source = None if request.data == SYNTHETIC else open_images(request, options, stack)
        classes = request.classes if source is None else source.classes
        device = choose_device(request.device, group)
        with memory_advice(options, classes, group):
            backbone = place_network((build or build_network)(options), options, group, device)
            head = build_head(options, classes, group, device)
        loader: BatchSource = (
            MemoryBatches(classes, options.batch_size, options.data.image_size, group)
            if source is None
            else open_loader(source, options, group, stack)
        )
        schedule = RateSchedule(scaled_rate(options), 1, "constant")
        updater = build_updater(options, backbone, head, loader, schedule, classes=classes, group=group)
        updater.initialize(None)
        clocks = (phases.CollectiveClock(device), phases.CollectiveClock(device))
        head.time_collectives(clocks[0])
        updater.exchange.time_collectives(clocks[1])
        talked: list[tuple[float, float]] = []
        taken: list[float] = []
        found: list[Mapping[str, float]] = []
        before = _handed_over(updater, head)
        for number in range(WARM_UP + updates):
            if number == WARM_UP:
                before = _handed_over(updater, head)
                if device.type == "cuda":
                    torch.cuda.reset_peak_memory_stats(device)
            started = time.perf_counter()
            updater.update()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            in_collectives = (clocks[0].take(), clocks[1].take())
            if number >= WARM_UP:
                talked.append(in_collectives)
                taken.append(time.perf_counter() - started)
                found.append(dict(updater.times.latest))
        after = _handed_over(updater, head)
        mine = (
            {phase: median(one.get(phase, 0.0) for one in found) for phase in phases.PHASES},
            median(taken),
            torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
            (median(of_head for of_head, _ in talked), median(of_backbone for _, of_backbone in talked)),
        )
        everyone = group.gather(mine)
    peaks = [peak for _, _, peak, _ in everyone if peak is not None]
    return SpeedReport(
        {phase: max(seconds[phase] for seconds, _, _, _ in everyone) for phase in phases.PHASES},
        max(whole for _, whole, _, _ in everyone),
        options.batch_size * options.optimizer.accumulation,
        classes,
        (after[0] - before[0]) // updates,
        (after[1] - before[1]) // updates,
        max(peaks) if peaks else None,
        *(max(rank[3][part] for rank in everyone) for part in range(2)),
    )


def _handed_over(updater: RecognitionUpdater, head: PartialFC) -> tuple[int, int]:
    """Bytes that this rank has given to collectives so far, for the backbone and for the head."""
    return updater.exchange.handed_over, head.handed_over
