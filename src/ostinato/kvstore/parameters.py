"""Parameters as a trainer sees them: a name, one copy for each replica, multipliers, and whether backward was there.

Plain ``nn.Parameter`` objects are what users give. What Gluon keeps on its own parameter class is kept here as
attributes of theirs, so it can be set in either place and follows the parameter through trainers and models:

``lr_mult``, ``wd_mult``
    factors of the learning rate and of the weight decay, 1 where they are not set;
``grad_req``
    ``"add"`` (torch's own way, and the default: every backward adds, the user clears), ``"write"`` (Gluon's: every
    backward overwrites) or ``"null"`` (not trained; also what ``requires_grad=False`` means);
``grad_stype``
    ``"row_sparse"`` announces that gradients name their rows, as those of ``Embedding(sparse=True)`` do.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.optim.argument_checks import require_finite, require_text
from ostinato.optim.row_sparse_gradient import RowSparse

GradReq = Literal["write", "add", "null"]


class ParameterHandle:
    """One parameter of a trainer, with its copies on the devices of this process.

    :param name: unique within a trainer; optimizer state is saved under it.
    :param replicas: one parameter for each device, of equal shape and dtype. The first one gives the initial value.
    :raises ArgumentValueError: there is no replica, or they differ in shape or dtype.
    """

    stype = "default"
    """``"row_sparse"`` for :class:`ostinato.kvstore.tables.TableParameter`, whose rows live on the store."""

    def __init__(self, name: str, replicas: Sequence[Parameter]) -> None:
        self.name = require_text("The name of a parameter", name)
        if not isinstance(replicas, (list, tuple)) or not all(isinstance(one, Tensor) for one in replicas):
            raise ArgumentTypeError(
                f"The replicas of {name!r} are a list of parameters, not {type(replicas).__name__}.",
                advice="Write [parameter].",
            )
        self.replicas = list(replicas)
        if not self.replicas:
            raise ArgumentValueError(f"The parameter {name!r} has no replica.", advice="Give one for each device.")
        self.index = -1
        """Position in the trainer, and key in its store; -1 before it belongs to one."""
        self.grown: list[bool] = [False] * len(self.replicas)
        """For each replica: backward has written its gradient since the last update."""
        self.is_reduced = False
        """The gradients of all replicas are the sum already, and no backward pass came after."""
        self._late = [is_lazy(replica) or not replica.requires_grad for replica in self.replicas]
        self._hooks: dict[tuple[str, int], RemovableHandle] = {}
        weakref.finalize(self, _remove, self._hooks).atexit = False
        if not self.is_deferred:
            self._check_alike()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self.replicas)} replicas)"

    # --- what the user may set ----------------------------------------------------------------------------------

    @property
    def lr_mult(self) -> float:
        """Factor of the learning rate; read at every update."""
        return self._factor("lr_mult", getattr(self.replicas[0], "lr_mult", 1.0))

    @lr_mult.setter
    def lr_mult(self, value: float) -> None:
        self._set("lr_mult", self._factor("lr_mult", value))

    @property
    def wd_mult(self) -> float:
        """Factor of the weight decay; read at every update."""
        return self._factor("wd_mult", getattr(self.replicas[0], "wd_mult", 1.0))

    @wd_mult.setter
    def wd_mult(self, value: float) -> None:
        self._set("wd_mult", self._factor("wd_mult", value))

    @property
    def grad_req(self) -> GradReq:
        """What backward does with the gradient: ``"write"``, ``"add"`` or ``"null"``."""
        if not self.replicas[0].requires_grad:
            return "null"
        return cast(GradReq, getattr(self.replicas[0], "grad_req", "add"))

    @grad_req.setter
    def grad_req(self, value: GradReq) -> None:
        if value not in ("write", "add", "null"):
            raise ArgumentValueError(
                f"grad_req of {self.name!r} is to be {value!r}.", advice="Use 'write', 'add' or 'null'.", value=value
            )
        self._set("grad_req", value)
        for replica in self.replicas:
            replica.requires_grad_(value != "null")
            if value == "null":
                replica.grad = None
        self.watch()

    @property
    def grad_stype(self) -> str:
        """``"row_sparse"`` when gradients name their rows, as far as that can be seen now; else ``"default"``."""
        announced = getattr(self.replicas[0], "grad_stype", None)
        if announced is not None:
            return str(announced)
        seen = any(r.grad is not None and r.grad.layout == torch.sparse_coo for r in self.replicas)
        return "row_sparse" if seen else "default"

    def _factor(self, attribute: str, value: Any) -> float:
        return require_finite(f"{attribute} of {self.name!r}", value)

    def _set(self, attribute: str, value: object) -> None:
        for replica in self.replicas:
            setattr(replica, attribute, value)

    # --- shape and place ----------------------------------------------------------------------------------------

    @property
    def is_deferred(self) -> bool:
        """True while the shape is unknown: a lazy module that has not run yet."""
        return any(is_lazy(replica) for replica in self.replicas)

    @property
    def is_trained(self) -> bool:
        """False for ``grad_req`` null."""
        return self.grad_req != "null"

    @property
    def devices(self) -> list[torch.device]:
        """The device of each replica."""
        return [replica.device for replica in self.replicas]

    @property
    def shape(self) -> torch.Size:
        """The shape; asking a deferred parameter raises."""
        return self.replicas[0].shape

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weight."""
        return self.replicas[0].dtype

    def numel(self) -> int:
        """Elements; 0 while deferred."""
        return 0 if self.is_deferred else self.replicas[0].numel()

    def weights(self) -> list[Tensor]:
        """The values of the replicas, to be written to; changes are seen by autograd's version check."""
        return [replica.detach() for replica in self.replicas]

    def data(self) -> Tensor:
        """The value of the first replica."""
        return self.replicas[0].detach()

    def set_data(self, value: Tensor) -> None:
        """Replace the value of all replicas. A trainer notices at its next step, and keeps the optimizer state.

        :param value: of the parameter's shape; any dtype and device.
        :raises ArgumentValueError: the shape is another one.
        """
        self._check_shape(value)
        with torch.no_grad():
            for replica in self.replicas:
                replica.copy_(value)

    def _check_shape(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(
                f"The new value of {self.name!r} is a tensor, not {type(value).__name__}.",
                advice="Use torch.as_tensor().",
            )
        if tuple(value.shape) != tuple(self.shape):
            raise ArgumentValueError(
                f"{self.name!r} has the shape {tuple(self.shape)}, and the new value has {tuple(value.shape)}.",
                advice="Give a value of the parameter's shape.",
            )

    def list_row_sparse_data(self, row_ids: Tensor) -> list[Any]:
        """See :meth:`row_sparse_data`."""
        return [self.row_sparse_data(row_ids)]

    def row_sparse_data(self, row_ids: Tensor) -> Any:
        """Only tables on a store have rows to pull.

        :raises StateError: always, here.
        """
        raise StateError(
            f"{self.name!r} is a dense parameter; its rows are all here.", advice="Read it with data(), or index it."
        )

    def _check_alike(self) -> None:
        kinds = {(tuple(replica.shape), replica.dtype) for replica in self.replicas}
        if len(kinds) > 1:
            raise ArgumentValueError(
                f"The replicas of {self.name!r} differ: {', '.join(f'{s} {d}' for s, d in sorted(kinds, key=str))}.",
                advice="Make them with ostinato.kvstore.replicate(module, devices).",
            )

    # --- gradients ----------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Hook backward, as far as the parameter is there and trained. May be repeated."""
        overwrites = self.grad_req == "write"
        if len(self._hooks) == len(self.replicas) * (1 + overwrites):
            return
        for number, replica in enumerate(self.replicas):
            if is_lazy(replica) or not replica.requires_grad:
                continue
            if self._late[number]:
                # It took its shape, or was unfrozen, before the gradient that is there was written: too early to be
                # hooked. A gradient that was there when the handle was made is somebody else's.
                self._late[number] = False
                self.grown[number] = replica.grad is not None
                self._check_alike()
            if ("grown", number) not in self._hooks:
                grown = _Grown(weakref.ref(self), number)
                self._hooks["grown", number] = replica.register_post_accumulate_grad_hook(grown)
            if overwrites and ("write", number) not in self._hooks:
                self._hooks["write", number] = replica.register_hook(_Overwrite(weakref.ref(self), number))

    def unwatch(self) -> None:
        """Take the hooks off again."""
        _remove(self._hooks)

    def mark_fresh(self) -> None:
        """Say that the gradients were written by hand, without a backward pass."""
        self.grown = [replica.grad is not None for replica in self.replicas]
        self.is_reduced = False

    def mark_reduced(self) -> None:
        """Say that the gradients of all replicas are the sum over replicas and workers."""
        self.grown = [True] * len(self.replicas)
        self.is_reduced = True

    @property
    def is_fresh(self) -> bool:
        """True when some replica has a gradient that no update has used."""
        return any(grown and r.grad is not None for grown, r in zip(self.grown, self.replicas, strict=True))

    def clear_fresh(self) -> None:
        """An update has used the gradients."""
        self.grown = [False] * len(self.replicas)
        self.is_reduced = False

    def gradients(self, *, fill: bool) -> list[Tensor | RowSparse]:
        """The gradients of the replicas, as they stand in their buffers.

        A replica that did not run backward since the last update contributes zeros, whatever its buffer holds.

        :param fill: give every replica a buffer of its own and zero the old ones, so that the sum can be written there;
            otherwise no buffer is touched.
        """
        sparse = self.grad_stype == "row_sparse"
        given: list[Tensor | RowSparse] = []
        for replica, grown in zip(self.replicas, self.grown, strict=True):
            grad = replica.grad
            if grad is not None and grown:
                given.append(grad)
                continue
            zeros: Tensor | RowSparse
            if sparse:
                zeros = RowSparse.empty(tuple(replica.shape), dtype=replica.dtype, device=replica.device)
            else:
                zeros = torch.zeros_like(replica, requires_grad=False)
            if fill:
                # Written into the buffer where there is one: somebody may hold on to it.
                dense = zeros.to_coo() if isinstance(zeros, RowSparse) else zeros
                if grad is None:
                    replica.grad = grad = dense
                else:
                    grad.copy_(dense)
                zeros = grad
            given.append(zeros)
        return given

    def reduced_gradient(self, replica: int) -> Tensor | RowSparse:
        """What the optimizer of a replica takes, after the sum was written to the buffers."""
        grad = self.replicas[replica].grad
        assert grad is not None, "a parameter without gradients is not updated"
        return RowSparse.from_coo(grad) if grad.layout == torch.sparse_coo else grad.detach()

    def scale_gradients(self, factor: float) -> None:
        """Multiply the gradients of all replicas."""
        with torch.no_grad():
            for replica in self.replicas:
                if replica.grad is not None:
                    replica.grad.mul_(factor)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all replicas."""
        for replica in self.replicas:
            if set_to_none:
                replica.grad = None
            elif replica.grad is not None:
                replica.grad = torch.zeros_like(replica.grad)


def _remove(hooks: dict[tuple[str, int], RemovableHandle]) -> None:
    for hook in hooks.values():
        hook.remove()
    hooks.clear()


class _Grown:
    """After backward wrote the gradient. Holds the handle weakly: a parameter outlives its trainers."""

    def __init__(self, handle: weakref.ref[ParameterHandle], number: int) -> None:
        self._handle, self._number = handle, number

    def __call__(self, _parameter: Tensor) -> None:
        handle = self._handle()
        if handle is not None:
            handle.grown[self._number] = True
            handle.is_reduced = False


class _Overwrite:
    """Before backward adds to the gradient: with ``grad_req`` write there is nothing to add to."""

    def __init__(self, handle: weakref.ref[ParameterHandle], number: int) -> None:
        self._handle, self._number = handle, number

    def __call__(self, _grad: Tensor) -> None:
        handle = self._handle()
        if handle is not None and handle.grad_req == "write":
            handle.replicas[self._number].grad = None


def some(names: Sequence[str]) -> str:
    """The first of many names, for a message."""
    shown = ", ".join(repr(name) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
