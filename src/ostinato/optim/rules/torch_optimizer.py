"""Any optimizer of ``torch.optim`` in the place of one of Ostinato's own."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError, ContractError
from ostinato.optim.nearest_names import did_you_mean
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules.blocks import Job, computing_dtype
from ostinato.optim.rules.optimizer import Gradient, Optimizer, State
from ostinato.optim.rules.settings import Index, keywords_of
from ostinato.optim.rules.step import Step

TorchClass = type[torch.optim.Optimizer]

TORCH = "torch"
"""The name of the state that torch keeps for a weight."""


class TorchOptimizer(Optimizer):
    """Updates weights by an optimizer of torch, with the same calls as :class:`Optimizer`.

    Gradients are rescaled and clipped first; torch's own decay comes after, coupled or not as the class has it. Rate
    and decay are multiplied for each weight (``lr_mult``, ``wd_mult``) as parameter groups would. Given a class, every
    updater has states of its own, so replicas work. Given an optimizer that is at work already, the options of its
    groups are read at every update, so that torch's schedules act on it, and its state is used and kept up to date.

    :param optimizer: a class of ``torch.optim``, or an optimizer.
    :param arguments: for a class, its own arguments under torch's names (``lr``, ``betas``, ``weight_decay`` …) beside
        the common ones of :class:`Optimizer`; ``learning_rate`` and ``wd`` are the same as ``lr`` and
        ``weight_decay``. For an optimizer, the common ones alone.
    :raises ContractError: arguments exclude each other.
    :raises ArgumentTypeError: a keyword is unknown, or ``optimizer`` is neither.
    :raises ArgumentValueError: the class needs a closure.
    """

    name = "torch"
    cut = "tensors"  # torch promises no more

    def __init__(self, optimizer: TorchClass | torch.optim.Optimizer, **arguments: Any) -> None:
        common = {name: arguments.pop(name) for name in keywords_of(Optimizer) & arguments.keys()}
        if isinstance(optimizer, torch.optim.Optimizer):
            if arguments or {"learning_rate", "wd"} & common.keys():
                named = [*arguments, *({"learning_rate", "wd"} & common.keys())]
                raise ContractError(
                    f"The optimizer is made already, and {', '.join(sorted(named))} would have no effect on it.",
                    advice="Configure the optimizer itself, or hand over its class.",
                )
            self._instance: torch.optim.Optimizer | None = optimizer
            self.optimizer_class: TorchClass = type(optimizer)
            arguments = {}
        elif isinstance(optimizer, type) and issubclass(optimizer, torch.optim.Optimizer):
            self._instance = None
            self.optimizer_class = optimizer
            for ours, torchs in (("learning_rate", "lr"), ("wd", "weight_decay")):
                if torchs in arguments and ours in common:
                    raise ContractError(f"{ours} and {torchs} are the same, and both are given.")
                if torchs in arguments:
                    common[ours] = arguments.pop(torchs)
        else:
            raise ArgumentTypeError(
                f"{optimizer!r} is neither an optimizer of torch.optim nor a class of them.",
                advice="Give for example torch.optim.AdamW, or an object of it.",
            )
        if issubclass(self.optimizer_class, torch.optim.LBFGS):
            raise ArgumentValueError(
                "LBFGS computes the loss several times per update, which an optimizer that is given gradients cannot.",
                advice="Call its step with a closure in a loop of your own.",
            )
        self.torch_arguments: dict[str, Any] = arguments
        self._has_decay = "weight_decay" in (defaults := self._default_options())
        common.setdefault("wd", defaults.get("weight_decay", 0.0))
        if "lr_scheduler" not in common:
            common.setdefault("learning_rate", float(defaults.get("lr", self.default_learning_rate)))
        super().__init__(**common)
        if self.wd and not self._has_decay:
            raise ArgumentTypeError(
                f"torch.optim.{self.optimizer_class.__name__} knows no weight decay, and wd is {self.wd}.",
                advice="Leave wd out.",
            )
        self.name = f"torch.{self.optimizer_class.__name__.lower()}"

    def _default_options(self) -> dict[str, Any]:
        if self._instance is not None:
            return self._instance.param_groups[0]
        try:
            some = [torch.zeros((1, 1))]  # a matrix, because some classes take nothing else
            return self.optimizer_class(some, **self.torch_arguments).defaults
        except (TypeError, ValueError, LookupError, RuntimeError) as error:
            raise ArgumentTypeError(
                f"torch.optim.{self.optimizer_class.__name__} does not take these arguments: {error}.",
                advice="Use torch's names for its own arguments.",
            ) from error

    # --- rates --------------------------------------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """The rate of the last update, before multipliers. Of an optimizer at work, that of its first group."""
        if self._instance is not None and self.lr_scheduler is None:
            return float(self._instance.param_groups[0]["lr"])
        return super().learning_rate

    def set_learning_rate(self, rate: float) -> None:
        super().set_learning_rate(rate)
        if self._instance is not None:
            for group in self._instance.param_groups:
                group["lr"] = rate

    def _group_of(self, weight: Tensor) -> dict[str, Any]:
        """The group that a weight belongs to in the optimizer that was handed over."""
        assert self._instance is not None
        groups = self._instance.param_groups
        for group in groups:
            if any(parameter is weight for parameter in group["params"]):
                return group
        if len(groups) == 1:
            return groups[0]
        raise ArgumentValueError(
            f"A weight of shape {tuple(weight.shape)} is in none of the {len(groups)} groups of the optimizer.",
            advice="Hand over the optimizer's class when weights are replicas or slices of its parameters.",
        )

    # --- state --------------------------------------------------------------------------------------------------

    def create_state(self, index: Index, weight: Tensor) -> State:
        state = super().create_state(index, weight)
        groups = [] if self._instance is None else self._instance.param_groups
        owned = any(weight is parameter for group in groups for parameter in group["params"])
        # Torch fills the dict at the first step. That of an optimizer at work is shared with it.
        state[TORCH] = self._instance.state[weight] if owned and self._instance is not None else {}
        return state

    def adopt_state(self, index: Index, weight: Tensor, state: State) -> State:
        adopted = super().adopt_state(index, weight, {**state, TORCH: {}})
        adopted[TORCH] = self.create_state(index, weight)[TORCH]
        for name, value in state.get(TORCH, {}).items():
            if isinstance(value, Tensor) and not _belongs_to(value, weight):
                raise ArgumentValueError(
                    f"The state {name!r} of weight {self.label(index)} has shape {tuple(value.shape)}, and the weight "
                    f"has {tuple(weight.shape)}.",
                    advice="The state was saved for other weights.",
                    index=index,
                    state=name,
                )
            if isinstance(value, Tensor) and value.ndim:
                dtype = computing_dtype(weight.dtype)
                like = torch.empty_like(weight, dtype=dtype, requires_grad=False)
                value = like.copy_(value) if value.shape == weight.shape else value.to(weight.device, dtype)
            adopted[TORCH][name] = value
        return adopted

    # --- updating -----------------------------------------------------------------------------------------------

    def _check(self, index: Index, weight: Tensor, gradient: Gradient, state: State) -> None:
        super()._check(index, weight, gradient, state)
        if self._instance is not None:
            self._group_of(weight)
        if issubclass(self.optimizer_class, torch.optim.SparseAdam) and not isinstance(gradient, RowSparse):
            raise ArgumentValueError(
                f"The gradient of weight {self.label(index)} is dense, and SparseAdam takes row-sparse ones only.",
                advice="Use torch.nn.Embedding(sparse=True), or another optimizer for this weight.",
                index=index,
            )

    def _kind(self, index: Index, state: State, count: int) -> Hashable:
        return self._multiplier(index, "lr_mult", self.lr_mult), self._multiplier(index, "wd_mult", self.wd_mult)

    def _update_dense(self, jobs: list[Job], step: Step) -> None:
        dtype = computing_dtype(jobs[0].weight.dtype)
        self._run(jobs, step.bare_list([job.gradient.to(dtype) for job in jobs]), step)

    def _update_rows(self, job: Job, gradient: RowSparse, step: Step) -> None:
        if not issubclass(self.optimizer_class, torch.optim.SparseAdam):
            super()._update_rows(job, gradient, step)
            return
        values = step.bare(gradient.values.to(computing_dtype(job.weight.dtype)))
        self._run([job], [RowSparse(gradient.indices, values, gradient.shape).to_coo()], step)

    def _run(self, jobs: list[Job], gradients: list[Tensor], step: Step) -> None:
        """Let torch update stand-ins that share the weights' memory and have the gradients that it should see."""
        dtype = computing_dtype(jobs[0].weight.dtype)
        targets = [job.target.detach().to(dtype) for job in jobs]
        groups: dict[int, dict[str, Any]] = {}
        for job, target, gradient in zip(jobs, targets, gradients, strict=True):
            target.grad = gradient
            options = None if self._instance is None else self._group_of(job.weight)
            groups.setdefault(id(options), {**(options or {}), "params": []})["params"].append(target)
        for group in groups.values():
            self._multiply(group, step)
        engine = self.optimizer_class(list(groups.values()), **self.torch_arguments)
        for job, target in zip(jobs, targets, strict=True):
            engine.state[target] = job.state[TORCH]
        engine.step()
        if self._instance is not None:
            # What torch's own step would leave behind: its schedules warn where they find no step before theirs.
            vars(self._instance)["_opt_called"] = True
        for job, target in zip(jobs, targets, strict=True):
            if target.dtype != job.target.dtype:
                job.target.copy_(target)
            if job.target is not job.weight:
                job.weight.copy_(job.target)

    def _multiply(self, group: dict[str, Any], step: Step) -> None:
        rate_multiplier, decay_multiplier = step.kind
        live = self._instance is not None
        group["lr"] = group["lr"] * rate_multiplier if live and self.lr_scheduler is None else step.rate
        if live and "weight_decay" in group:
            group["weight_decay"] = group["weight_decay"] * decay_multiplier
        elif self._has_decay:
            group["weight_decay"] = step.decay

    # --- as data ------------------------------------------------------------------------------------------------

    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), **self.torch_arguments}

    def _made_of(self, arguments: Mapping[str, Any]) -> Optimizer:
        return type(self)(self.optimizer_class, **arguments)

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self._instance is not None:
            state["groups"] = [
                {name: value for name, value in group.items() if name != "params"}
                for group in self._instance.param_groups
            ]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        instance, saved_groups = self._instance, state.get("groups", [])
        if instance is not None and saved_groups and len(saved_groups) != len(instance.param_groups):
            raise ArgumentValueError(
                f"The state was saved by an optimizer with {len(saved_groups)} parameter groups, and this one has "
                f"{len(instance.param_groups)}.",
                advice="Build the optimizer with the groups it had.",
                saved=len(saved_groups),
                found=len(instance.param_groups),
            )
        super().load_state_dict(state)
        self._instance = instance
        if instance is not None:
            for group, saved in zip(instance.param_groups, saved_groups, strict=False):  # none from a class
                group.update(saved)


def _belongs_to(value: Tensor, weight: Tensor) -> bool:
    """True if a state could be this weight's: of its shape, or a summary along some of its dimensions."""
    return value.ndim == 0 or (
        value.ndim == weight.ndim
        and all(mine in (1, other) for mine, other in zip(value.shape, weight.shape, strict=True))
    )


def torch_class(name: str) -> TorchClass:
    """Find a class of ``torch.optim`` by ``"torch."`` and its name, whatever its case.

    :raises ArgumentValueError: there is no such class.
    """
    classes = {
        f"torch.{each.__name__}".lower(): each
        for each in vars(torch.optim).values()
        if isinstance(each, type) and issubclass(each, torch.optim.Optimizer) and each is not torch.optim.Optimizer
    }
    found = classes.get(name.lower())
    if found is None:
        raise ArgumentValueError(
            f"torch has no optimizer called {name!r}.", advice=did_you_mean(name, classes), optimizer=name
        )
    return found
