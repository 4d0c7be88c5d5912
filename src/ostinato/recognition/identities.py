"""Which person has which class number: kept with a run, so that people can be added later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ostinato.data.file_names import shown_name
from ostinato.errors import BadInputError
from ostinato.loop import Extension, TrainerView
from ostinato.recognition.data import Source
from ostinato.recognition.data.image_folder import FolderSource

STATE_FORMAT = 1
_SHOWN = 5


class Relabelled:
    """A source whose classes have other numbers.

    :param source: the pictures.
    :param numbers: (classes of the source,) the new number of each of its classes.
    :param classes: classes of the run.
    """

    def __init__(self, source: Source, numbers: npt.NDArray[np.int64], classes: int) -> None:
        self._source = source
        self._numbers = numbers
        self.labels = numbers[source.labels]
        self.classes = classes
        self.bad = source.bad

    def __len__(self) -> int:
        return len(self._source)

    def read(self, index: int) -> tuple[npt.NDArray[np.uint8], int]:
        """See :meth:`Source.read`."""
        image, label = self._source.read(index)
        return image, int(self._numbers[label])

    def place(self, index: int) -> str:
        """See :meth:`Source.place`."""
        return self._source.place(index)

    def close(self) -> None:
        """See :meth:`Source.close`."""
        self._source.close()


class IdentityMemory(Extension):
    """Keeps the names of a run's people, in the order of their class numbers, with its state.

    :param classes: how many there are.
    :param names: their names; None where the data has none.
    """

    trigger = None
    name = "identities"

    def __init__(self, classes: int, names: Sequence[str] | None) -> None:
        self.classes = classes
        self.names = None if names is None else tuple(names)
        self._packed = pack_names(self.names)

    def __call__(self, trainer: TrainerView) -> None:
        """Nothing: it remembers."""

    def state_dict(self) -> dict[str, Any]:
        """Number and names."""
        return {"format": STATE_FORMAT, "classes": self.classes, "names": self._packed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing: who builds the training has compared the saved names with the data before."""


def pack_names(names: Sequence[str] | None) -> Tensor | None:
    """Names as one tensor of bytes: a million of them would be a heavy piece of text in a state."""
    if names is None:
        return None
    text = "/".join(names).encode("utf-8", "surrogateescape")  # no folder's name holds a slash
    return torch.frombuffer(bytearray(text or b"/"), dtype=torch.uint8)


def unpack_names(packed: Any) -> tuple[str, ...] | None:
    """The way back of :func:`pack_names`."""
    if packed is None:
        return None
    text = torch.as_tensor(packed, dtype=torch.uint8).numpy().tobytes().decode("utf-8", "surrogateescape")
    return tuple(text.split("/"))


def names_of(source: Source) -> tuple[str, ...] | None:
    """The names of the people in a source, by class number; None where it has none."""
    return tuple(person.name for person in source.found.identities) if isinstance(source, FolderSource) else None


def as_known(source: Source, names: Sequence[str] | None, known: int, known_names: Sequence[str] | None) -> Source:
    """The source with the class numbers of a run: everybody keeps theirs, and new people come after.

    Record files have no names; there class numbers stand in the records, and new people have the highest.

    :param names: of the people in the source; None where it has none.
    :param known: classes of the run.
    :param known_names: of its people.
    :raises BadInputError: people of the run are not there any more.
    """
    if names is None or known_names is None:
        if source.classes < known:
            raise BadInputError(
                f"The run has {known:,} classes, and the data has {source.classes:,}: people are missing.",
                advice="Give the data with all of them, to which you may add others; or start a new run with another "
                "-m, and take the network along with --load-weights.",
                known=known,
                found=source.classes,
            )
        return source
    numbers = {name: number for number, name in enumerate(known_names)}
    missing = sorted(numbers.keys() - set(names))
    if missing:
        shown = ", ".join(shown_name(name) for name in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
        raise BadInputError(
            f"The run was trained with {known:,} people, and {len(missing):,} of them are not in the data any more: "
            f"{shown}{more}.",
            advice="Give the data with all of them under the same names, to which you may add others; or start a new "
            "run with another -m, and take the network along with --load-weights.",
            known=known,
            found=len(names),
            missing=missing,
        )
    for name in names:
        numbers.setdefault(name, len(numbers))
    table = np.array([numbers[name] for name in names], dtype=np.int64)
    if np.array_equal(table, np.arange(len(table))):
        return source
    return Relabelled(source, table, len(numbers))


def names_in_order(names: Sequence[str] | None, known_names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names by class number, after :func:`as_known`."""
    if names is None:
        return None if known_names is None else tuple(known_names)
    if known_names is None:
        return tuple(names)
    known = set(known_names)
    return (*known_names, *(name for name in names if name not in known))
