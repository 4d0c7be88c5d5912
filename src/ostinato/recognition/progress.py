"""One line that says how far a recognition training has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ostinato.extensions.progress import ProgressDisplay, clock_time
from ostinato.loop import TimeTrigger, TrainerView, is_scalar, read_scalars

if TYPE_CHECKING:
    from rich.console import Console


class RecognitionProgress(ProgressDisplay):
    """A line such as ::

        iteration 1,250 of 9,100 · epoch 2.7 of 20 · 812 images/s · 1:02:07 left · loss 12.3456 · rate 0.08 ·
        data 3 % backbone 80 % head 17 %

    where the shares are those of the time of the last update. On a terminal it is rewritten in place twice a second;
    elsewhere a new line is written every ``every`` seconds. The loss is read from the device only for a line that is
    shown.

    :param write: called with each line, without a line break.
    :param console: a rich console; used if it is a terminal, otherwise ``write`` is, or the console's plain printing.
    :param every: seconds between lines where they are not rewritten.
    :param epoch_length: images in a pass.
    """

    name = "progress"

    def __init__(
        self,
        write: Callable[[str], Any] | None = None,
        *,
        console: Console | None = None,
        every: float = 10.0,
        epoch_length: int,
    ) -> None:
        super().__init__(write, console=console)
        self.trigger = TimeTrigger(0.5 if self._rewrites else every)
        self._epoch_length = epoch_length

    def line(self, trainer: TrainerView) -> str:
        """The line as it would be shown now. Reads the loss from the device."""
        state, total = trainer.updater.state, trainer.max_iteration
        parts = [f"iteration {state.iteration:,}" + (f" of {total:,}" if total is not None else "")]
        epoch = f"epoch {state.samples / self._epoch_length:,.1f}"
        if total is not None and state.iteration:
            epoch += f" of {state.samples / state.iteration * total / self._epoch_length:,.1f}".removesuffix(".0")
        parts.append(epoch)
        speed = self._speed()
        if speed is not None:
            rate, seconds, _, images = speed
            parts.append(f"{images / seconds:,.{0 if images >= 10 * seconds else 1}f} images/s")
            if total is not None and total > state.iteration:
                parts.append(f"{clock_time((total - state.iteration) / rate)} left")
        seen = {name: value for name, value in trainer.observation.items() if is_scalar(value)}
        wanted = [name for name in ("loss", "rate", "loss_scale") if name in seen]
        for name, value in zip(wanted, read_scalars([seen[name] for name in wanted]), strict=True):
            parts.append(f"loss {value:.4f}" if name == "loss" else f"{name.replace('_', ' ')} {value:.4g}")
        shares = {name: float(seen[f"time/{name}"]) for name in ("data", "backbone", "head") if f"time/{name}" in seen}
        whole = sum(shares.values())
        if whole > 0:
            parts.append(" ".join(f"{name} {100 * seconds / whole:.0f} %" for name, seconds in shares.items()))
        return " · ".join(parts)
