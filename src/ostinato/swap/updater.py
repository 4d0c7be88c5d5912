"""What one update of a swap model does."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ostinato.config import NetworkOptions, OptimizerOptions
from ostinato.errors import StateError
from ostinato.faces.loader import SwapBatch
from ostinato.loop import UpdaterState, capture_random_state, report, restore_random_state
from ostinato.optim import (
    GradientClipper,
    apply_updatable,
    load_optimizer_state_by_name,
    optimizer_state_by_name,
    set_learning_rate,
    warm_up_factor,
)
from ostinato.swap.base_rate import BaseRate
from ostinato.swap.losses import SwapLoss
from ostinato.swap.memory import memory_advice
from ostinato.swap.models import SwapModel
from ostinato.swap.step import StepLosses, training_step

_log = logging.getLogger(__name__)

GRADIENT_NORM = "gradient/norm"
"""What the norm of the gradients is reported as."""

LOSS_SCALE = "gradient/loss_scale"
"""What the factor of the loss scaler is reported as."""

LOWEST_SCALE = 2.0**-14
"""A loss scaler below this has given up: it is the smallest number that float16 holds in full precision, so with such a
factor gradients of common size are lost, and they overflow all the same. From torch's first scale, 65536, it takes
thirty steps in a row that are left out, or more when others lie between."""


class BatchSource(Protocol):
    """Where batches come from; :class:`ostinato.faces.loader.SwapLoader` is one."""

    batch_size: int
    """Faces of each side in a batch."""

    @property
    def epoch_length(self) -> int:
        """Faces of each side in one pass."""
        ...

    def next_batch(self) -> SwapBatch:
        """The batch at the position, which then moves on."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a saved position."""
        ...


