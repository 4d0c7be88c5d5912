"""Small stores and parameters for the tests of the key-value room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch.nn import Parameter

from ostinato.kvstore import ParameterTrainer, Store


class PlugInStore(Store):
    """A store that only sums, as plug-ins for other reduction libraries do; here it does not even that."""

    can: ClassVar[frozenset[str]] = frozenset()
    name: ClassVar[str] = "plugin"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.optimizer: Any = None

    @property
    def type(self) -> str:
        return self.name

    def is_capable(self, capability: str) -> bool:
        return capability in self.can

    def broadcast(self, key: Any, value: Any, out: Any, priority: Any = 0) -> None:
        self.calls.append("broadcast")

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: Any = 0, *, only_if_finite: bool = False
    ) -> bool:
        self.calls.append("pushpull")
        return True

    def set_optimizer(self, optimizer: Any) -> None:
        self.optimizer = optimizer


class FrozenStore(PlugInStore):
    """A distributed store whose servers have a copy of the optimizer that cannot be changed."""

    can = frozenset({"optimizer"})
    name = "frozen_dist"


class OtherRankStore(PlugInStore):
    """A distributed store with a second worker that says what the test wants: its flags, and its gradients."""

    name = "two_dist"

    def __init__(self) -> None:
        super().__init__()
        self.flags: list[bool] | None = None
        self.gradients: dict[int, torch.Tensor] = {}
        self.exchanged: list[list[int]] = []

    num_workers = 2

    def agree(self, flags: Any) -> list[bool]:
        other = self.flags if self.flags is not None and len(self.flags) == len(flags) else [False] * len(flags)
        return [mine or theirs for mine, theirs in zip(flags, other, strict=True)]

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: Any = 0, *, only_if_finite: bool = False
    ) -> bool:
        self.exchanged.append(list(key))
        for one, (gradient,) in zip(key, value, strict=True):
            gradient.add_(self.gradients.get(one, torch.zeros_like(gradient)))
        return True


def two_parameters(replicas: int = 2) -> dict[str, list[Parameter]]:
    """``a`` with two elements and ``b`` with one."""
    return {
        "a": [Parameter(torch.tensor([1.0, 2.0])) for _ in range(replicas)],
        "b": [Parameter(torch.tensor([-1.0])) for _ in range(replicas)],
    }


def backward(weights: dict[str, list[Parameter]], **gradients: list[list[float] | None]) -> None:
    """Back-propagate these gradients, one for each replica; None: that replica runs no backward pass."""
    for name, per_replica in gradients.items():
        for replica, gradient in zip(weights[name], per_replica, strict=True):
            if gradient is not None:
                (replica * torch.tensor(gradient, dtype=replica.dtype)).sum().backward()


def backward_all(weights: dict[str, list[Parameter]], value: float = 1.0) -> None:
    """Back-propagate a constant to every replica of every parameter."""
    for replicas in weights.values():
        for replica in replicas:
            (replica * value).sum().backward()


def values(replicas: list[Parameter]) -> list[list[float]]:
    return [replica.detach().tolist() for replica in replicas]


def assert_near(replicas: Sequence[torch.Tensor], *expected: float, tolerance: float = 1e-6) -> None:
    """Every replica holds these values, and all replicas hold the very same ones."""
    torch.testing.assert_close(replicas[0].detach().float(), torch.tensor(expected), rtol=0, atol=tolerance)
    for replica in replicas[1:]:
        assert torch.equal(replica, replicas[0])


def make(weights: Any, optimizer: Any = "sgd", **arguments: Any) -> ParameterTrainer:
    """A trainer with a rate of 0.1 unless the test says otherwise."""
    if isinstance(optimizer, str):
        arguments.setdefault("optimizer_params", {"learning_rate": 0.1})
    return ParameterTrainer(weights, optimizer, **arguments)
