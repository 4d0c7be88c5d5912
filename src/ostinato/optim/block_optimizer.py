"""The base of optimizers that are written here, in torch's form and at the pace of the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.rules.blocks import Block, Job, computing_dtype, element_blocks


class BlockOptimizer(torch.optim.Optimizer):
    """Updates parameters block by block (:mod:`ostinato.optim.rules.blocks`), so that only the first pass over a block
    goes to main memory, and temporaries are as small as a block.

    Parameters of 16 bits have their state in float32 and are updated in it. Nothing waits for the device: counts of
    updates are kept on the host.

    :param groups: parameters or parameter groups.
    :param defaults: the options of groups that do not name them.
    """

    state_names: ClassVar[tuple[str, ...]]
    """Tensors that are kept for each parameter."""
    counts_updates: ClassVar[bool]
    """Whether each parameter's updates are counted, under the name ``step``."""

    def __init__(self, groups: Iterable[Any], defaults: dict[str, Any]) -> None:
        super().__init__(groups, defaults)

    def _update(self, block: Block, group: dict[str, Any], count: int) -> None:
        """Update a block in place.

        :param count: of this update, 1 at the first; 0 where updates are not counted.
        """
        raise NotImplementedError(f"{type(self).__name__} must say what an update does: override _update.")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyrefly: ignore
        """Update every parameter that has a gradient.

        :param closure: computes the loss and the gradients first; its result is returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            alike: dict[tuple[torch.device, torch.dtype, int], list[Job]] = {}
            for number, parameter in enumerate(group["params"]):
                if parameter.grad is not None:
                    state = self._state_of(parameter)
                    count = self._count(state)
                    job = Job(number, parameter, parameter.grad, state)
                    alike.setdefault((parameter.device, parameter.dtype, count), []).append(job)
            for (_, _, count), jobs in alike.items():
                for block in element_blocks(jobs, self.state_names):
                    self._update(block, group, count)
        return loss

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        state = self.state[parameter]
        if not state:
            if self.counts_updates:
                state["step"] = torch.zeros((), dtype=torch.float32)
            dtype = computing_dtype(parameter.dtype)
            state.update({name: torch.zeros_like(parameter, dtype=dtype) for name in self.state_names})
        return state

    def _count(self, state: dict[str, Any]) -> int:
        if not self.counts_updates:
            return 0
        state["step"] += 1
        return int(state["step"])
