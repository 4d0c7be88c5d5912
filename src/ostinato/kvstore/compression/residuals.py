"""What compression could not say yet, per parameter: state, like momentum."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, StateError
from ostinato.kvstore.compression.quantising import quantise
from ostinato.kvstore.compression.scheme import CompressionScheme
from ostinato.optim.argument_checks import require_mapping, require_tensor

Key = int | str


@dataclass(frozen=True)
class Proposal:
    """Words that are ready to be sent, and the residuals that would be left behind."""

    layout: tuple[tuple[Key, int], ...]
    packed: Tensor
    residual: Tensor
    """(sum of the sizes,) float32."""


class Compressor:
    """Compresses the gradients of one worker and keeps their residuals, one for each key.

    Several keys can be compressed together, as a bucket: their residuals then lie behind one another in memory. That
    changes nothing but speed, because every element stands for itself.

    :param scheme: see :class:`CompressionScheme`.
    """

    def __init__(self, scheme: CompressionScheme) -> None:
        self.scheme = scheme
        self._residuals: dict[Key, Tensor] = {}  # (n,) float32, on the device of the gradient

    def compress(self, key: Key, gradient: Tensor, packed: Tensor | None = None) -> Tensor:
        """Give the words of one gradient: see :func:`quantise`. Any shape; contiguous, float32."""
        require_tensor("A gradient", gradient)
        if isinstance(key, bool) or not isinstance(key, (int, str)):
            raise ArgumentTypeError(f"A key is a number or text, not {type(key).__name__}.", advice="Give a key.")
        return self.compress_together([(key, gradient.numel())], gradient.reshape(-1), packed)

    def compress_together(
        self, layout: Sequence[tuple[Key, int]], gradients: Tensor, packed: Tensor | None = None
    ) -> Tensor:
        """Give the words of several gradients that lie behind one another.

        :param layout: key and number of elements of each, in the order of memory.
        :param gradients: (sum of the numbers,) float32, contiguous.
        :param packed: see :func:`quantise`.
        """
        return quantise(self.scheme, gradients, self._together(layout, gradients.device), packed)

    def propose(self, layout: Sequence[tuple[Key, int]], gradients: Tensor) -> Proposal:
        """Do the same without changing the residuals before :meth:`accept`: an exchange may still come to nothing.

        Costs one more copy of the residuals.
        """
        residual = self._together(layout, gradients.device).clone()
        return Proposal(tuple(layout), quantise(self.scheme, gradients, residual), residual)

    def accept(self, proposal: Proposal, only: Collection[Key] | None = None) -> None:
        """Let the residuals become what the proposal leaves of them.

        :param only: the keys whose part of the exchange counts; the residuals of the others stay.
        """
        sizes = [size for _, size in proposal.layout]
        for (key, _), part in zip(proposal.layout, proposal.residual.split(sizes), strict=True):
            if only is None or key in only:
                self._residuals[key] = part

    def _together(self, layout: Sequence[tuple[Key, int]], device: torch.device) -> Tensor:
        """The residuals of ``layout`` as one stretch of memory, moved there first if they lie elsewhere."""
        first = self._residuals.get(layout[0][0]) if layout else None
        total = sum(size for _, size in layout)
        if first is not None and first.device == device:
            place = first.storage_offset()
            for key, size in layout:
                kept = self._residuals.get(key)
                if (
                    kept is None
                    or len(kept) != size
                    or kept.storage_offset() != place
                    or kept.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()
                ):
                    break
                place += size
            else:
                return first.as_strided((total,), (1,))
        flat = torch.zeros(total, dtype=torch.float32, device=device)
        for (key, size), part in zip(layout, flat.split([size for _, size in layout]), strict=True):
            kept = self._residuals.get(key)
            if kept is not None:
                if len(kept) != size:
                    raise StateError(
                        f"The residual of parameter {key!r} has {len(kept)} elements, and its gradient has {size}.",
                        advice="A parameter's size cannot change under compression. Start with fresh residuals: "
                        "reset() forgets them.",
                    )
                part.copy_(kept)
            self._residuals[key] = part
        return flat

    def residual(self, key: Key) -> Tensor | None:
        """The residual of ``key``, (n,) float32, not a copy; ``None`` before its first gradient."""
        return self._residuals.get(key)

    def reset(self) -> None:
        """Forget all residuals: the next gradients start from zero."""
        self._residuals.clear()

    def state_dict(self) -> dict[str, Any]:
        """Type, threshold and a copy of every residual by key. Each worker has its own."""
        return {
            "format": 1,
            "type": self.scheme.type,
            "threshold": self.scheme.threshold,
            "residuals": {key: kept.detach().clone() for key, kept in self._residuals.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take residuals back. Nothing changes if they do not fit.

        :raises StateError: they belong to another type of compression, or this is no such state.
        """
        self.load_sum_of([state])

    def load_sum_of(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Take over what several workers still owed, as the sum: see :func:`residuals_for_rank`."""
        summed: dict[Key, Tensor] = {}
        for state in states:
            for key, kept in self._read(state).items():
                summed[key] = summed[key] + kept if key in summed else kept.clone()
        self._residuals = summed

    def _read(self, state: Mapping[str, Any]) -> dict[Key, Tensor]:
        require_mapping("The state of compression", state, "Give what state_dict() gave.")
        if state.get("format") != 1 or not isinstance(state.get("residuals"), Mapping):
            raise StateError(
                "This is not a state of gradient compression that this version can read.",
                advice="Give what state_dict() gave, or start with fresh residuals.",
            )
        if state.get("type") != self.scheme.type:
            # Residuals are at home under any threshold of their type, but those of 1bit and 2bit differ in size.
            raise StateError(
                f"The saved residuals belong to {state.get('type')} compression, and this is {self.scheme.type}.",
                advice="Continue with the compression the run was made with, or start with fresh residuals.",
            )
        residuals = {key: torch.as_tensor(kept).detach().reshape(-1) for key, kept in state["residuals"].items()}
        for key, kept in residuals.items():
            if kept.dtype != torch.float32:
                raise StateError(f"The saved residual of parameter {key!r} is {kept.dtype}, not float32.")
        return residuals


def residuals_for_rank(states: Sequence[Mapping[str, Any]], rank: int, size: int) -> list[Mapping[str, Any]]:
    """Which of the old workers' residuals ``rank`` of ``size`` takes over: those with the same number modulo ``size``.

    The sum over all workers of what is owed stays the same, whatever the new number of workers; with the same number,
    every worker gets its own back. Workers that are new start with nothing owed.
    """
    return list(states[rank::size])
