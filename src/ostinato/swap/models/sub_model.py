"""A part of a swap model with one input: the encoder, or the decoder of one side."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ostinato.swap.models.blocks import NamedLayers


class SubModel(nn.Module):
    """Named layers in one or several branches that all start at the input.

    The layers are direct children, whatever branch they are in, so that a parameter's name is
    ``<sub-model>.<layer>.<weight>``, as in Faceswap's files.

    :param branches: the layers of each branch, in order.
    """

    def __init__(self, branches: Sequence[NamedLayers]) -> None:
        super().__init__()
        self.branches = tuple(tuple(name for name, _ in branch) for branch in branches)
        for branch in branches:
            for name, layer in branch:
                self.add_module(name, layer)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Run every branch on ``x``; one result per branch."""
        results = []
        for branch in self.branches:
            y = x
            for name in branch:
                y = self.get_submodule(name)(y)
            results.append(y)
        return results
