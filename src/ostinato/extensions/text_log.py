"""Writes a line of text about the training every so many iterations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ostinato.errors import ArgumentTypeError
from ostinato.extensions.interval_means import IntervalMeans
from ostinato.extensions.saved_format import check_format
from ostinato.loop import PRIORITY_READER, Extension, TrainerView
from ostinato.loop.inner_trigger import InnerTrigger

_log = logging.getLogger(__name__)

STATE_FORMAT = 1


class TextLog(Extension):
    """One line such as ::

        iter: 200/350000, loss: 0.0123, avg_reader_cost: 0.00031 sec, avg_batch_cost: 0.12034 sec, avg_samples: 32,
        avg_ips: 265.91 sequences/sec

    It holds the iteration and the limit, where that is known; the means of all numbers observed since the last line;
    and true averages over the same iterations, with the names that users of PaddleSpeech know:

    * ``avg_reader_cost``: seconds that one update waited for its batch;
    * ``avg_batch_cost``: seconds of one update, reading included;
    * ``avg_samples``: samples of one update, over all ranks;
    * ``avg_ips``: samples per second of reading and computing;
    * with CUDA, ``max_mem_reserved`` and ``max_mem_allocated``: the most that PyTorch has held on the present device
      since the process started, in MiB.

    The two costs stand there where the updater offers ``batch_read_time`` and ``batch_time``, the samples where it
    counts them. Only rank 0 writes. Numbers stay on their device until a line is written.

    What was gathered for the next line is saved with the run, so a line after a resume tells of the same iterations as
    in a training that was never interrupted.

    :param trigger: when a line is written. It is an argument of this class and not of ``Trainer.extend``, because the
        extension itself has to be called in every iteration to see its numbers.
    :param write: called with each line, without a line break; ``print`` will do. By default the line is logged with
        level INFO as ``ostinato.extensions.text_log``, which shows up where logging is set up for it.
    :raises ArgumentTypeError: when ``trigger`` is none, or ``write`` cannot be called.
    :raises ArgumentValueError: when ``trigger`` has a bad text, unit or number.
    """

    trigger = (1, "iteration")
    priority = PRIORITY_READER - 20  # after the files: a line on the screen is in the files as well

    def __init__(self, trigger: Any = (100, "iteration"), write: Callable[[str], Any] | None = None) -> None:
        if write is not None and not callable(write):
            raise ArgumentTypeError(
                f"TextLog: write must be something to call, not {write!r}.", advice="Give print, say.", value=write
            )
        self._line_trigger = InnerTrigger(trigger)
        self._write = write
        self._means = IntervalMeans("TextLog")
        self._costs = _Costs()
        self._is_active = False

    def initialize(self, trainer: TrainerView) -> None:
        """Take the base line of the trigger; see whether anybody will hear."""
        self._line_trigger.initialize(trainer)
        self._is_active = trainer.group.rank == 0
        self._costs.start(trainer)
        if self._is_active and self._write is None and not _log.isEnabledFor(logging.INFO):
            _log.warning(
                "TextLog writes to the logger %r with level INFO, which is switched off, so no line will show. Set "
                "logging up, with logging.basicConfig(level=logging.INFO) for example, or give TextLog(write=print).",
                __name__,
            )

    def __call__(self, trainer: TrainerView) -> None:
        """Take in the numbers of this iteration; write a line when it is time."""
        if not self._is_active:
            return
        self._means.add(trainer.observation)
        self._costs.add(trainer)
        if self._line_trigger(trainer):
            line = self.line(trainer)
            self._means.clear()
            self._costs = _Costs()
            self._costs.start(trainer)
            if self._write is None:
                _log.info("%s", line)
            else:
                self._write(line)

    def line(self, trainer: TrainerView) -> str:
        """The line as it would be written now. Reads what is on a device."""
        limit = trainer.max_iteration
        parts = [f"iter: {trainer.updater.state.iteration}" + ("" if limit is None else f"/{limit}")]
        parts += [f"{name}: {value:.6g}" for name, value in self._means.compute().items()]
        return ", ".join([*parts, *self._costs.fields(), *_device_memory()])

    def state_dict(self) -> dict[str, Any]:
        """What was gathered since the last line."""
        return {
            "format": STATE_FORMAT,
            "trigger": self._line_trigger.state_dict(),
            "means": self._means.state_dict(),
            "costs": self._costs.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with what was gathered.

        :raises ArgumentValueError: for a state of another format.
        """
        check_format(state, STATE_FORMAT, "TextLog")
        self._line_trigger.load_state_dict(state["trigger"])
        self._means.load_state_dict(state["means"])
        self._costs.load_state_dict(state["costs"])


class _Costs:
    """What the updates since the last line have cost."""

    def __init__(self) -> None:
        self.reading = 0.0  # seconds
        self.computing = 0.0  # seconds
        self.iterations = 0
        self.samples = 0
        self._samples_before = 0  # counter of the updater at the last call

    def start(self, trainer: TrainerView) -> None:
        self._samples_before = trainer.updater.state.samples

    def add(self, trainer: TrainerView) -> None:
        updater = trainer.updater
        self.reading += getattr(updater, "batch_read_time", None) or 0.0
        self.computing += getattr(updater, "batch_time", None) or 0.0
        self.iterations += 1
        self.samples += updater.state.samples - self._samples_before
        self._samples_before = updater.state.samples

    def fields(self) -> list[str]:
        if not self.iterations:
            return []
        seconds = self.reading + self.computing
        fields = []
        if seconds > 0:
            fields.append(f"avg_reader_cost: {self.reading / self.iterations:.5f} sec")
            fields.append(f"avg_batch_cost: {seconds / self.iterations:.5f} sec")
        if self.samples > 0:
            fields.append(f"avg_samples: {self.samples / self.iterations:.6g}")
            if seconds > 0:
                fields.append(f"avg_ips: {self.samples / seconds:.2f} sequences/sec")
        return fields

    def state_dict(self) -> dict[str, Any]:
        return {
            "reading": self.reading,
            "computing": self.computing,
            "iterations": self.iterations,
            "samples": self.samples,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.reading, self.computing = float(state["reading"]), float(state["computing"])
        self.iterations, self.samples = int(state["iterations"]), int(state["samples"])


def _device_memory() -> list[str]:
    # Not torch.cuda.is_available: asking for memory would start CUDA in a process that trains on the processor.
    if not torch.cuda.is_initialized():
        return []
    return [
        f"max_mem_reserved: {torch.cuda.max_memory_reserved() // 2**20} MB",
        f"max_mem_allocated: {torch.cuda.max_memory_allocated() // 2**20} MB",
    ]
