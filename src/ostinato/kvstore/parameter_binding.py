"""From what a user gives as parameters to numbered handles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.nn import Parameter
from torch.nn.parameter import is_lazy

from ostinato.errors import ArgumentValueError, ContractError, StateError
from ostinato.kvstore.parameters import ParameterHandle

ParameterLike: TypeAlias = ParameterHandle | Parameter | Sequence[Parameter]
"""What stands for one parameter: a handle, a parameter, or its replicas."""

Parameters: TypeAlias = Mapping[str, Any] | list[Any] | tuple[Any, ...]
"""A mapping by name, or a list in an order that is the same on every rank. An element is a :data:`ParameterLike`, in a
list also a pair of a name and one."""


def bind_parameters(params: Any) -> list[ParameterHandle]:
    """Turn what a user gives into numbered handles.

    A mapping is ordered by its keys as plain text, so that every rank numbers alike; a list keeps its order. A
    parameter that appears again (tied layers) is dropped, and the numbers run over what is left.

    :raises ArgumentValueError: the container or an element is of a wrong kind, or there is no parameter.
    :raises ContractError: the parameters are not on the same list of devices.
    :raises StateError: a parameter has no value (the device ``meta``).
    """
    handles: list[ParameterHandle] = []
    first: dict[int, ParameterHandle] = {}
    for name, element in _named(params):
        handle = element if isinstance(element, ParameterHandle) else _handle(name, element)
        earlier = [first[id(replica)] for replica in handle.replicas if id(replica) in first]
        if earlier:
            if len(earlier) < len(handle.replicas) or len({id(h) for h in earlier}) > 1:
                raise ArgumentValueError(
                    f"{handle.name!r} shares some of its replicas with {earlier[0].name!r}, and not all of them.",
                    advice="Tie the layers in every replica.",
                )
            continue
        for replica in handle.replicas:
            first[id(replica)] = handle
        handles.append(handle)
    if not handles:
        raise ArgumentValueError(
            "There are no parameters to train.", advice="Give the parameters of a model, such as named_parameters()."
        )
    names = [handle.name for handle in handles]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ArgumentValueError(
            f"Two parameters have the name {twice[0]!r}.", advice="Optimizer state is kept by name; name them apart."
        )
    _check_places(handles)
    for index, handle in enumerate(handles):
        handle.index = index
    return handles


def _named(params: Any) -> list[tuple[str, Any]]:
    if isinstance(params, Mapping):
        return [(str(key), params[key]) for key in sorted(params, key=str)]
    if not isinstance(params, (list, tuple)):
        raise ArgumentValueError(
            f"Parameters come as a dict, a list or a tuple, not as {type(params).__name__}.",
            advice="Give dict(model.named_parameters()).",
        )
    named: list[tuple[str, Any]] = []
    for position, element in enumerate(params):
        if isinstance(element, tuple) and len(element) == 2 and isinstance(element[0], str):
            named.append(element)
        else:
            named.append((str(position), element))
    return named


def _handle(name: str, element: Any) -> ParameterHandle:
    replicas = list(element) if isinstance(element, (list, tuple)) else [element]
    wrong = [item for item in replicas if not isinstance(item, Parameter) and not is_lazy(item)]
    if wrong:
        raise ArgumentValueError(
            f"{name!r} is {type(wrong[0]).__name__}, not a parameter.",
            advice="Give nn.Parameter objects, lists of their replicas, or ParameterHandle objects.",
            name=name,
        )
    return ParameterHandle(name, replicas)


def _check_places(handles: Sequence[ParameterHandle]) -> None:
    for handle in handles:
        if any(device.type == "meta" for device in handle.devices):
            raise StateError(
                f"The parameter {handle.name!r} has no value: it is on the device 'meta'.",
                advice="Initialise it first (to_empty and reset_parameters, or load_state_dict with assign=True).",
            )
    expected = handles[0].devices
    for handle in handles[1:]:
        if handle.devices != expected:
            raise ContractError(
                f"{handle.name!r} is on {_listed(handle.devices)}, and {handles[0].name!r} is on {_listed(expected)}.",
                advice="All parameters of a trainer share one list of devices, in one order.",
            )


def _listed(devices: Sequence[torch.device]) -> str:
    return ", ".join(str(device) for device in devices)
