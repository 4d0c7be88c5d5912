"""Opening the group of a job."""

from __future__ import annotations

import math
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.dist.group import Alone
from ostinato.dist.placement import Placement, detect_placement
from ostinato.errors import ArgumentTypeError, ArgumentValueError, BadInputError, StateError

if TYPE_CHECKING:
    from ostinato.dist.torch_group import TorchGroup

BACKENDS = ("gloo", "nccl")


def open_group(
    *,
    backend: str | None = None,
    timeout: float = 600.0,
    placement: Placement | None = None,
    rendezvous: str | os.PathLike[str] | None = None,
) -> TorchGroup | Alone:
    """Meet the other ranks of this job. A collective: every rank calls it, once.

    ::

        with open_group() as group:
            trainer = Trainer(updater, (1000, "iteration"), group=group)
            trainer.run()

    Without a launcher, and in a world of one, this is :class:`~ostinato.dist.Alone`, and torch.distributed is not
    started. A group that the program has started itself with ``init_process_group`` is taken over and left open at
    the end. Left with an exception, the group aborts, so that the other ranks fail instead of waiting for this one.

    :param backend: ``"gloo"`` (processors) or ``"nccl"`` (CUDA devices; this process then takes the device of its
        local rank). By default what the machine has. Naming one starts torch.distributed even for a world of one.
    :param timeout: seconds after which a rank gives up waiting for the others, above 0.
    :param placement: the place of this process; by default what :func:`~ostinato.dist.detect_placement` finds.
    :param rendezvous: a file, not there yet, on a disk that all ranks share, to meet at instead of an address.
    :raises ArgumentTypeError: when the time-out is no number.
    :raises ArgumentValueError: for an unknown backend, or a time-out that is not above 0 and finite.
    :raises BadInputError: when the environment is half set, says no address, or this machine lacks the device.
    :raises StateError: when the other ranks did not come in time.
    """
    if backend is not None and backend not in BACKENDS:
        raise ArgumentValueError(
            f"The backend must be one of {', '.join(BACKENDS)}, not {backend!r}.",
            advice="Leave it out to take what the machine has.",
            backend=backend,
        )
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise ArgumentTypeError(f"The time-out must be a number of seconds, not {timeout!r}.", timeout=timeout)
    if not 0 < timeout < math.inf:
        raise ArgumentValueError(f"The time-out must be above 0 seconds and finite, not {timeout!r}.", timeout=timeout)
    found = placement if placement is not None else detect_placement()
    if backend is None and (found is None or found.size == 1) and not _torch_has_started():
        return Alone()
    import torch.distributed as distributed

    from ostinato.dist.torch_group import TorchGroup  # torch is heavy: only for those who need it

    if distributed.is_initialized():
        adopted = Placement(
            distributed.get_rank(), distributed.get_world_size(), found.local_rank if found else 0, "init_process_group"
        )
        control = distributed.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        store = distributed.distributed_c10d._get_default_store()
        return TorchGroup(adopted, control, store, timeout, owns_world=False)
    place = found if found is not None else Placement(0, 1, 0)
    device = _device(backend, place)
    store, keeps_store = _meet(place, timeout, rendezvous)
    try:
        distributed.init_process_group(
            "gloo" if device is None else "cpu:gloo,cuda:nccl",
            store=store,
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=timeout),
            device_id=device,
        )
        control = distributed.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
    except RuntimeError as error:
        raise _nobody_came(place, timeout, error) from None
    return TorchGroup(place, control, store, timeout, keeps_store=keeps_store)


def _torch_has_started() -> bool:
    """Whether this program has called ``init_process_group``; does not import torch to find out."""
    import sys

    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def _device(backend: str | None, place: Placement) -> Any:
    """The CUDA device of this process, made the current one; ``None`` for gloo."""
    import torch

    if backend == "gloo" or (backend is None and not torch.cuda.is_available()):
        return None
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if place.local_rank >= devices:
        raise BadInputError(
            f"Local rank {place.local_rank} needs a CUDA device of its own, and this machine has {devices}.",
            advice="Start at most as many ranks on a machine as it has devices, or pass backend='gloo'.",
            local_rank=place.local_rank,
            devices=devices,
        )
    device = torch.device("cuda", place.local_rank)
    torch.cuda.set_device(device)
    return device


def _meet(place: Placement, timeout: float, rendezvous: str | os.PathLike[str] | None) -> tuple[Any, bool]:
    """The store at which the ranks meet, and whether it lives in this process."""
    import torch.distributed as distributed

    limit = timedelta(seconds=timeout)
    if rendezvous is not None:
        path = Path(rendezvous)
        if not path.parent.is_dir():
            raise BadInputError(
                f"The ranks cannot meet at {path}: there is no folder {path.parent}.",
                advice="Name a file in a folder that all ranks see.",
                path=str(path),
            )
        store = distributed.FileStore(str(path.absolute()), place.size)
        store.set_timeout(limit)
        return store, False
    if place.size == 1:
        return distributed.HashStore(), False
    if place.address is None:
        raise BadInputError(
            f"{place.launcher} has started {place.size} ranks and does not say where they meet.",
            advice="Set MASTER_ADDR (the machine of rank 0) and MASTER_PORT (a free port on it) for all ranks, or pass "
            "rendezvous=FILE on a disk that all of them share.",
            launcher=place.launcher,
            size=place.size,
        )
    # torchrun keeps the store itself; for the others rank 0 does.
    url = "env://" if place.launcher == "torchrun" else f"tcp://{place.address}"
    try:
        store, _, _ = next(distributed.rendezvous(url, place.rank, place.size, timeout=limit))
    except (RuntimeError, ValueError, OSError) as error:
        raise _nobody_came(place, timeout, error) from None
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return store, place.rank == 0 and not agent


def _nobody_came(place: Placement, timeout: float, error: BaseException) -> StateError:
    return StateError(
        f"Rank {place.rank} of {place.size} could not meet the others within {timeout:g} seconds: "
        f"{str(error).splitlines()[0] if str(error) else type(error).__name__}",
        advice="Were all ranks started, with the same address, and did none of them fail at once?",
        rank=place.rank,
        size=place.size,
    )
