"""Pairs verified by a model, cut over the ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ostinato.dist import Alone, Group
from ostinato.errors import OstinatoError
from ostinato.recognition.verification.embedding import BATCH_SIZE, embed_images
from ostinato.recognition.verification.folds import checked_folds
from ostinato.recognition.verification.pair_set import PairSet
from ostinato.recognition.verification.result import (
    FAR_TARGETS,
    PairMeasurements,
    VerificationResult,
    judge,
    measure,
)


@dataclass(frozen=True, eq=False)
class PairVerification:
    """The result of a set of pairs, and what it took.

    :param pictures: of the set.
    :param embedded: pictures embedded by all ranks together, each twice: plain and mirrored. One whose pairs are
        measured by several ranks is embedded by each of them.
    :param seconds: of the slowest rank, decoding included.
    """

    result: VerificationResult
    pictures: int
    embedded: int
    seconds: float


def verify_pairs(
    model: nn.Module,
    pairs: PairSet,
    *,
    batch_size: int = BATCH_SIZE,
    device: torch.device | str = "cpu",
    far_targets: Sequence[float] = FAR_TARGETS,
    group: Group | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PairVerification:
    """Embed the pictures of pairs and verify them. A collective where there are several ranks.

    :param pairs: the same on every rank. See :class:`PairShare` for the other arguments and for what is raised.
    """
    share = PairShare.of(pairs, group or Alone(), batch_size)
    return share.verify(model, device=device, far_targets=far_targets, progress=progress)


@dataclass(frozen=True, eq=False)
class PairShare:
    """One rank's part of a set of pairs. It holds the pictures of these pairs alone.

    Shares are cut between the batches of a single process, so that for pairs whose pictures are all different, as in a
    ``.bin`` file, every batch is one that a single process would have: the result is then the same to the last bit,
    where kernels are deterministic.

    :param own: the consecutive pairs that this rank measures; there may be none.
    :param same: (P,) of all pairs.
    :param pictures: how many all pairs have.
    """

    own: PairSet
    same: NDArray[np.bool_]
    pictures: int
    group: Group
    batch_size: int

    @classmethod
    def of(cls, pairs: PairSet, group: Group, batch_size: int = BATCH_SIZE) -> PairShare:
        """The share of this process.

        :param pairs: the same on every rank.
        :param batch_size: pictures in a batch, at least 1; the same on every rank.
        :raises BadInputError: fewer pairs than folds, or a fold without same or without different pairs.
        """
        checked_folds(pairs.same, pairs.folds)
        unit = max(1, batch_size // 2)
        units = -(-len(pairs) // unit)
        first, last = (min(units * rank // group.size * unit, len(pairs)) for rank in (group.rank, group.rank + 1))
        return cls(pairs.take(first, last), pairs.same, len(pairs.pictures), group, batch_size)

    def verify(
        self,
        model: nn.Module,
        *,
        device: torch.device | str = "cpu",
        far_targets: Sequence[float] = FAR_TARGETS,
        progress: Callable[[int, int], None] | None = None,
    ) -> PairVerification:
        """Measure the own pairs, and give every rank the result of all. A collective.

        What travels is five numbers a pair, never embeddings. Memory: the embeddings of the rank's own pictures.

        :param model: in evaluation mode, on ``device``; see
            :func:`~ostinato.recognition.verification.embedding.embed_images`.
        :param far_targets: rates of false accepts to tell true accepts at.
        :param progress: called with pictures done and all of this rank.
        :raises BadInputError: a picture cannot be used, on whichever rank.
        :raises NonFiniteError: an embedding is not finite; names the pictures.
        """
        begun = time.monotonic()
        mine: tuple[PairMeasurements, Mapping[int, str]] | OstinatoError
        try:
            mine = self._measure(model, device, progress)
        except OstinatoError as error:  # every rank has to hear of it, or the others would wait
            mine = error
        taken = time.monotonic() - begun
        parts: list[PairMeasurements] = []
        names: dict[int, str] = {}
        entries = 0
        gathered = self.group.gather((mine, len(self.own.pictures), taken))
        for part, _, _ in gathered:
            if isinstance(part, OstinatoError):
                raise part
            measured, unusual = part
            names.update({entries + place: name for place, name in unusual.items()})
            entries += len(measured.finite)
            parts.append(measured)
        result = judge(PairMeasurements.joined(parts), self.same, self.own.folds, far_targets, names)
        embedded, seconds = sum(count for _, count, _ in gathered), max(time for _, _, time in gathered)
        return PairVerification(result, self.pictures, embedded, seconds)

    def _measure(
        self, model: nn.Module, device: torch.device | str, progress: Callable[[int, int], None] | None
    ) -> tuple[PairMeasurements, Mapping[int, str]]:
        """What the own pairs measure, and the names of pictures (by place in pair order) whose embedding is not
        finite."""
        if not len(self.own):
            return measure(np.zeros((0, 1)), np.zeros((0, 1)), 0), {}
        embedded = embed_images(model, self.own.pictures, batch_size=self.batch_size, device=device, progress=progress)
        order = self.own.pairs.reshape(-1)
        measured = measure(embedded.plain[order], embedded.mirrored[order], len(self.own))
        wrong = np.flatnonzero(~measured.finite)
        return measured, {int(place): self.own.pictures[int(order[place])].name for place in wrong}
