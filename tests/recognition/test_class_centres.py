"""Updates of class centres: what those that take part get, and what becomes of the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.errors import ArgumentValueError, ContractError
from ostinato.recognition import class_centres
from ostinato.recognition.centre_rule import CentreRule
from ostinato.recognition.class_centres import ClassCentres
from ostinato.recognition.collected_gradient import CollectedGradient

CLASSES, WIDTH, SAMPLES = 23, 5, 4


@pytest.fixture(autouse=True)
def _blocks_of_three_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_centres, "_ELEMENTS_PER_CORE", 3 * WIDTH)


def centres_of(rule: CentreRule, sub_centres: int = 1, seed: int = 0) -> ClassCentres:
    centres = ClassCentres(10, 10 + CLASSES, WIDTH, rule, sub_centres=sub_centres, dtype=torch.float64)
    centres.weight.copy_(torch.randn(centres.weight.shape, generator=torch.Generator().manual_seed(seed)))
    return centres


def gradient_for(centres: ClassCentres, classes: list[int] | None, seed: int) -> CollectedGradient:
    """As a forward and a backward pass would leave it."""
    generator = torch.Generator().manual_seed(seed)
    number = CLASSES if classes is None else len(classes)
    chosen = None if classes is None else torch.tensor(classes, dtype=torch.int64)
    rows = centres.weight.view(CLASSES, -1, WIDTH)[slice(None) if chosen is None else chosen].reshape(-1, WIDTH)
    nearest = None
    if centres.sub_centres > 1:
        nearest = torch.randint(centres.sub_centres, (number, SAMPLES), generator=generator).to(torch.uint8)
    return CollectedGradient(
        chosen,
        torch.randn((number, SAMPLES), generator=generator, dtype=torch.float64),
        nearest,
        1.0 / rows.norm(dim=1),
        torch.randn((SAMPLES, WIDTH), generator=generator, dtype=torch.float64),
        torch.tensor(1.5, dtype=torch.float64),
    )


def dense(gradient: CollectedGradient, weight: Tensor, sub_centres: int) -> Tensor:
    """The same gradient, written down for all rows: that of ``sum(slopes * factor * unit rows . samples)``."""
    rows = weight.clone().requires_grad_()
    unit = torch.nn.functional.normalize(rows, dim=1).view(CLASSES, sub_centres, WIDTH)
    classes = torch.arange(CLASSES) if gradient.classes is None else gradient.classes
    cosines = unit[classes] @ gradient.samples.t()
    if gradient.nearest is None:
        cosines = cosines[:, 0]
    else:
        cosines = cosines.gather(1, gradient.nearest.long().unsqueeze(1)).squeeze(1)
    (gradient.factor * (gradient.slopes * cosines).sum()).backward()
    assert rows.grad is not None
    return rows.grad


ROWS = [[0, 3, 4, 22], [1], None, [0, 1, 2, 3, 4, 5, 6, 7], [22]]


@pytest.mark.parametrize("sub_centres", [1, 3])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("form", ["plain", "rate_inside"])
def test_dense_lazy_gives_the_results_of_a_dense_update(sub_centres: int, momentum: float, form: Any) -> None:
    centres = centres_of(CentreRule("sgd", "dense_lazy", momentum, 0.01, form), sub_centres)
    weight, buffer = centres.weight.clone(), torch.zeros_like(centres.weight)
    for number, rows in enumerate([*ROWS, [], *ROWS]):
        rate = 0.1 / (1 + number)
        chosen = None if rows is None else torch.tensor(rows, dtype=torch.int64)
        centres.bring_up_to_date(chosen)
        gradient = gradient_for(centres, rows, number)
        total = dense(gradient, weight, sub_centres) / 2.0 + 0.01 * weight
        buffer = momentum * buffer + (-rate * total if form == "rate_inside" else total)
        weight = weight + (buffer if form == "rate_inside" else -rate * buffer)
        centres.step([gradient], rate, 2.0)
    centres.bring_up_to_date()
    torch.testing.assert_close(centres.weight, weight, rtol=1e-12, atol=1e-12)
    if momentum:
        torch.testing.assert_close(centres.tables["momentum"], buffer, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sub_centres", [1, 3])
def test_frozen_classes_do_not_move_and_keep_their_momentum(sub_centres: int) -> None:
    centres = centres_of(CentreRule("sgd", "frozen", 0.9, 0.01), sub_centres)
    weight, buffer = centres.weight.clone(), torch.zeros_like(centres.weight)
    for number, rows in enumerate(ROWS):
        gradient = gradient_for(centres, rows, number)
        mine = torch.arange(CLASSES) if rows is None else torch.tensor(rows)
        lines = (mine[:, None] * sub_centres + torch.arange(sub_centres)).reshape(-1)
        total = dense(gradient, weight, sub_centres)
        buffer[lines] = 0.9 * buffer[lines] + total[lines] + 0.01 * weight[lines]
        weight[lines] = weight[lines] - 0.1 * buffer[lines]
        centres.step([gradient], 0.1)
    torch.testing.assert_close(centres.weight, weight, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(centres.tables["momentum"], buffer, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("beta", [0.999, 0.99999, 1 - 1e-9])
def test_adamw_corrects_its_first_steps_as_exactly_as_torch_does(beta: float) -> None:
    # In the single precision of the centres, 1 - beta**2 would be off by a part of itself, or 0.
    centres = ClassCentres(0, CLASSES, WIDTH, CentreRule("adamw", weight_decay=0.0, betas=(0.9, beta)))
    row = centres.weight.clone().requires_grad_()
    before = centres.weight.clone()
    optimizer = torch.optim.AdamW([row], lr=0.1, weight_decay=0.0, betas=(0.9, beta))
    for number in range(2):
        gradient = gradient_for(centres, None, number)
        row.grad = dense(gradient, centres.weight.double(), 1).float()
        gradient.slopes, gradient.samples = gradient.slopes.float(), gradient.samples.float()
        gradient.factor, gradient.inverse_lengths = gradient.factor.float(), gradient.inverse_lengths.float()
        centres.step([gradient], 0.1)
        optimizer.step()
    torch.testing.assert_close(centres.weight - before, row.detach() - before, rtol=1e-5, atol=1e-6)


def test_adamw_is_that_of_torch_for_each_class_at_its_own_pace() -> None:
    centres = centres_of(CentreRule("adamw", weight_decay=0.1), 2)
    rows = [row.clone().requires_grad_() for row in centres.weight.view(CLASSES, 2, WIDTH)]
    optimizers = [torch.optim.AdamW([row], lr=0.05, weight_decay=0.1) for row in rows]
    for number, chosen in enumerate(ROWS):
        gradient = gradient_for(centres, chosen, number)
        total = dense(gradient, torch.stack(rows).detach().view(-1, WIDTH), 2).view(CLASSES, 2, WIDTH)
        for row in range(CLASSES) if chosen is None else chosen:
            rows[row].grad = total[row]
            optimizers[row].step()
        centres.step([gradient], 0.05)
    expected = torch.stack(rows).detach().view(-1, WIDTH)
    torch.testing.assert_close(centres.weight, expected, rtol=1e-12, atol=1e-12)
    assert centres.class_steps is not None
    assert centres.class_steps.tolist()[:3] == [3, 3, 2]


@pytest.mark.parametrize("sub_centres", [1, 2])
@pytest.mark.parametrize("lists", [[[0, 3, 9], [3, 4, 9, 21]], [[0, 3], None], [None, None], [[], [2]], [[], []]])
def test_gradients_of_several_passes_add_up(lists: list[Any], sub_centres: int) -> None:
    centres = centres_of(CentreRule(momentum=0.0, weight_decay=0.0), sub_centres)
    before = centres.weight.clone()
    gradients = [gradient_for(centres, rows, number) for number, rows in enumerate(lists)]
    centres.step(gradients, 1.0)
    total = sum((dense(gradient, before, sub_centres) for gradient in gradients), torch.zeros_like(before))
    torch.testing.assert_close(before - centres.weight, total, rtol=1e-12, atol=1e-12)


def test_a_centre_too_short_for_its_length_is_divided_by_a_constant() -> None:
    centres = centres_of(CentreRule(momentum=0.0, weight_decay=0.0))
    for length in (0.0, 5e-13):
        centres.weight[4] = torch.eye(WIDTH, dtype=torch.float64)[0] * length
        gradient = gradient_for(centres, [4, 5], 0)
        gradient.inverse_lengths[0] = 1e12
        centres.step([gradient], 1.0)
        expected = -1e12 * 1.5 * (gradient.slopes[0] @ gradient.samples)
        torch.testing.assert_close(centres.weight[4], expected)


def test_steps_without_gradients_count_for_dense_lazy_alone() -> None:
    frozen, lazy = (centres_of(CentreRule(update=update, weight_decay=0.5)) for update in ("frozen", "dense_lazy"))
    before = frozen.weight.clone()
    for centres in (frozen, lazy):
        centres.step([], 0.1)
        centres.bring_up_to_date()
    assert torch.equal(frozen.weight, before)
    torch.testing.assert_close(lazy.weight, before * 0.95)


def test_all_classes_are_caught_up_in_passing_before_too_many_steps_are_kept(monkeypatch) -> None:
    monkeypatch.setattr(class_centres, "MAX_MISSED_STEPS", 7)
    bounded, free = centres_of(CentreRule(update="dense_lazy")), centres_of(CentreRule(update="dense_lazy"))
    for number in range(20):
        for centres in (bounded, free):
            monkeypatch.setattr(class_centres, "MAX_MISSED_STEPS", 7 if centres is bounded else 1000)
            rows = torch.tensor([number])
            centres.bring_up_to_date(rows)
            centres.step([gradient_for(centres, [number], number)], 0.1)
        assert len(bounded._missed) < 7
    bounded.bring_up_to_date()
    free.bring_up_to_date()
    torch.testing.assert_close(bounded.weight, free.weight, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("wrong", "error", "named"),
    [
        ({"optimizer": "adam"}, ArgumentValueError, "optimizer is 'adam'"),
        ({"update": "dense"}, ArgumentValueError, "update is 'dense'"),
        ({"momentum_form": "nesterov"}, ArgumentValueError, "nesterov"),
        ({"momentum": 1.0}, ArgumentValueError, "momentum is 1.0"),
        ({"weight_decay": -1.0}, ArgumentValueError, "weight decay is -1.0"),
        ({"epsilon": 0.0}, ArgumentValueError, "epsilon is 0.0"),
        ({"betas": (0.9, 1.0)}, ArgumentValueError, "betas"),
        ({"optimizer": "adamw", "update": "dense_lazy"}, ContractError, "AdamW"),
    ],
)
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        CentreRule(**wrong)