class SwapUpdater:
    """Reads a batch of every side, adds up their losses, and steps one optimizer.

    Reports ``loss/total``, and for every side ``loss/<side>``, ``loss/<side>/<function>`` (weighted; with several
    outputs ``loss/<side>/<size>/<function>``) and, with a learned mask, ``loss/<side>/mask``. Where the optimizer
    steps, also ``gradient/norm``, over all parameters and before clipping; with a loss scaler, which leaves out steps
    now and then to find its factor, that factor instead, as ``gradient/loss_scale``: not a number once it is below
    :data:`LOWEST_SCALE`, because the gradients overflow with any. All are detached numbers that stay on the device
    until somebody reads them.

    With gradient accumulation an iteration is one batch, and the optimizer steps once in every k of them; the
    gradients collected in between are part of the state, so that a save at any iteration continues exactly.

    What is not finite never reaches the weights: losses and gradients are looked at *before* the optimizer's step,
    which is then left out, moments and all. On an accelerator nobody waits for that look: on CUDA, fused kernels skip
    the step by themselves; for all others the gradients become zeros, so that the weights only follow the moments once
    more.

    Memory of an update: the parameters four times (weights, gradients, two moments of Adam) and the activations of S x
    B faces.

    :param model: on its device. Parameters that need no gradient are frozen.
    :param loss: on the same device.
    :param optimizer: over the model's trained parameters.
    :param loader: open before the first update.
    :param options: learning rate, clipping, accumulation.
    :param network: ``mixed_precision``: float16 with a loss scaler on CUDA, bfloat16 elsewhere.
    :param warm_up: steps of the optimizer over which the learning rate rises to its full value.
    """

    def __init__(
        self,
        model: SwapModel,
        loss: SwapLoss,
        optimizer: torch.optim.Optimizer,
        loader: BatchSource,
        *,
        options: OptimizerOptions,
        network: NetworkOptions,
        warm_up: int = 0,
    ) -> None:
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.loader = loader
        self.models = {"main": model}
        self.optimizers = {"main": optimizer}
        self.state = UpdaterState()
        self.last_files: dict[str, list[Path]] = {}
        """The files of the last batch, by side."""
        self.batch_read_time = 0.0
        """Seconds that reading the last batch took."""
        self.batch_time = 0.0
        """Seconds that the last update took without reading; the device may still be at work."""
        self.batch_size: int | None = None
        """Faces in the last batch, all sides together."""
        self._options = options
        self._warm_up = warm_up
        self._device = next(model.parameters()).device
        self._mixed = network.mixed_precision
        self._clipper = GradientClipper.from_options(options)
        self._scaler: torch.amp.GradScaler | None = None
        self._precision: torch.dtype | None = None
        if network.mixed_precision:
            on_cuda = self._device.type == "cuda"
            self._precision = torch.float16 if on_cuda else torch.bfloat16
            self._scaler = torch.amp.GradScaler("cuda") if on_cuda else None
        self.rate = BaseRate(options.learning_rate)
        """The learning rate before the warm-up; may be exchanged at any time and acts in the next step."""
        self.forced_rate: float | None = None
        """While it is set, steps run with this rate, whatever :attr:`rate` and the warm-up say."""
        self._collected = 0  # batches whose gradients wait for the optimizer's next step
        self._updates = 0  # steps of the optimizer, left-out ones included
        self._losses_are_finite: bool | Tensor = True  # those of the collected batches

    @property
    def has_loss_scaler(self) -> bool:
        """Whether gradients are scaled so that they fit into float16."""
        return self._scaler is not None

    def update(self) -> None:
        """One batch of every side: losses, gradients and, every k-th time, a step of the optimizer.

        :raises OutOfMemoryError: with advice, when the device has not enough memory.
        """
        if not self.model.training:
            self.model.train()
        started = time.perf_counter()
        with memory_advice(self.model.name, self.loader.batch_size, self._mixed):
            batch = self.loader.next_batch()
        read = time.perf_counter()
        self.last_files = dict(zip(self.model.sides, batch.files, strict=True))
        sides, count = batch.inputs.shape[:2]
        with memory_advice(self.model.name, count, self._mixed):
            losses = training_step(
                self.model,
                self.loss,
                self._on_device(batch.inputs),
                [self._on_device(target) for target in batch.targets],
                {name: [self._on_device(mask) for mask in masks] for name, masks in batch.masks.items()},
                precision=self._precision,
                scale=self._loss_scale(),
            )
            self._collected += 1
            self._losses_are_finite = torch.isfinite(losses.total) & self._losses_are_finite
            if self._collected >= self._options.gradient_accumulation:
                self._step()
        self.batch_read_time, self.batch_time = read - started, time.perf_counter() - read
        self.batch_size = sides * count
        passes = batch.epoch - (batch.position - count) // self.loader.epoch_length
        self.state.advance(count, pass_complete=passes > 0)
        for _ in range(passes - 1):  # a batch larger than the folder completes several
            self.state.end_pass()
        self._report(losses)

    def state_dict(self) -> dict[str, Any]:
        """Counters, model, optimizer, place in the data: what decides the next number; tensors are the live ones."""
        gradients: dict[str, Tensor] = {}
        if self._collected:
            gradients = {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}
        return {
            "state": self.state.state_dict(),
            "models": {"main": self.model.state_dict()},
            "optimizers": {"main": optimizer_state_by_name(self.optimizer, self.model.named_parameters())},
            "loader": self.loader.state_dict(),
            "clipper": self._clipper.state_dict(),
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
            "learning_rate": self.rate.state_dict(),
            "collected": self._collected,
            "updates": self._updates,
            "gradients": gradients,
            "random": capture_random_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state. What the user may change is then as this session's options say.

        :raises StateError: the weights belong to another model.
        """
        try:
            self.model.load_state_dict(state["models"]["main"])
        except RuntimeError as error:
            raise StateError(
                f"The saved weights do not fit the model {self.model.name}.",
                advice="The run folder may hold parts of two runs; `ostinato runs verify` tells.",
            ) from error
        moments = state["optimizers"]["main"]
        found = load_optimizer_state_by_name(self.optimizer, self.model.named_parameters(), moments)
        if moments["state"] and not found.is_exact:  # there is none before the first step
            _log.warning("%s", found.describe())
        apply_updatable(self.optimizer, self._options)
        self.state.load_state_dict(state["state"])
        self.loader.load_state_dict(state["loader"])
        self._clipper.load_state_dict(state["clipper"])
        if self._scaler is not None and state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])
        # States of earlier versions tell neither.
        saved_rate = state.get("learning_rate")
        rate = BaseRate(self._options.learning_rate) if saved_rate is None else BaseRate.from_state(saved_rate)
        self.rate = rate.asked(self._options.learning_rate)
        set_learning_rate(self.optimizer, self.rate.value)
        self._updates = int(state.get("updates", self.state.iteration // self._options.gradient_accumulation))
        self._collected = int(state["collected"])
        self.model.zero_grad(set_to_none=True)
        parameters = dict(self.model.named_parameters())
        for name, gradient in state["gradients"].items():
            if parameters[name].requires_grad:
                parameters[name].grad = torch.empty_like(parameters[name]).copy_(torch.as_tensor(gradient))
        restore_random_state(state["random"])

    def _on_device(self, images: Tensor) -> Tensor:
        return images.to(self._device, non_blocking=True)

    def _loss_scale(self) -> float | Tensor:
        share = 1.0 / self._options.gradient_accumulation
        if self._scaler is None:
            return share
        return self._scaler.scale(torch.full((), share, device=self._device))

    def drop_collected(self) -> None:
        """Forget the gradients that wait for the optimizer's next step."""
        self.optimizer.zero_grad(set_to_none=True)
        self._collected = 0
        self._losses_are_finite = True

    def _step(self) -> None:
        rate = self.forced_rate
        if rate is None:
            rate = self.rate.value * warm_up_factor(self._updates, self._warm_up)
        set_learning_rate(self.optimizer, rate)
        if self._scaler is None:
            self._step_where_finite()
        else:
            if self._clipper.method != "none":
                self._scaler.unscale_(self.optimizer)
            self._clipper.clip(self.model.parameters())
            self._scaler.step(self.optimizer)  # leaves out steps whose gradients are not finite, and finds its scale so
            self._scaler.update()
            factor = self._scaler.scale(torch.ones((), device=self._device))  # a tensor: nobody waits for it
            report(LOSS_SCALE, torch.where(factor < LOWEST_SCALE, torch.nan, factor))
        self._updates += 1
        self.drop_collected()

    def _step_where_finite(self) -> None:
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        if not gradients:
            return
        clips_together = self._clipper.method in ("global_norm", "autoclip")
        norm = None if clips_together else _norm(gradients)
        clipped_from = self._clipper.clip(self.model.parameters())
        norm = clipped_from if norm is None else norm
        assert norm is not None
        report(GRADIENT_NORM, norm)
        is_finite = torch.isfinite(norm) & self._losses_are_finite
        if self._device.type == "cpu":
            if is_finite:  # on a processor there is nobody to wait for
                self.optimizer.step()
        elif self._device.type == "cuda" and getattr(self.optimizer, "_step_supports_amp_scaling", False):
            # The hand-over that torch's own loss scaler uses: the kernel reads the flag and does nothing.
            self.optimizer.found_inf = (~is_finite).float()  # type: ignore[attr-defined]
            try:
                self.optimizer.step()
            finally:
                del self.optimizer.found_inf  # type: ignore[attr-defined]
        else:
            for gradient in gradients:
                gradient.masked_fill_(~is_finite, 0.0)
            self.optimizer.step()

    def _report(self, losses: StepLosses) -> None:
        report("loss/total", losses.total)
        for name, side in losses.sides.items():
            report(f"loss/{name}", side.total)
            for size, weighted in zip(self.model.output_sizes, side.weighted, strict=True):
                place = f"loss/{name}" if len(side.weighted) == 1 else f"loss/{name}/{size}"
                for function, value in weighted.items():
                    report(f"{place}/{function}", value)
            if side.mask is not None:
                report(f"loss/{name}/mask", side.mask)


def _norm(tensors: list[Tensor]) -> Tensor:
    """The 2-norm over all tensors, on the device; not finite where an entry is not, or is too large to be squared."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
