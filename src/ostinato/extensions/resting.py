"""Leaves training exactly as it was, whatever happens meanwhile."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ostinato.dist import Group
from ostinato.loop import capture_random_state, restore_random_state


@contextmanager
def evaluation_mode(models: Iterable[nn.Module]) -> Generator[None]:
    """Modules in evaluation mode and gradients off inside; the flag of every single module as before afterwards."""
    flags = [(module, module.training) for model in models for module in model.modules()]
    try:
        for module, _ in flags:
            if module.training:
                module.eval()
        with torch.no_grad():
            yield
    finally:
        for module, training in flags:
            # Not train(): it would set the flags of all modules below, and some of them may have been off.
            module.training = training


@contextmanager
def kept_random_state(generators: Iterable[torch.Generator] = ()) -> Generator[None]:
    """The states of all random generators as before afterwards.

    :param generators: further ones than those of the process.
    """
    before = capture_random_state()
    own = [(generator, generator.get_state()) for generator in generators]
    try:
        yield
    finally:
        restore_random_state(before)
        for generator, state in own:
            generator.set_state(state)


@contextmanager
def buffers_of_rank_0(models: Mapping[str, nn.Module], group: Group) -> Generator[None]:
    """The buffers of rank 0 on all ranks inside, each rank's own ones as before afterwards.

    Running statistics differ from rank to rank between two steps of data-parallel training; the model of the run is
    that of rank 0.
    """
    buffers = {f"{owner}.{name}": buffer for owner, model in models.items() for name, buffer in model.named_buffers()}
    if group.size == 1 or len(set(group.gather(_digest(buffers)))) == 1:
        yield
        return
    first = group.broadcast({name: buffer.detach().cpu() for name, buffer in buffers.items()})
    before = {name: buffer.detach().clone() for name, buffer in buffers.items()}
    try:
        _copy(first, buffers)
        yield
    finally:
        _copy(before, buffers)


@torch.no_grad()
def _copy(values: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
    for name, buffer in buffers.items():
        buffer.copy_(values[name])


def _digest(buffers: Mapping[str, Tensor]) -> Any:
    digest = hashlib.sha256()
    for buffer in buffers.values():
        digest.update(buffer.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.digest()
