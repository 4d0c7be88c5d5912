"""Optimizer state by parameter name.

torch numbers the parameters of an optimizer, so that freezing one layer shifts the state of all that follow. Here each
parameter's state is kept under the parameter's name. Only state is kept: learning rate, decay and the like come from
the options of the run that goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from ostinato.errors import ArgumentValueError
from ostinato.optim.rules.blocks import HALF_PRECISION

FORMAT = 1

# What each optimizer must find for a parameter; anything less would fail in the middle of its next step.
_REQUIRED_KEYS: dict[str, frozenset[str]] = {
    "AdaBelief": frozenset({"step", "exp_avg", "exp_avg_var"}),
    "Adam": frozenset({"step", "exp_avg", "exp_avg_sq"}),
    "AdamW": frozenset({"step", "exp_avg", "exp_avg_sq"}),
    "Adamax": frozenset({"step", "exp_avg", "exp_inf"}),
    "Lion": frozenset({"exp_avg"}),
    "NAdam": frozenset({"step", "mu_product", "exp_avg", "exp_avg_sq"}),
    "RMSprop": frozenset({"step", "square_avg"}),
}
# What is one number for each parameter.
_SCALARS = frozenset({"step", "mu_product"})
_MAXIMUM = "max_exp_avg_sq"


@dataclass(frozen=True)
class OptimizerStateReport:
    """What became of a saved optimizer state.

    :param loaded: parameters that go on with their saved state.
    :param fresh: trained parameters that start without state, because there was none that fits.
    :param unused: names whose saved state was not taken: no trained parameter has the name, or the state does not fit.
    :param reasons: for names in ``fresh`` or ``unused`` where there is more to say: why.
    """

    loaded: tuple[str, ...]
    fresh: tuple[str, ...]
    unused: tuple[str, ...]
    reasons: Mapping[str, str]

    @property
    def is_exact(self) -> bool:
        """True when every trained parameter found its state and nothing was left over."""
        return not self.fresh and not self.unused

    def describe(self) -> str:
        """Say in one line per finding what is new and what is no longer used; empty when all fitted."""
        lines = []
        if self.fresh:
            lines.append(f"{len(self.fresh)} parameters start with fresh optimizer state: {_some(self.fresh)}")
        if self.unused:
            lines.append(f"{len(self.unused)} saved optimizer states are no longer used: {_some(self.unused)}")
        lines.extend(sorted({f"reason: {reason}" for reason in self.reasons.values()}))
        return "\n".join(lines)


def optimizer_state_by_name(optimizer: torch.optim.Optimizer, names: Iterable[tuple[str, Parameter]]) -> dict[str, Any]:
    """Give the optimizer's state as a tree of plain values and tensors, by parameter name.

    :param optimizer: any torch optimizer that keeps state per parameter.
    :param names: pairs of name and parameter, as ``model.named_parameters()`` gives them. May hold frozen parameters.
    :returns: ``{"format": 1, "optimizer": class name, "state": {parameter name: {key: tensor or number}}}``. The
        tensors are the living ones, not copies: copy them before the next step.
    :raises ArgumentValueError: the optimizer trains a parameter that ``names`` does not name.
    """
    named = {id(parameter): name for name, parameter in names}
    state: dict[str, dict[str, Any]] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = named.get(id(parameter))
            if name is None:
                raise ArgumentValueError(
                    f"The optimizer trains a parameter of shape {tuple(parameter.shape)} that has no name here.",
                    advice="Give the named parameters of every model that the optimizer trains.",
                )
            entry = optimizer.state.get(parameter)
            if entry:
                state[name] = {k: v.detach() if isinstance(v, Tensor) else v for k, v in entry.items()}
    return {"format": FORMAT, "optimizer": type(optimizer).__name__, "state": state}


def load_optimizer_state_by_name(
    optimizer: torch.optim.Optimizer, names: Iterable[tuple[str, Parameter]], state: Mapping[str, Any]
) -> OptimizerStateReport:
    """Give every trained parameter its saved state back, where there is one that fits.

    A parameter without fitting state starts fresh, and state without a parameter is passed over; both are reported,
    neither is an error. The state of another optimizer class fits nobody. Options in the parameter groups are not
    touched. Tensors are copied, in the memory layout and on the device of their parameter.

    :param optimizer: the optimizer, as built for this run.
    :param names: pairs of name and parameter, as for :func:`optimizer_state_by_name`.
    :param state: what :func:`optimizer_state_by_name` gave; arrays of numpy are accepted in place of tensors.
    :returns: what was loaded, what starts fresh and what was not used.
    :raises ArgumentValueError: ``state`` is of an unknown format. The optimizer is then as it was.
    """
    if state.get("format") != FORMAT:
        raise ArgumentValueError(
            f"This optimizer state has format {state.get('format')!r}, and {FORMAT} is the one that is known.",
            advice="It may come from a newer version of Ostinato.",
        )
    saved: Mapping[str, Mapping[str, Any]] = state["state"]
    reasons: dict[str, str] = {}
    if state["optimizer"] != type(optimizer).__name__:
        reason = f"it was saved by {state['optimizer']}, and this run uses {type(optimizer).__name__}"
        reasons = dict.fromkeys(saved, reason)
        saved = {}
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    required = _REQUIRED_KEYS.get(type(optimizer).__name__)
    loaded: list[str] = []
    fresh: list[str] = []
    restored: dict[Tensor, dict[str, Any]] = {}
    for name, parameter in names:
        group = groups.get(id(parameter))
        if group is None:
            continue
        entry = saved.get(name)
        problem = None if entry is None else _misfit(entry, parameter, required or frozenset())
        if entry is None or problem is not None:
            fresh.append(name)
            if problem is not None:
                reasons[name] = problem
            continue
        if required is not None:  # what another program kept besides, nobody would look at
            entry = {key: value for key, value in entry.items() if key in required or key == _MAXIMUM}
        restored[parameter] = _restore(entry, parameter, group)
        loaded.append(name)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state.pop(parameter, None)
    optimizer.state.update(restored)
    taken = set(loaded)
    unused = tuple(name for name in state["state"] if name not in taken)
    return OptimizerStateReport(tuple(loaded), tuple(fresh), unused, reasons)


def _misfit(entry: Mapping[str, Any], parameter: Parameter, required: frozenset[str]) -> str | None:
    if not isinstance(entry, Mapping):
        return "the saved state is no table"
    missing = sorted(required - entry.keys())
    if missing:
        return f"the saved state lacks {', '.join(missing)}"
    no_tensors = sorted(key for key in required if not isinstance(entry[key], (Tensor, np.ndarray)))
    if no_tensors:
        return f"{', '.join(no_tensors)} of the saved state should be tensors"
    for key, value in entry.items():
        shape, whole = tuple(getattr(value, "shape", ())), tuple(parameter.shape)
        if key in required:
            fits = shape == (() if key in _SCALARS else whole)
        else:
            fits = shape in ((), whole)
        if not fits:
            return f"the saved state has shape {shape}, the parameter has {whole}"
    return None


def _restore(entry: Mapping[str, Any], parameter: Parameter, group: Mapping[str, Any]) -> dict[str, Any]:
    restored: dict[str, Any] = {}
    for key, value in entry.items():
        if not hasattr(value, "shape"):
            restored[key] = value
            continue
        tensor = torch.as_tensor(value)
        if (tensor.ndim == 0 and parameter.ndim > 0) or key in _SCALARS:
            # Counters stay on the host unless the kernel itself reads them: moving them would make every step of the
            # plain implementations wait for the device.
            on_device = bool(group.get("fused") or group.get("capturable"))
            restored[key] = tensor.to(parameter.device if on_device else "cpu", copy=True)
        else:
            # The fused kernel walks parameter, gradient and moments side by side in memory, so the moments must have
            # the parameter's strides, whatever layout the file had. Where the parameter has 16 bits, its state may
            # have more, and keeps them.
            dtype = tensor.dtype if parameter.dtype in HALF_PRECISION else parameter.dtype
            restored[key] = torch.empty_like(parameter, dtype=dtype, requires_grad=False).copy_(tensor)
    if group.get("amsgrad"):
        # A state saved without maxima: the current second moment is the best lower bound of them.
        if "exp_avg_sq" in restored and _MAXIMUM not in restored:
            restored[_MAXIMUM] = restored["exp_avg_sq"].clone()
    else:
        restored.pop(_MAXIMUM, None)
    return restored


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
