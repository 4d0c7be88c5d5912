"""What one update of a recognition model does."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ostinato.config import RecognitionOptions
from ostinato.dist import Alone, Group
from ostinato.errors import ArgumentValueError, StateError
from ostinato.kvstore.loss_scaler import LossScaler, all_finite
from ostinato.loop import UpdaterState, capture_random_state, report, restore_random_state
from ostinato.optim import GradientClipper
from ostinato.recognition import phase_times as phases
from ostinato.recognition.gradient_exchange import GradientExchange
from ostinato.recognition.memory import memory_advice
from ostinato.recognition.phase_times import PhaseTimes
from ostinato.recognition.rate_schedule import RateSchedule

STATE_FORMAT = 1

_WINDOW = 21  # updates over which the speed is averaged, and one


class Batch(Protocol):
    """This rank's part of a batch."""

    @property
    def images(self) -> Tensor:
        """(B, 3, H, W) uint8 RGB."""
        ...

    @property
    def labels(self) -> Tensor:
        """(B,) int64."""
        ...

    @property
    def epoch(self) -> int:
        """Completed passes once this batch is used."""
        ...

    @property
    def position(self) -> int:
        """Samples that all ranks have consumed once this batch is used."""
        ...


class BatchSource(Protocol):
    """Where batches come from; :class:`ostinato.recognition.data.RecognitionLoader` is one."""

    batch_size: int
    """Images in a batch, over all ranks."""

    @property
    def epoch_length(self) -> int:
        """Images in one pass."""
        ...

    def next_batch(self) -> Batch:
        """This rank's part of the batch at the position, which then moves on."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The position; the same on every rank."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a saved position, on any number of ranks."""
        ...


