"""Several copies of a model in one process, and a batch cut into a share for each."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.optim.argument_checks import require_flag

_ATTRIBUTES = ("lr_mult", "wd_mult", "grad_req", "grad_stype")


def replicate(module: nn.Module, devices: Sequence[torch.device | str]) -> list[nn.Module]:
    """Make one copy of a model for each device; the first is the model itself, moved.

    :param devices: at least one; a device may be named again, which makes several copies on it.
    """
    if not isinstance(module, nn.Module):
        raise ArgumentTypeError(f"A model is copied, and this is {type(module).__name__}.", advice="Give an nn.Module.")
    devices = _checked_devices(devices)
    copies = [module, *(copy.deepcopy(module) for _ in devices[1:])]
    # Attributes of a parameter do not travel with deepcopy.
    for other in copies[1:]:
        for source, target in zip(module.parameters(), other.parameters(), strict=True):
            for attribute in _ATTRIBUTES:
                if hasattr(source, attribute):
                    setattr(target, attribute, getattr(source, attribute))
    return [replica.to(device) for replica, device in zip(copies, devices, strict=True)]


def replica_parameters(replicas: Sequence[nn.Module]) -> dict[str, list[Parameter]]:
    """Give the parameters of :func:`replicate`'s models by name, one for each replica: what a trainer takes."""
    if isinstance(replicas, nn.Module) or not isinstance(replicas, Sequence) or not replicas:
        raise ArgumentTypeError(
            f"The copies of a model are needed, and this is {type(replicas).__name__}.",
            advice="Give what replicate() returned, or [model].",
        )
    for module in replicas:
        if not isinstance(module, nn.Module):
            raise ArgumentTypeError(
                f"One of the models is {type(module).__name__}.", advice="Give what replicate() returned."
            )
    collected: dict[str, list[Parameter]] = {name: [parameter] for name, parameter in replicas[0].named_parameters()}
    for module in replicas[1:]:
        for name, parameter in module.named_parameters():
            if name not in collected:
                raise ArgumentValueError(
                    f"Only some of the models have a parameter {name!r}.", advice="Make them with replicate()."
                )
            collected[name].append(parameter)
    return collected


def split_data(data: Any, num_slice: int, batch_axis: int = 0, even_split: bool = True) -> list[Tensor]:
    """Cut a batch into shares, as views.

    :param data: a tensor, or what ``torch.as_tensor`` takes.
    :param num_slice: number of shares, at least 1.
    :param batch_axis: the dimension that counts samples.
    :param even_split: insist on equal shares; otherwise the first ones get one sample more.
    :raises ArgumentValueError: there are fewer samples than shares, equal shares are not possible, or there is no such
        dimension.
    """
    tensor = _as_batch(data)
    for name, number in (("num_slice", num_slice), ("batch_axis", batch_axis)):
        if isinstance(number, bool) or not isinstance(number, int):
            raise ArgumentTypeError(f"{name} is a whole number, not {number!r}.", advice="Give a whole number.")
    require_flag("even_split", even_split)
    if not -tensor.ndim <= batch_axis < tensor.ndim:
        raise ArgumentValueError(
            f"The batch has the shape {tuple(tensor.shape)}, and batch_axis is {batch_axis}.",
            advice="Name the dimension that counts samples.",
        )
    size = tensor.shape[batch_axis]
    if not 1 <= num_slice <= size:
        raise ArgumentValueError(
            f"{size} samples cannot be cut into {num_slice} shares.", advice="Use a larger batch or fewer devices."
        )
    if even_split and size % num_slice:
        raise ArgumentValueError(
            f"{size} samples cannot be cut into {num_slice} equal shares.",
            advice=f"Use a batch size that is a multiple of {num_slice}, or even_split=False.",
            size=size,
            num_slice=num_slice,
        )
    small, larger = divmod(size, num_slice)
    return list(tensor.split([small + 1] * larger + [small] * (num_slice - larger), dim=batch_axis))


def split_and_load(
    data: Any, devices: Sequence[torch.device | str], batch_axis: int = 0, even_split: bool = True
) -> list[Tensor]:
    """Cut a batch into one share for each device, and move them there. A single device gets the whole batch.

    :raises ArgumentValueError: see :func:`split_data`.
    """
    devices = _checked_devices(devices)
    if len(devices) == 1:
        return [_as_batch(data).to(devices[0])]
    shares = split_data(data, len(devices), batch_axis, even_split)
    return [share.to(device) for share, device in zip(shares, devices, strict=True)]


def checked_device(device: Any) -> torch.device:
    """A device.

    :raises ArgumentValueError: there is no such kind of device.
    """
    try:
        if isinstance(device, (str, torch.device)):
            return torch.device(device)
    except RuntimeError:
        pass
    raise ArgumentValueError(f"There is no device {device!r}.", advice="Write 'cpu' or 'cuda:0', say.", device=device)


def _checked_devices(devices: Any) -> list[torch.device]:
    if isinstance(devices, (str, torch.device)) or not isinstance(devices, Sequence):
        raise ArgumentTypeError(
            f"devices is {devices!r}, and a list of devices is needed.", advice=f"Write [{str(devices)!r}], say."
        )
    if not devices:
        raise ArgumentValueError("There is no device in the list.", advice="Give at least one, such as 'cpu'.")
    return [checked_device(device) for device in devices]


def _as_batch(data: Any) -> Tensor:
    try:
        return torch.as_tensor(data)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentTypeError(
            f"A batch is a tensor or an array, and {type(data).__name__} is none: {error}.", advice="Give a tensor."
        ) from error
