"""Finding mislabelled pictures with a head that was trained with several sub-centres a class.

The clean pictures of a person gather around one sub-centre, strangers among them around the others. So the sub-centre
that most pictures of a class are nearest to is taken for the person, and what is far from it is dropped; then an
ordinary head is trained on the rest.

Source: Deng et al., "Sub-center ArcFace: Boosting Face Recognition by Large-scale Noisy Web Faces", ECCV 2020,
section 3.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError

_IMAGES_AT_ONCE = 4096
DROPPED = -1
"""The label of a picture that is dropped."""


@dataclass(frozen=True)
class CleanedLabels:
    """Which pictures stay, and what their classes are called now.

    :ivar kept: (n,) bool.
    :ivar labels: (n,) int64, numbered anew without gaps; -1 for pictures that are dropped.
    :ivar classes: (m,) int64: the old number of each new class, ascending. Classes without a picture have gone.
    :ivar dominant: (C,) int64: each old class' dominant sub-centre; -1 for one without a picture.
    """

    kept: Tensor
    labels: Tensor
    classes: Tensor
    dominant: Tensor


def clean_labels(
    embeddings: Tensor, labels: Tensor, centres: Tensor, sub_centres: int, *, degrees: float = 75.0
) -> CleanedLabels:
    """Drop the pictures that are too far from the dominant sub-centre of their class.

    Costs a product with the own class' sub-centres for each picture. Needs memory for some thousand pictures at once.

    :param embeddings: (n, d), of any length.
    :param labels: (n,) integers in 0..C-1.
    :param centres: (C * sub_centres, d), row ``class * sub_centres + sub``, as ``PartialFC.weight`` of one rank has it.
    :param sub_centres: at least 1.
    :param degrees: a picture stays if the angle to the dominant sub-centre is *below* this.
    :raises ArgumentValueError: sizes or labels do not fit, or the angle is not in 0..180.
    :raises ArgumentTypeError: labels are no integers.
    """
    classes = _checked(embeddings, labels, centres, sub_centres)
    return clean_by_cosines(
        own_cosines(embeddings, labels, centres, sub_centres), labels.to(centres.device), classes, degrees=degrees
    )


def own_cosines(embeddings: Tensor, labels: Tensor, centres: Tensor, sub_centres: int) -> Tensor:
    """The cosines of the angles between pictures and the sub-centres of their own classes: (n, sub_centres).

    They are all that :func:`clean_by_cosines` needs of a picture, and much smaller than its embedding. Arguments and
    errors as those of :func:`clean_labels`; the result is on the device of the centres, in their dtype.
    """
    classes = _checked(embeddings, labels, centres, sub_centres)
    labels = labels.long()
    table = centres.view(classes, sub_centres, -1)
    cosines = torch.empty((len(labels), sub_centres), dtype=centres.dtype, device=centres.device)
    for start in range(0, len(labels), _IMAGES_AT_ONCE):
        here = slice(start, start + _IMAGES_AT_ONCE)
        own = torch.nn.functional.normalize(table[labels[here]], dim=2, eps=1e-12)
        unit = torch.nn.functional.normalize(embeddings[here].to(own.dtype), dim=1, eps=1e-12)
        cosines[here] = (own @ unit.unsqueeze(2)).squeeze(2)
    return cosines


def clean_by_cosines(cosines: Tensor, labels: Tensor, classes: int, *, degrees: float = 75.0) -> CleanedLabels:
    """As :func:`clean_labels`, with what :func:`own_cosines` has found.

    :param cosines: (n, sub_centres).
    :param classes: C.
    :raises ArgumentValueError: the angle is not in 0..180.
    """
    if not 0 < degrees <= 180:
        raise ArgumentValueError(f"The angle is {degrees!r} degrees.", advice="Give more than 0 and at most 180.")
    labels = labels.long()
    sub_centres = cosines.shape[1]
    # argmax takes the smallest of equals only by its documentation's silence; so equals are told apart here.
    places = torch.arange(sub_centres, device=cosines.device)
    nearest = _first_largest(cosines, places)
    used = torch.zeros((classes, sub_centres), dtype=torch.int64, device=cosines.device)
    used.index_put_((labels, nearest), torch.ones_like(labels), accumulate=True)
    dominant = _first_largest(used, places)
    to_dominant = cosines.gather(1, dominant[labels].unsqueeze(1)).squeeze(1)
    kept = to_dominant > math.cos(math.radians(degrees))
    old, compact = torch.unique(labels[kept], return_inverse=True)
    renumbered = torch.full_like(labels, DROPPED)
    renumbered[kept] = compact
    dominant = dominant.masked_fill(used.sum(dim=1) == 0, -1)
    return CleanedLabels(kept, renumbered, old, dominant)


def _first_largest(table: Tensor, places: Tensor) -> Tensor:
    """The position of the largest of each line, of equal ones the first."""
    largest = table.amax(dim=1, keepdim=True)
    return torch.where(table == largest, places, len(places) - 1).amin(dim=1)


def _checked(embeddings: Tensor, labels: Tensor, centres: Tensor, sub_centres: int) -> int:
    if labels.dtype.is_floating_point or labels.dtype == torch.bool:
        raise ArgumentTypeError("The labels are no integers.", advice="Convert them with .long().")
    fits = centres.ndim == 2 and sub_centres >= 1 and len(centres) % sub_centres == 0
    if not fits or embeddings.ndim != 2 or embeddings.shape[1:] != centres.shape[1:]:
        raise ArgumentValueError(
            f"Embeddings of shape {tuple(embeddings.shape)} do not fit centres of shape {tuple(centres.shape)} with "
            f"{sub_centres} sub-centres a class.",
            advice="Give (n, d), (classes * sub_centres, d), and the number of sub-centres the head was trained with.",
        )
    classes = len(centres) // sub_centres
    if labels.shape != embeddings.shape[:1] or (
        len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes
    ):
        raise ArgumentValueError(
            f"There are {len(embeddings)} embeddings; their labels have shape {tuple(labels.shape)} or are not all in "
            f"0 to {classes - 1}.",
            advice="Give one class number for each embedding.",
        )
    return classes
