"""What a head with so many classes will need of each rank, before it is started: memory and traffic.

The terms are those of :class:`~ostinato.recognition.PartialFC` as it is built; the tests hold them to what it allocates
and sends. The symbols are those of the documentation: C classes, d numbers in an embedding, K ranks, B samples of a
rank in a step, N = K * B, r the sampling rate, S the classes of a rank that take part in a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ostinato.errors import ArgumentValueError
from ostinato.recognition.class_partition import class_range

FLOAT = 4
LABEL = 8
STEPS_COUNT = 4
"""Bytes of each class' own count of steps, where there is one."""


@dataclass(frozen=True)
class HeadPlan:
    """The costs of one rank, the largest one: rank 0.

    :param classes: C.
    :param embedding_size: d.
    :param batch_size: B.
    :param ranks: K.
    :param sampling_rate: r.
    :param optimizer: of the centres.
    :param counts_steps: whether each class counts its steps: AdamW, or ``update="dense_lazy"``.
    :raises ArgumentValueError: a number is not positive, or the rate is not in 0..1.
    """

    classes: int
    embedding_size: int = 512
    batch_size: int = 128
    ranks: int = 1
    sampling_rate: float = 1.0
    optimizer: Literal["sgd", "adamw"] = "sgd"
    counts_steps: bool = False

    def __post_init__(self) -> None:
        for name in ("classes", "embedding_size", "batch_size", "ranks"):
            value = getattr(self, name)
            if value < 1:
                raise ArgumentValueError(f"{name} is {value:,}.", advice="Give 1 or more.", name=name, value=value)
        if not 0 <= self.sampling_rate <= 1:
            raise ArgumentValueError(
                f"The sampling rate is {self.sampling_rate!r}.",
                advice="Give a number from 0 (only the classes of the step's own samples) to 1 (all classes).",
                sampling_rate=self.sampling_rate,
            )

    # --- how much there is ------------------------------------------------------------------------------------------

    @property
    def samples(self) -> int:
        """N, samples of a step on all ranks together."""
        return self.batch_size * self.ranks

    @property
    def own_classes(self) -> int:
        """C_k, classes of the rank."""
        first, last = class_range(self.classes, 0, self.ranks)
        return last - first

    @property
    def positives(self) -> float:
        """Expected number of the rank's classes that have a sample in a step, if every class is as likely as the others
        and the samples are drawn one by one."""
        if self.classes == 1:
            return 1.0
        return -math.expm1(self.samples * math.log1p(-1.0 / self.classes)) * self.own_classes

    @property
    def taking_part(self) -> int:
        """S, classes of the rank that take part in a step: the sample, or the positives where these are more."""
        return max(int(self.sampling_rate * self.own_classes), math.ceil(self.positives))

    # --- memory, bytes ----------------------------------------------------------------------------------------------

    @property
    def centres(self) -> int:
        """Centres and the optimizer's tables; always there, and what a saved state holds of the rank."""
        tables = 3 if self.optimizer == "adamw" else 2
        counts = STEPS_COUNT if self.counts_steps or self.optimizer == "adamw" else 0
        return self.own_classes * (tables * FLOAT * self.embedding_size + counts)

    @property
    def logits(self) -> int:
        """The one table of a step that grows with its classes: logits, which become the gradient's slopes in place."""
        return FLOAT * self.samples * self.taking_part

    @property
    def features(self) -> int:
        """Embeddings of all ranks, their directions, these times the slopes' factor, and their gradient."""
        return 4 * FLOAT * self.samples * self.embedding_size

    @property
    def memory(self) -> int:
        """All of these. Blocks of rows of a fixed size, some MiB, come on top."""
        return self.centres + self.logits + self.features

    @property
    def dense_memory(self) -> int:
        """For comparison: an ordinary layer with all classes on the rank: weight, gradient, momentum, logits and their
        gradient."""
        return 3 * FLOAT * self.classes * self.embedding_size + 2 * FLOAT * self.batch_size * self.classes

    # --- work and traffic of a step ---------------------------------------------------------------------------------

    @property
    def operations(self) -> int:
        """Floating-point operations: forward, embeddings' gradient and centres' gradient, two for each product."""
        return 6 * self.samples * self.taking_part * self.embedding_size

    @property
    def sent(self) -> int:
        """Bytes sent with ring algorithms: embeddings, labels, largest logits, the two sums, embeddings' gradient."""
        others = self.ranks - 1
        embeddings = FLOAT * self.batch_size * self.embedding_size
        scalars = 3 * FLOAT * self.samples
        return others * (2 * embeddings + LABEL * self.batch_size) + 2 * others * scalars // self.ranks

    @property
    def dense_sent(self) -> int:
        """For comparison: bytes sent to add up the gradient of a layer that every rank has whole."""
        return 2 * (self.ranks - 1) * FLOAT * self.classes * self.embedding_size // self.ranks
