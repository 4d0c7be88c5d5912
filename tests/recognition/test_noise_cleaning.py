"""Finding mislabelled pictures with sub-centres."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.recognition import noise_cleaning
from ostinato.recognition.noise_cleaning import clean_labels


def at(*degrees: float) -> Tensor:
    angles = torch.tensor(degrees, dtype=torch.float64) * math.pi / 180
    return torch.stack([angles.cos(), angles.sin()], dim=1)


# Class 0: most pictures near its second sub-centre (0 degrees), a stranger near the first (90).
# Class 1: one picture, class 2: none, class 3: two sub-centres used equally often.
CENTRES = at(90, 0, 45, 200, 10, 20, 0, 180)
PICTURES = 3.0 * at(1, -5, 74, 88, 44, -2, 179)
LABELS = torch.tensor([0, 0, 0, 0, 1, 3, 3])


def test_pictures_far_from_the_dominant_sub_centre_are_dropped(monkeypatch) -> None:
    for at_once in (4096, 2):
        monkeypatch.setattr(noise_cleaning, "_IMAGES_AT_ONCE", at_once)
        cleaned = clean_labels(PICTURES, LABELS, CENTRES, 2)
        assert cleaned.dominant.tolist() == [0, 0, -1, 0]  # class 0: two and two, so the smaller one


def test_the_most_used_sub_centre_counts_and_labels_close_up() -> None:
    pictures = torch.cat([PICTURES, at(3)])
    labels = torch.cat([LABELS, torch.tensor([0])])
    cleaned = clean_labels(pictures, labels, CENTRES, 2)
    assert cleaned.dominant.tolist() == [1, 0, -1, 0]
    assert cleaned.kept.tolist() == [True, True, True, False, True, True, False, True]
    assert cleaned.classes.tolist() == [0, 1, 3]
    assert cleaned.labels.tolist() == [0, 0, 0, -1, 1, 2, -1, 0]
    strict = clean_labels(pictures, labels, CENTRES, 2, degrees=2.0)
    assert strict.kept.tolist() == [True, False, False, False, True, False, False, False]
    assert strict.labels.tolist() == [0, -1, -1, -1, 1, -1, -1, -1]


def test_a_plain_head_and_no_pictures() -> None:
    cleaned = clean_labels(at(0, 80), torch.tensor([0, 0]), at(0), 1)
    assert cleaned.kept.tolist() == [True, False]
    nothing = clean_labels(torch.empty(0, 2), torch.empty(0, dtype=torch.int64), CENTRES, 2)
    assert nothing.dominant.tolist() == [-1] * 4
    assert len(nothing.labels) == len(nothing.classes) == 0


def test_an_outside_implementation_drops_the_same_pictures() -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    generator = torch.Generator().manual_seed(0)
    classes, width = 20, 6
    pictures = torch.randn(400, width, generator=generator)
    labels = torch.randint(classes, (400,), generator=generator)
    theirs = losses.SubCenterArcFaceLoss(num_classes=classes, embedding_size=width, sub_centers=3)
    outliers, dominant = theirs.get_outliers(pictures, labels, threshold=75, return_dominant_centers=True)
    cleaned = clean_labels(pictures, labels, theirs.W.detach().t().contiguous(), 3)
    assert torch.nonzero(~cleaned.kept).reshape(-1).tolist() == sorted(outliers.tolist())
    own = theirs.W.detach().t().view(classes, 3, width)[torch.arange(classes), cleaned.dominant]
    torch.testing.assert_close(own, dominant.t() if dominant.shape[0] == width else dominant)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((PICTURES, LABELS.double(), CENTRES, 2), ArgumentTypeError),
        ((PICTURES, LABELS, CENTRES, 3), ArgumentValueError),
        ((PICTURES[:, :1], LABELS, CENTRES, 2), ArgumentValueError),
        ((PICTURES, LABELS + 1, CENTRES, 2), ArgumentValueError),
        ((PICTURES, LABELS[:2], CENTRES, 2), ArgumentValueError),
    ],
)
def test_what_does_not_fit_is_refused(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        clean_labels(*arguments)
    with pytest.raises(ArgumentValueError, match="degrees"):
        clean_labels(PICTURES, LABELS, CENTRES, 2, degrees=0.0)
