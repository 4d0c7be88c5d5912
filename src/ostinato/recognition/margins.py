"""Margins: what makes a class harder to reach for its own samples than for all others.

With theta the angle between a sample and the centre of its class, the sample's logit for that class is

    scale * (cos(m1 * theta + m2) - m3)

and ``scale * cos(theta)`` for every other class. ArcFace is m2 alone, CosFace is m3 alone, SphereFace m1 alone; any
combination of the three is allowed here.

Sources: Deng et al., "ArcFace: Additive Angular Margin Loss for Deep Face Recognition", CVPR 2019, equations 3 and 4;
Wang et al., "CosFace: Large Margin Cosine Loss for Deep Face Recognition", CVPR 2018, equation 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError

GradientKind = Literal["exact", "straight_through"]
WrapKind = Literal["none", "easy", "linear"]

_GRADIENTS = ("exact", "straight_through")
_WRAPS = ("none", "easy", "linear")


@dataclass(frozen=True)
class Margin:
    """A margin, and the scale of the logits.

    :param scale: multiplies all logits; above 0.
    :param m1: multiplies the angle; above 0.
    :param m2: added to the angle, radians.
    :param m3: taken off the cosine.
    :param interclass_threshold: cosines *above* it, of classes that are not the sample's own, count as 0 and get no
        gradient: they may be mislabelled pictures of the same person. 0 switches this off; 0.4 is usual for noisy sets.
    :param gradient: of the logit of the own class with respect to its cosine. ``"exact"`` is the derivative of the
        formula, with the sine in its denominator held away from 0; ``"straight_through"`` takes the angular part as if
        it were the identity, as InsightFace does since December 2022.
    :param wrap: what replaces ``cos(m1 * theta + m2)`` where it would rise again or where there is little to gain.
        ``"none"``: nothing. ``"easy"``: the plain cosine where that is not above 0. ``"linear"``: where the angle with
        its margin is beyond pi, a line in the cosine that goes on falling: ``cos(theta) - m2 * sin(m2)``, and for an
        m1 other than 1 the line of slope 1 that meets the curve at pi.
    :raises ArgumentValueError: a value is not allowed.
    """

    scale: float = 64.0
    m1: float = 1.0
    m2: float = 0.5
    m3: float = 0.0
    interclass_threshold: float = 0.0
    gradient: GradientKind = "exact"
    wrap: WrapKind = "none"

    def __post_init__(self) -> None:
        for name in ("scale", "m1", "m2", "m3", "interclass_threshold"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
                raise ArgumentValueError(
                    f"The margin's {name} is {value!r}.", advice="Give a finite number.", name=name, value=value
                )
        for name in ("scale", "m1"):
            if getattr(self, name) <= 0:
                raise ArgumentValueError(
                    f"The margin's {name} is {getattr(self, name)!r}.",
                    advice="Give a number above 0.",
                    name=name,
                    value=getattr(self, name),
                )
        if not 0 <= self.interclass_threshold < 1:
            raise ArgumentValueError(
                f"The threshold of inter-class filtering is {self.interclass_threshold!r}.",
                advice="It is a cosine from 0 (no filtering) up to, not including, 1.",
                name="interclass_threshold",
                value=self.interclass_threshold,
            )
        for name, allowed in (("gradient", _GRADIENTS), ("wrap", _WRAPS)):
            if getattr(self, name) not in allowed:
                raise ArgumentValueError(
                    f"The margin's {name} is {getattr(self, name)!r}.",
                    advice=f"Use one of {', '.join(map(repr, allowed))}.",
                    name=name,
                    value=getattr(self, name),
                )

    @property
    def is_angular(self) -> bool:
        """Whether the angle itself is changed, so that arccosines have to be taken."""
        return self.m1 != 1.0 or self.m2 != 0.0

    def target(self, cosines: Tensor) -> tuple[Tensor, Tensor]:
        """The own classes' cosines with the margin, before the scale, and their derivatives.

        No gradient is recorded.

        :param cosines: any shape, floating, -1 to 1.
        :return: ``cos(m1 * theta + m2) - m3`` and its derivative with respect to ``cos(theta)``, of the same shape.
        """
        with torch.no_grad():
            if not self.is_angular:
                return cosines - self.m3, torch.ones_like(cosines)
            angle = self.m1 * torch.arccos(cosines) + self.m2
            value = torch.cos(angle)
            if self.gradient == "straight_through":
                slope = torch.ones_like(cosines)
            else:
                # At 0 and pi the sine below the line is 0, so the slope is taken one rounding step away from there.
                nearest = 1.0 - torch.finfo(cosines.dtype).eps
                held = torch.arccos(cosines.clamp(-nearest, nearest))
                slope = self.m1 * torch.sin(self.m1 * held + self.m2) / torch.sin(held)
            if self.wrap != "none":
                if self.wrap == "easy":
                    instead, other = cosines <= 0, cosines
                else:
                    instead, other = angle > math.pi, cosines - self._drop_past_pi()
                value = torch.where(instead, other, value)
                slope = torch.where(instead, torch.ones_like(slope), slope)
            return value - self.m3, slope

    def _drop_past_pi(self) -> float:
        if self.m1 == 1.0:
            return self.m2 * math.sin(self.m2)
        return 1.0 + math.cos((math.pi - self.m2) / self.m1)


def arcface(margin: float = 0.5, scale: float = 64.0, **others: Any) -> Margin:
    """ArcFace: ``scale * cos(theta + margin)``, the margin in radians.

    :param others: further fields of :class:`Margin`.
    """
    return Margin(scale=scale, m1=1.0, m2=margin, m3=0.0, **others)


def cosface(margin: float = 0.4, scale: float = 64.0, **others: Any) -> Margin:
    """CosFace: ``scale * (cos(theta) - margin)``.

    :param others: further fields of :class:`Margin`.
    """
    return Margin(scale=scale, m1=1.0, m2=0.0, m3=margin, **others)


def combined(m1: float = 1.0, m2: float = 0.3, m3: float = 0.2, scale: float = 64.0, **others: Any) -> Margin:
    """All three margins: ``scale * (cos(m1 * theta + m2) - m3)``.

    :param others: further fields of :class:`Margin`.
    """
    return Margin(scale=scale, m1=m1, m2=m2, m3=m3, **others)


def normalised_softmax(scale: float = 64.0, **others: Any) -> Margin:
    """No margin: ``scale * cos(theta)``.

    :param others: further fields of :class:`Margin`.
    """
    return Margin(scale=scale, m1=1.0, m2=0.0, m3=0.0, **others)


MARGINS: dict[str, Callable[..., Margin]] = {
    "arcface": arcface,
    "cosface": cosface,
    "combined": combined,
    "softmax": normalised_softmax,
}
"""Margins by the names that options use."""


def margin_logits(cosines: Tensor, labels: Tensor, margin: Margin) -> Tensor:
    """Logits from cosines, differentiable once: the plain form, which the head computes in a way of its own.

    :param cosines: (N, C) floating, -1 to 1 (values beyond, which rounding can give, are taken as -1 and 1).
    :param labels: (N,) integers in 0..C-1, or -1 for a sample of no class: no margin then, and the row is still scaled.
    :return: (N, C).
    :raises ArgumentTypeError: labels are no integers.
    """
    if labels.dtype.is_floating_point or labels.dtype == torch.bool:
        raise ArgumentTypeError(
            f"Labels are integers, and these are {str(labels.dtype).removeprefix('torch.')}.",
            advice="Convert them with .long().",
        )
    known = torch.nonzero(labels >= 0).reshape(-1)
    own = labels[known].long()
    logits = cosines.clamp(-1.0, 1.0)
    if margin.interclass_threshold > 0:
        filtered = logits > margin.interclass_threshold
        filtered[known, own] = False
        logits = logits.masked_fill(filtered, 0.0)
    target = logits[known, own]
    value, slope = margin.target(target.detach())
    # A line through the value with the slope as its derivative: at this point the two cannot be told apart.
    line = value + slope * (target - target.detach())
    return margin.scale * logits.index_put((known, own), line)
