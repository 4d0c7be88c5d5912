"""Templates: several pictures of one person taken together, as IJB-B and IJB-C are judged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ostinato.errors import ArgumentValueError
from ostinato.recognition.verification.result import check_finite, finite_rows, unit_rows

FAR_TARGETS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""The rates of false accepts that these sets are reported at; see :meth:`.roc_curve.RocCurve.at`."""

_BLOCK = 65536  # pairs scored at once: 256 MiB of embeddings with 512 numbers


def template_embeddings(
    embeddings: ArrayLike,
    embeddings_flipped: ArrayLike,
    templates: Sequence[int] | NDArray[np.integer],
    media: Sequence[int] | NDArray[np.integer],
    detector_scores: Sequence[float] | NDArray[np.floating] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The embeddings of templates.

    Plain and mirrored embedding of a picture are added and not normalised: their length says how good the picture is.
    They are multiplied by the detector's score. The pictures of one medium of a template (frames of one film) count as
    their mean; a template is the sum over its media, brought to length 1.

    :param embeddings: (N, d) raw embeddings of the plain pictures.
    :param embeddings_flipped: (N, d) of the same pictures mirrored.
    :param templates: (N,) the template that a picture belongs to.
    :param media: (N,) the medium that it comes from.
    :param detector_scores: (N,) how sure the face detector was; None for 1 each.
    :returns: the numbers of the templates (T,), rising, and their embeddings (T, d). A sum of zero stays zero.
    :raises ArgumentValueError: the lengths differ.
    :raises NonFiniteError: an embedding is not finite.
    """
    rows = np.asarray(embeddings, np.float64) + np.asarray(embeddings_flipped, np.float64)
    template, medium = np.asarray(templates, np.int64), np.asarray(media, np.int64)
    weights = np.ones(len(rows)) if detector_scores is None else np.asarray(detector_scores, np.float64)
    if rows.ndim != 2 or not len(rows) == len(template) == len(medium) == len(weights) or not len(rows):
        raise ArgumentValueError(
            f"There are {len(rows)} embeddings, {len(template)} templates, {len(medium)} media and {len(weights)} "
            "scores.",
            advice="Give one of each for every picture, and at least one picture.",
        )
    check_finite(finite_rows(rows))
    rows *= weights[:, None]
    order = np.lexsort((medium, template))
    rows, template, medium = rows[order], template[order], medium[order]
    first_of_medium = np.flatnonzero(np.append(True, (np.diff(template) != 0) | (np.diff(medium) != 0)))
    counts = np.diff(np.append(first_of_medium, len(rows)))
    means = np.add.reduceat(rows, first_of_medium, axis=0) / counts[:, None]
    owner = template[first_of_medium]
    first_of_template = np.flatnonzero(np.append(True, np.diff(owner) != 0))
    sums = np.add.reduceat(means, first_of_template, axis=0)
    return owner[first_of_template], unit_rows(sums)[0]


def pair_scores(
    ids: NDArray[np.int64], embeddings: NDArray[np.float64], pairs: NDArray[np.integer]
) -> NDArray[np.float64]:
    """The cosines of pairs of templates.

    :param ids: (T,) numbers of the templates, rising; and ``embeddings`` (T, d) of length 1.
    :param pairs: (P, 2) numbers of templates.
    :returns: (P,)
    :raises ArgumentValueError: a pair names a template that has no pictures.
    """
    places = np.searchsorted(ids, pairs)
    places[places == len(ids)] = 0
    unknown = ids[places] != pairs
    if unknown.any():
        raise ArgumentValueError(
            f"Template {int(pairs[unknown][0])} of a pair has no pictures.",
            advice="The lists of pictures and of pairs do not belong together.",
            template=int(pairs[unknown][0]),
        )
    scores = np.empty(len(pairs))
    for start in range(0, len(pairs), _BLOCK):
        block = places[start : start + _BLOCK]
        scores[start : start + _BLOCK] = np.einsum("pd,pd->p", embeddings[block[:, 0]], embeddings[block[:, 1]])
    return scores
