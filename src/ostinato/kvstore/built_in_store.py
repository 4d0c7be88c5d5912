"""What the stores of this package have in common: names, keys, checks of what they are given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from ostinato.dist import Group
from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.kvstore.keys import KeyKind, arranged, key_list
from ostinato.kvstore.store import Capability, Key, Outputs, Store, Value, Values
from ostinato.kvstore.summing import as_value, write_value
from ostinato.optim.argument_checks import require_mapping
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Optimizer, create
from ostinato.runs.row_cut import RowCutTable


class BuiltInStore(Store):
    """A store whose keys have a shape, and values of other shapes are refused.

    :param type: the name it was created by.
    """

    built_in = True

    def __init__(self, type: str) -> None:
        if not isinstance(type, str):
            raise ArgumentTypeError(f"The type of a store is its name, not {type!r}.", advice="Write 'dist_sync', say.")
        self._type = type
        self._kind = KeyKind()
        self._labels: dict[Key, str] = {}

    @property
    def type(self) -> str:
        """See :attr:`Store.type`."""
        return self._type

    @property
    def rank(self) -> int:
        """See :attr:`Store.rank`."""
        return self._seat()[0]

    @property
    def num_workers(self) -> int:
        """See :attr:`Store.num_workers`."""
        return self._seat()[1]

    def _seat(self) -> tuple[int, int]:
        """Rank and number of workers."""
        return 0, 1

    def is_capable(self, capability: Capability) -> bool:
        """Everything.

        :raises ArgumentValueError: there is no such capability.
        """
        if capability not in get_args(Capability):
            raise ArgumentValueError(
                f"There is no capability {capability!r}.",
                advice="Ask for optimizer, row_sparse, compression or live_optimizer.",
            )
        return True

    def name_keys(self, names: Mapping[Key, str]) -> None:
        """See :meth:`Store.name_keys`."""
        self._labels.update(require_mapping("The names of keys", names, "Write {0: 'weight'}."))

    def agree(self, flags: Sequence[bool]) -> list[bool]:
        """See :meth:`Store.agree`."""
        if not isinstance(flags, (list, tuple)) or not all(isinstance(flag, bool) for flag in flags):
            raise ArgumentTypeError(f"Flags are a list of True and False, not {flags!r}.", advice="Write [True].")
        return self._any(flags)

    def _any(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag, whether any worker has set it."""
        return list(flags)

    def broadcast(
        self, key: Key | Sequence[Key], value: Values, out: Outputs, priority: int | Sequence[int] = 0
    ) -> None:
        """See :meth:`Store.broadcast`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def row_sparse_pull(
        self, key: Key | Sequence[Key], row_ids: Tensor | Sequence[Tensor], priority: int | Sequence[int] = 0
    ) -> RowSparse | list[RowSparse]:
        """See :meth:`Store.row_sparse_pull`. A collective for tables that are cut over the ranks: every worker asks
        equally often, perhaps for no rows."""
        if isinstance(key, (list, tuple)):
            asked = self._known(key, row_ids)
            return [self._rows(one, ids) for one, many in asked.items() for ids in many]
        self._known(key, [])
        if isinstance(row_ids, Tensor):
            return self._rows(key, row_ids)  # pyrefly: ignore
        if not isinstance(row_ids, (list, tuple)):
            raise ArgumentTypeError(
                f"Row numbers are a tensor of integers, or a list of such, not {type(row_ids).__name__}.",
                advice="Use torch.as_tensor().",
            )
        return [self._rows(key, ids) for ids in row_ids]  # pyrefly: ignore

    # --- for the stores ------------------------------------------------------------------------------------------

    @abstractmethod
    def _has(self, key: Key) -> bool:
        """Whether the key was initialised."""

    @abstractmethod
    def _shape(self, key: Key) -> torch.Size:
        """The shape of what a key holds."""

    @abstractmethod
    def _rows(self, key: Key, row_ids: Tensor) -> RowSparse:
        """See :meth:`row_sparse_pull`."""

    def _label(self, key: Key) -> str:
        """How a message calls a key: by the name of its parameter, where that is known."""
        return repr(self._labels[key]) if key in self._labels else f"the key {key!r}"

    def _known(self, key: Key | Sequence[Key], values: Any) -> dict[Key, list[Any]]:
        """Values by key, for keys that were initialised."""
        keys = key_list(key)
        self._kind.check(keys)
        for one in keys:
            if not self._has(one):
                raise ArgumentValueError(
                    f"The key {one!r} was never initialised.", advice="Call init() first, on all workers.", key=one
                )
        return arranged(key, values)

    def _firsts(self, key: Key | Sequence[Key], value: Values) -> dict[Key, Value]:
        """The values that new keys begin with."""
        values = arranged(key, value)
        self._kind.check(list(values))
        for one, given in values.items():
            if self._has(one):
                raise ArgumentValueError(f"The key {one!r} was initialised before.", advice="Use set_value().", key=one)
            if len(given) != 1:
                raise ArgumentValueError(
                    f"The key {one!r} is initialised with {len(given)} values instead of one.",
                    advice="Give one value for each key.",
                )
        firsts = {one: as_value(given[0]) for one, given in values.items()}
        return {one: first.checked() if isinstance(first, RowSparse) else first for one, first in firsts.items()}

    def _check_shape(self, key: Key, value: Value, verb: str = "was given") -> None:
        expected = self._shape(key)
        if tuple(value.shape) != tuple(expected):
            raise ArgumentValueError(
                f"{_sentence(self._label(key))} holds {tuple(expected)}, and a value of shape {tuple(value.shape)} "
                f"{verb}.",
                advice="The shape of a key cannot change.",
                key=key,
            )

    def _check_tensor(self, key: Key, value: Any) -> None:
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(
                f"The new value of {self._label(key)} is a tensor, not {type(value).__name__}.",
                advice="Use torch.as_tensor().",
            )
        self._check_shape(key, value)

    def _check_rows(self, key: Key, rows: Any) -> None:
        if not isinstance(rows, (Tensor, RowCutTable)):
            raise ArgumentTypeError(
                f"Rows of {self._label(key)} are loaded from a tensor or a saved table, not {type(rows).__name__}.",
                advice="Give what was loaded in the place of rows_in_parts().",
            )
        if tuple(rows.shape) != tuple(self._shape(key)):
            raise ArgumentValueError(
                f"{_sentence(self._label(key))} holds {tuple(self._shape(key))}, and a table of shape "
                f"{tuple(rows.shape)} was to be loaded.",
                advice="Load the table that was saved for it.",
            )

    def _write(self, key: Key, value: Value, outputs: Sequence[Tensor]) -> None:
        """Copy a value to outputs of its shape."""
        for output in outputs:
            if not isinstance(output, Tensor):
                raise ArgumentTypeError(
                    f"An output for {self._label(key)} is {type(output).__name__}, and tensors are written to.",
                    advice="Give torch.empty(...) of the key's shape.",
                )
            if tuple(output.shape) != tuple(value.shape):
                raise ArgumentValueError(
                    f"{_sentence(self._label(key))} holds {tuple(value.shape)}, and an output has the shape "
                    f"{tuple(output.shape)}.",
                    advice="Give an output of the key's shape.",
                    key=key,
                )
        with torch.no_grad():
            write_value(value, outputs)


def _sentence(label: str) -> str:
    return label[0].upper() + label[1:]


def checked_optimizer(optimizer: Any) -> Optimizer:
    """An optimizer that a store can apply; a name makes one with its defaults.

    :raises ArgumentTypeError: it is none.
    :raises ArgumentValueError: there is none of this name.
    """
    if isinstance(optimizer, str):
        return create(optimizer)
    if not isinstance(optimizer, Optimizer):
        raise ArgumentTypeError(
            f"A store's optimizer is one of ostinato.optim.rules, not {type(optimizer).__name__}.",
            advice="Give a name such as 'sgd', create('sgd', learning_rate=0.1), or TorchOptimizer(torch.optim.AdamW).",
        )
    return optimizer


def no_optimizer() -> StateError:
    """What a store says that is asked for states and has none."""
    return StateError("This store has no optimizer, so it has no states.", advice="Call set_optimizer() first.")


def no_compression() -> StateError:
    """What a store says that is given residuals and has no use for them."""
    return StateError(
        "There are residuals of gradient compression, and this store compresses nothing.",
        advice="Give compression_params as they were, or leave the residuals out.",
    )


def refuse_compression(label: str, value: Value) -> None:
    """Refuse what compression is not defined for.

    :param label: what messages call the value's key.
    :raises ArgumentTypeError: the value is row-sparse, or not float32.
    """
    if isinstance(value, RowSparse) or value.layout != torch.strided:
        raise ArgumentTypeError(
            f"The value of {label} is row-sparse, and gradient compression takes dense ones.",
            advice="Leave compression_params out, or make the gradient dense (sparse=False).",
        )
    if value.dtype != torch.float32:
        raise ArgumentTypeError(
            f"The value of {label} is {value.dtype}, and gradient compression takes float32.",
            advice="Leave compression_params out, or keep the weights in float32.",
        )


def checked_group(group: Any) -> Group | None:
    """A group of ranks, or None.

    :raises ArgumentTypeError: it is something else.
    """
    if group is not None and not all(hasattr(group, name) for name in ("rank", "size")):
        raise ArgumentTypeError(
            f"The group is {group.__class__.__name__}, which is no group of ranks.",
            advice="Give what ostinato.dist.open_group() returned, or None for the ranks of this process.",
        )
    return group


def check_residuals(residuals: Any) -> bool:
    """Whether there are residuals to load.

    :raises ArgumentTypeError: this is no list of states.
    """
    if not isinstance(residuals, Sequence) or isinstance(residuals, (str, bytes)):
        raise ArgumentTypeError(
            f"Residuals are a list of states, not {type(residuals).__name__}.", advice="Give what residuals() gave."
        )
    for state in residuals if isinstance(residuals, (list, tuple)) else ():
        require_mapping("The state of a worker's residuals", state, "Give what residuals() gave.")
    return len(residuals) > 0


def check_saved_states(states: Any) -> Mapping[str, Any]:
    """States of an optimizer on a store, to be loaded.

    :raises ArgumentTypeError: they are none.
    :raises ArgumentValueError: something is missing.
    """
    advice = "Give what save_optimizer_states() gave."
    require_mapping("The state of a store", states, advice)
    for part in ("states", "counts"):
        if not isinstance(states.get(part), Mapping):
            raise ArgumentValueError(f"The state of a store has no part {part!r}.", advice=advice, part=part)
    return states
