"""The head of face recognition as one would write it down: all classes, one process, autograd. What the clever one is
compared with."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ostinato.recognition.margins import Margin, margin_logits


def plain_loss(
    embeddings: Tensor,
    weight: Tensor,
    labels: Tensor,
    margin: Margin,
    *,
    sub_centres: int = 1,
    rows: Tensor | None = None,
) -> Tensor:
    """The mean loss over the samples.

    :param weight: (C * sub_centres, d)
    :param rows: the classes that take part; by default all.
    """
    unit = torch.nn.functional.normalize(embeddings, dim=1, eps=1e-12)
    centres = torch.nn.functional.normalize(weight, dim=1, eps=1e-12)
    cosines = (unit @ centres.t()).view(len(unit), -1, sub_centres).amax(dim=2)
    if rows is not None:
        places = torch.full((cosines.shape[1],), -1)
        places[rows] = torch.arange(len(rows))
        cosines, labels = cosines[:, rows], places[labels]
    logits = margin_logits(cosines, labels, margin)
    own = logits.gather(1, labels.clamp_min(0).unsqueeze(1)).squeeze(1) * (labels >= 0)
    losses = torch.logsumexp(logits, dim=1) - own
    # The value is held at that of a probability of 1e-30, which is also that of a sample whose class takes no part; the
    # gradient is that of the softmax all the same.
    held = torch.where(labels >= 0, losses, losses.new_tensor(float("inf"))).clamp_max(-math.log(1e-30))
    return (losses + (held - losses).detach()).mean()
