"""The updater for the common case: batches from a loader, a loss from a model."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ostinato.dist import Alone, Group
from ostinato.errors import StateError
from ostinato.loop.batch_reader import BatchReader
from ostinato.loop.batches import batch_size, call_with_batch, to_device
from ostinato.loop.loaders import no_batch_error
from ostinato.loop.losses import named_losses
from ostinato.loop.reporter import report
from ostinato.loop.unwrapping import unwrapped
from ostinato.loop.updater_arguments import (
    Schedule,
    check_functions,
    check_loader,
    check_scaler,
    checked_device,
    checked_models,
    checked_optimizers,
    checked_schedules,
)
from ostinato.loop.updater_state import UpdaterState

if TYPE_CHECKING:
    from torch.amp.grad_scaler import GradScaler
    from torch.optim import Optimizer

    from ostinato.loop.protocols import OffersOptimizer, StepsParameters

    AnyOptimizer = Optimizer | StepsParameters | OffersOptimizer

_log = logging.getLogger(__name__)

_NOTHING = object()


@dataclass(frozen=True)
class _SavedPlace:
    """Where in a pass a state was saved, and with how many samples in a batch of all ranks together."""

    iteration_in_epoch: int
    samples_in_epoch: int
    batch_size: int


class StandardUpdater:
    """Reads a batch, computes losses, back-propagates, steps; over any number of passes, continued exactly.

    Several models, optimizers or loss functions are mappings by name; a single object is the one named ``main``.
    :meth:`update_core` is what a subclass overrides to train them in another way: everything around it (reading,
    counting, schedules, state) stays.

    How exactly a run continues (UP-8): the counters always. The order of the samples for samplers with a seed per
    epoch, for those that draw from the global generators, and for loaders with a state of their own. Equal parameters,
    bit for bit, in addition where loading happens in this process or augmentation is seeded per sample, kernels are
    deterministic and the number of ranks is the same.

    :param model: a module, or modules by name.
    :param optimizer: an optimizer, or optimizers by name; an :class:`ostinato.kvstore.ParameterTrainer` is taken as
        one, which divides the sum of the gradients by the number of losses in it.
    :param loader: any iterable of batches that can be walked again and again.
    :param loss_function: called with what the model returns and the batch, if the model does not return losses itself;
        or several by the name of their loss.
    :param schedulers: learning-rate schedules by name, each with its unit, ``iteration`` or ``epoch``:
        ``{"main": (schedule, "epoch")}``. They are stepped after the update that completes the unit.
    :param scaler: scales losses for float16.
    :param device: where batches are moved to; by default they stay where the loader made them.
    :param count_tokens: how many tokens a batch has, for triggers and reports that count in them. With several ranks
        their numbers are added up, which is one small collective in every update.
    :param synchronize: wait for the device at the end of every update, so that ``batch_time`` is what the update took.
        It costs speed; meant for measuring.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: for an unknown device, and for a schedule with an unknown unit.
    """

    schedule_units: tuple[str, ...] = ("iteration", "epoch")
    """The units that a schedule may have."""

    def __init__(
        self,
        model: nn.Module | Mapping[str, nn.Module],
        optimizer: AnyOptimizer | Mapping[str, AnyOptimizer],
        loader: Any,
        *,
        loss_function: Callable[[Any, Any], Any] | Mapping[str, Callable[[Any, Any], Any]] | None = None,
        schedulers: Schedule | Mapping[str, Schedule] | None = None,
        scaler: GradScaler | None = None,
        device: torch.device | str | None = None,
        count_tokens: Callable[[Any], int] | None = None,
        synchronize: bool = False,
    ) -> None:
        self.models: dict[str, nn.Module] = checked_models(model)
        self.optimizers: dict[str, Optimizer] = checked_optimizers(optimizer, self.models)
        check_loader(loader)
        self.loss_function = check_functions(loss_function, "The loss function")
        self.schedulers: dict[str, Schedule] = checked_schedules(schedulers, self.schedule_units)
        self.scaler = check_scaler(scaler)
        self.device = checked_device(device)
        check_functions(count_tokens, "count_tokens")
        self._count_tokens = count_tokens
        self._synchronize = synchronize
        self.state = UpdaterState(tokens=None if count_tokens is None else 0)
        self.batch_read_time = 0.0
        """Seconds that reading the last batch took."""
        self.batch_time = 0.0
        """Seconds that the last update took without reading; the device may still be at work."""
        self.batch_size: int | None = None
        """Samples in the last batch, where that can be seen."""
        self._reader = BatchReader(loader)
        self._batch: Any = _NOTHING
        self._group: Group = Alone()  # the ranks that read a batch each in one update
        self._saved_place: _SavedPlace | None = None  # loaded, and nothing read since

    @property
    def updates_per_epoch(self) -> int | None:
        """Updates of one pass; ``None`` when the loader has no length."""
        return self._reader.length

    def initialize(self, trainer: Any) -> None:
        """Called by the trainer after the restore step: from here on the length of a pass and the ranks are known.

        :raises StateError: when the loader says that it has no batches.
        """
        self.state.updates_per_epoch = self._reader.length
        if self._reader.length == 0:
            raise no_batch_error(self._reader.loader)
        self._group = getattr(trainer, "group", None) or self._group
        self._find_place()
        self._end_pass_that_was_longer()

    def update(self) -> None:
        """One batch, one parameter update; the counters rise when it is done.

        When :meth:`update_core` raises, no counter moves, and the batch is used again by the next call.

        :raises StateError: when the loader yields nothing, or a ``StopIteration`` leaves :meth:`update_core`.
        """
        for model in self.models.values():
            if not model.training:
                model.train()
        started = time.perf_counter()
        if self._batch is _NOTHING:
            self._batch = self._read_batch()
        self.state.updates_per_epoch = self._reader.length
        read = time.perf_counter()
        try:
            self.update_core(self._batch)
        except StopIteration as error:
            # It would end the loop of whoever iterates above, silently.
            raise StateError(
                "A StopIteration left update_core.", advice="Catch it there, or read batches only through the loader."
            ) from error
        if self._synchronize and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        self.batch_read_time, self.batch_time = read - started, time.perf_counter() - read
        self.batch_size = batch_size(self._batch)
        tokens = 0 if self._count_tokens is None else self._tokens_of_all_ranks(self._count_tokens(self._batch))
        self._batch = _NOTHING
        complete = self._reader.pass_is_complete(self.state.iteration_in_epoch + 1)
        # Ranks read batches of one size; asking each of them in every update would cost more than it tells.
        self.state.advance((self.batch_size or 0) * self._group.size, tokens, pass_complete=complete)
        self._finish_update(complete)

    def update_core(self, batch: Any) -> None:
        """What one update does with its batch: by default the model ``main`` with all optimizers.

        A sequence becomes positional arguments of the model, a mapping keywords, anything else one argument. A tensor
        is the loss; of a mapping of losses ``main`` is the one that is back-propagated, or the sum where it is missing.
        """
        losses = self.compute_losses(batch)
        for name, loss in losses.items():
            report(name, loss)
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        if self.scaler is None:
            losses["main"].backward()
            for optimizer in self.optimizers.values():
                optimizer.step()
            return
        self.scaler.scale(losses["main"]).backward()
        for optimizer in self.optimizers.values():
            self.scaler.step(optimizer)
        self.scaler.update()

    def compute_losses(self, batch: Any) -> dict[str, torch.Tensor]:
        """The losses of a batch by name; ``main`` is among them."""
        result = call_with_batch(self.models["main"], batch)
        if isinstance(self.loss_function, Mapping):
            result = {name: function(result, batch) for name, function in self.loss_function.items()}
        elif self.loss_function is not None:
            result = self.loss_function(result, batch)
        return named_losses(
            result,
            "The model",
            advice="Return a tensor or a mapping of tensors, pass loss_function, or override update_core.",
        )

    def state_dict(self) -> dict[str, Any]:
        """Counters, models, optimizers, schedules, scaler, and the place in the data; tensors are the live ones."""
        return {
            "state": {**self.state.state_dict(), "batch_size": self._global_batch_size()},
            "models": {name: unwrapped(model).state_dict() for name, model in self.models.items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "schedulers": {name: schedule.state_dict() for name, (schedule, _) in self.schedulers.items()},
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            **self._reader.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        :raises StateError: when its models, optimizers or schedules have other names. Nothing is changed then.
        """
        for kind in ("models", "optimizers", "schedulers"):
            here, saved = set(getattr(self, kind)), set(state[kind])
            if here != saved:
                raise StateError(
                    f"This updater has the {kind} {sorted(here)}, the saved state has {sorted(saved)}.",
                    advice="Build the updater as it was when the state was saved, or start a new run.",
                    kind=kind,
                )
        for name, model in self.models.items():
            unwrapped(model).load_state_dict(state["models"][name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        for name, (schedule, _) in self.schedulers.items():
            schedule.load_state_dict(state["schedulers"][name])
        if self.scaler is not None and state["scaler"] is not None:
            self.scaler.load_state_dict(state["scaler"])
        self.state.load_state_dict(state["state"])
        if self._count_tokens is not None and self.state.tokens is None:  # saved by a program that did not count them
            self.state.tokens = 0
        size = state["state"].get("batch_size")
        here = self.state
        self._saved_place = None if size is None else _SavedPlace(here.iteration_in_epoch, here.samples_in_epoch, size)
        self._find_place()
        self._reader.load_state_dict(state)
        self._batch = _NOTHING

    def _read_batch(self) -> Any:
        self._say_what_is_seen_again()
        batch = self._reader.read(self.state.epoch, self.state.iteration_in_epoch, self.state.end_pass)
        return batch if self.device is None else to_device(batch, self.device)

    def _finish_update(self, pass_complete: bool) -> None:
        """What comes after the counters of an update have risen: the schedules whose unit is complete."""
        for schedule, unit in self.schedulers.values():
            if unit == "iteration" or (unit == "epoch" and pass_complete):
                schedule.step()

    def _global_batch_size(self) -> int | None:
        """Samples in one batch of every rank, if the loader says how many there are in one."""
        size = self._reader.batch_size
        return None if size is None else size * self._group.size

    def _tokens_of_all_ranks(self, tokens: int) -> int:
        return tokens if self._group.size == 1 else int(self._group.sum_of([tokens])[0])

    def _find_place(self) -> None:
        """With batches of another size, go on at the last boundary of a new batch before the saved place (UP-7).

        Called when a state was loaded, and again when it is known how many ranks there are.
        """
        saved, size = self._saved_place, self._global_batch_size()
        if saved is None:
            return
        self.state.iteration_in_epoch, self.state.samples_in_epoch = saved.iteration_in_epoch, saved.samples_in_epoch
        if size is not None and size != saved.batch_size and saved.samples_in_epoch:
            self.state.iteration_in_epoch = saved.samples_in_epoch // size
            self.state.samples_in_epoch = self.state.iteration_in_epoch * size

    def _end_pass_that_was_longer(self) -> None:
        """With less data than there was, the saved place may lie behind the end of a pass: a new one begins."""
        length, place = self._reader.length, self.state.iteration_in_epoch
        if length is None or place < length:
            return
        _log.warning(
            "%s has %d batches now, and %d of this pass were consumed when it had more; a new pass begins.",
            type(self._reader.loader).__name__,
            length,
            place,
        )
        self._saved_place = None
        self.state.end_pass()

    def _say_what_is_seen_again(self) -> None:
        saved, self._saved_place = self._saved_place, None
        if saved is not None and saved.iteration_in_epoch and saved.batch_size != self._global_batch_size():
            _log.warning(
                "the batch size of all ranks together changed from %d to %s; going on after %d batches of this pass, "
                "%d samples are seen again",
                saved.batch_size,
                self._global_batch_size(),
                self.state.iteration_in_epoch,
                saved.samples_in_epoch - self.state.samples_in_epoch,
            )