class Head(Protocol):
    """The classification; :class:`ostinato.recognition.PartialFC` is one."""

    def __call__(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The mean loss over the images of all ranks."""
        ...

    def step(self, learning_rate: float, *, scale: float = 1.0) -> None:
        """Update the class centres; what was collected is divided by ``scale``."""
        ...

    def zero_grad(self) -> None:
        """Drop what was collected."""
        ...

    def gradients_are_finite(self) -> bool:
        """Whether all that was collected on this rank is finite."""
        ...

    @property
    def classes(self) -> int:
        """Classes of the whole run."""
        ...

    def grow(self, classes: int) -> None:
        """Add classes behind those that are there. A collective."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Class centres by global number, as parts of this rank."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue, on any number of ranks."""
        ...


class RecognitionUpdater:
    """Reads batches, back-propagates the loss of the classification through the backbone, and updates both.

    One update: ``accumulation`` batches, whose gradients are averaged; the sum over the ranks, which is the gradient of
    the mean loss over all images, exactly; clipping of the backbone's total norm, after the sum; one step of the
    optimizer and one of the class centres, at the same rate. The rate follows the number of *updates*.

    Running statistics of batch norms are averaged over the ranks in every update; see :class:`GradientExchange`.

    With a loss scaler (float16) a gradient that is not finite, on any rank and in backbone or centres, makes *all*
    ranks pass over the update and lower the scale. Such an update counts: its data are used up.

    Reports ``loss``; ``rate``; ``gradient_norm`` (of the backbone, before clipping, where it clips); ``loss_scale``
    with a scaler; ``images_per_second`` over the last updates, everything between them included; and the seconds
    ``time/data``, ``time/backbone`` and ``time/head``. Losses stay on the device until somebody reads them.

    Memory of an update: the backbone three times (weights, gradients, momentum; four with AdamW), the activations of
    B images, and what the head says of itself.

    :param backbone: on its device; its trained parameters belong to the optimizer.
    :param head: on the same device; its centres are updated by itself.
    :param optimizer: of torch, over the backbone's trained parameters.
    :param loader: open before the first update.
    :param schedule: the rate of each update.
    :param options: clipping, accumulation, layout of pictures in memory.
    :param classes: of the data; a saved head with fewer is grown when it is loaded. None: as many as the head has.
    :param group: the ranks.
    :param scaler: for float16.
    :param forward: computes embeddings in the backbone's place, such as a compiled form of it.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        optimizer: torch.optim.Optimizer,
        loader: BatchSource,
        *,
        schedule: RateSchedule,
        options: RecognitionOptions,
        classes: int | None = None,
        group: Group | None = None,
        scaler: LossScaler | None = None,
        forward: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.backbone = backbone
        self.head = head
        self.optimizer = optimizer
        self.loader = loader
        self.schedule = schedule
        self.models = {"main": backbone}
        self.optimizers = {"main": optimizer}
        self.state = UpdaterState()
        self.batch_read_time = 0.0
        """Seconds that reading the last batches took."""
        self.batch_time = 0.0
        """Seconds that the last update took without reading; the device may still be at work."""
        self.batch_size: int | None = None
        """Images of the last update, on all ranks."""
        self.last_labels: list[Tensor] = []
        """The labels of this rank in the last update, for messages."""
        self.is_skipped = False
        """Whether the last update was passed over, because a gradient was not finite."""
        group = Alone() if group is None else group
        self._device = next(backbone.parameters()).device
        self.times = PhaseTimes(self._device)
        self.exchange = GradientExchange(backbone, group)
        self._group = group
        self._options = options
        self._settings = options.optimizer
        self._classes = classes
        self._scaler = scaler
        self._forward = backbone if forward is None else forward
        self._layout = torch.channels_last if options.model.channels_last else torch.contiguous_format
        self._parameters = [p for p in backbone.parameters() if p.requires_grad]
        self._clipper = GradientClipper("global_norm", self._settings.gradient_clipping)
        self._ends: deque[tuple[float, int]] = deque(maxlen=_WINDOW)  # clock and images of the run, after updates

    def initialize(self, trainer: Any) -> None:
        """Give all ranks the weights of rank 0. A collective."""
        self.exchange.open()

    def update(self) -> None:
        """One parameter update. A collective.

        :raises OutOfMemoryError: with advice, when the device has not enough memory.
        """
        if not self.backbone.training:
            self.backbone.train()
        with memory_advice(self._options, self.head.classes, self._group):
            self._update()

    def _update(self) -> None:
        count = self._settings.accumulation
        rate = self.schedule(self.state.iteration + 1)
        scale = 1.0 if self._scaler is None else self._scaler.loss_scale
        self.optimizer.zero_grad(set_to_none=True)
        self.head.zero_grad()
        losses: list[Tensor] = []
        reading = 0.0
        started = time.perf_counter()
        self.last_labels = []
        self.times.begin()
        own_images = epoch = 0
        for number in range(count):
            asked = time.perf_counter()
            batch = self.loader.next_batch()
            reading += time.perf_counter() - asked
            self.times.mark(phases.DATA)
            own_images += len(batch.images)
            is_last = number == count - 1
            with contextlib.nullcontext() if is_last else self.exchange.holding():
                losses.append(self._back_propagate(batch, scale))
            epoch = batch.epoch
        self.exchange.exchange(own_images)
        self.times.mark(phases.EXCHANGE)
        norm = self._apply(rate, scale * count)
        self.times.end()
        self.batch_read_time, self.batch_time = reading, time.perf_counter() - started - reading
        self._count(count * self.loader.batch_size, epoch)
        self._report(losses, rate, norm)

    def _back_propagate(self, batch: Batch, scale: float) -> Tensor:
        """The loss of one batch; gradients of ``scale`` times it are added to those that are there."""
        images = _as_input(batch.images.to(self._device, non_blocking=True), self._layout)
        self.last_labels.append(batch.labels)
        embeddings = self._forward(images)
        self.times.mark(phases.BACKBONE_FORWARD)
        # Two backward passes in place of one: the gradient of the embeddings is the border at which time is taken, and
        # the head's memory is free before the backbone needs its own.
        border = embeddings.detach().requires_grad_()
        loss = self.head(border, batch.labels)  # on the host, where classes are chosen
        self.times.mark(phases.HEAD_FORWARD)
        (loss if scale == 1.0 else loss * scale).backward()
        self.times.mark(phases.HEAD_BACKWARD)
        embeddings.backward(border.grad)
        self.times.mark(phases.BACKBONE_BACKWARD)
        return loss.detach()

    @torch.no_grad()
    def _apply(self, rate: float, divisor: float) -> Tensor | None:
        """Take the summed gradients to the parameters, unless they are not finite; gives the backbone's norm."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        self.is_skipped = self._scaler is not None and self._overflows(gradients)
        norm: Tensor | None = None
        if not self.is_skipped:
            if divisor != 1.0:
                torch._foreach_div_(gradients, divisor)
            if self._settings.gradient_clipping:
                norm = self._clipper.clip(self._parameters)
            for parameters in self.optimizer.param_groups:
                parameters["lr"] = rate
            self.optimizer.step()
            self.times.mark(phases.BACKBONE_UPDATE)
            self.head.step(rate, scale=divisor)
            self.times.mark(phases.HEAD_UPDATE)
        self.head.zero_grad()
        if self._scaler is not None:
            self._scaler.update(self.is_skipped)
        return norm

    def _overflows(self, gradients: list[Tensor]) -> bool:
        """Whether any rank's gradients are not finite. A collective."""
        mine = not (all_finite(gradients) and self.head.gradients_are_finite())
        return self._group.sum_of([float(mine)])[0] > 0

    def _count(self, images: int, epoch: int) -> None:
        self.batch_size = images
        passes = epoch - self.state.epoch
        self.state.advance(images, pass_complete=passes > 0)
        for _ in range(passes - 1):
            self.state.end_pass()
        self._ends.append((time.perf_counter(), self.state.samples))

    def _report(self, losses: list[Tensor], rate: float, norm: Tensor | None) -> None:
        report("loss", losses[0] if len(losses) == 1 else torch.stack(losses).mean())
        report("rate", rate)
        if norm is not None:
            report("gradient_norm", norm)
        if self._scaler is not None:
            report("loss_scale", self._scaler.loss_scale)
        for name, seconds in grouped_seconds(self.times.latest).items():
            report(f"time/{name}", seconds)
        (first, images_before), (last, images) = self._ends[0], self._ends[-1]
        if last > first:
            report("images_per_second", (images - images_before) / (last - first))

    def describe_last(self) -> str:
        """What is known of the last update, as a sentence for the message of a loss that is not finite."""
        rank = f"Rank {self._group.rank}, learning" if self._group.size > 1 else "Learning"
        rate = self.schedule(max(1, self.state.iteration))
        labels = torch.cat(self.last_labels) if self.last_labels else torch.empty(0)
        seen = f", labels {int(labels.min())} to {int(labels.max())} of {self.head.classes}" if len(labels) else ""
        scale = "" if self._scaler is None else f", loss scale {self._scaler.loss_scale:g}"
        return f"{rank} rate {rate:g}{seen}{scale}."

    # --- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the next number; tensors are the live ones, centres this rank's part."""
        return {
            "format": STATE_FORMAT,
            "state": self.state.state_dict(),
            "models": {"main": self.backbone.state_dict()},
            "optimizers": {"main": self.optimizer.state_dict()},
            "head": self.head.state_dict(),
            # Not called the loader's: that would belong to one rank, and this place is true for any number of them.
            "position": self.loader.state_dict(),
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
            "random": capture_random_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state. What the user may change is then as this session's options say.

        :raises ArgumentValueError: the state is of another format.
        :raises StateError: the weights belong to another model.
        """
        if state.get("format") != STATE_FORMAT:
            raise ArgumentValueError(
                f"The saved state has format {state.get('format')!r}, and this version reads format {STATE_FORMAT}.",
                advice="Use the version of Ostinato that saved it.",
                value=state.get("format"),
            )
        try:
            self.backbone.load_state_dict(state["models"]["main"])
        except RuntimeError as error:
            raise StateError(
                "The saved weights do not fit the backbone of this run.",
                advice="The run folder may hold parts of two runs; `ostinato runs verify` tells.",
            ) from error
        settings = [
            {key: value for key, value in group.items() if key not in ("params", "lr")}
            for group in self.optimizer.param_groups
        ]
        self.optimizer.load_state_dict(state["optimizers"]["main"])
        for group, own in zip(self.optimizer.param_groups, settings, strict=True):
            group.update(own)
        self.head.load_state_dict(state["head"])
        if self._classes is not None and self._classes > self.head.classes:
            self.head.grow(self._classes)
        self.state.load_state_dict(state["state"])
        self.loader.load_state_dict(state["position"])
        if self._scaler is not None and state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])
        restore_random_state(state["random"])


def grouped_seconds(latest: Mapping[str, float]) -> dict[str, float]:
    """The seconds of an update in three: ``data``, ``backbone`` (with the exchange of its gradients) and ``head``."""
    if not latest:
        return {}
    head = (phases.HEAD_FORWARD, phases.HEAD_BACKWARD, phases.HEAD_UPDATE)
    return {
        "data": latest[phases.DATA],
        "backbone": math.fsum(s for phase, s in latest.items() if phase != phases.DATA and phase not in head),
        "head": math.fsum(latest[phase] for phase in head),
    }


def _as_input(images: Tensor, layout: torch.memory_format) -> Tensor:
    """(B, 3, H, W) uint8 to float32 from -1 to 1."""
    return images.to(torch.float32, memory_format=layout).sub_(127.5).div_(127.5)
