"""The head on one process: against the plain one, and in all the situations in which others stop."""

from __future__ import annotations

import gc
import math
from typing import Any

import pytest
import torch
from plain_head import plain_loss
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError, ContractError, OstinatoError, StateError
from ostinato.recognition import class_centres
from ostinato.recognition.margins import Margin, arcface, combined, cosface
from ostinato.recognition.partial_fc import PartialFC

CLASSES, WIDTH, BATCH = 37, 8, 12


@pytest.fixture(autouse=True)
def _blocks_of_five_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_centres, "_ELEMENTS_PER_CORE", 5 * WIDTH)


def batch(seed: int = 0, size: int = BATCH, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn((size, WIDTH), generator=generator, dtype=dtype)
    return embeddings.requires_grad_(), torch.randint(CLASSES, (size,), generator=generator)


def head_of(margin: Margin | None = None, **options: Any) -> PartialFC:
    options = {"dtype": torch.float64, "momentum": 0.0, "weight_decay": 0.0, **options}
    return PartialFC(CLASSES, WIDTH, margin or arcface(0.5, 16.0), **options)


def rows_moved(head: PartialFC, before: Tensor) -> list[int]:
    return torch.nonzero((head.weight != before).any(dim=1)).reshape(-1).tolist()


# --- against the plain one -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sub_centres", [1, 3])
@pytest.mark.parametrize(
    "margin",
    [
        arcface(0.5, 16.0),
        arcface(0.5, 16.0, gradient="straight_through"),
        arcface(1.0, 16.0, wrap="linear"),
        arcface(0.5, 16.0, wrap="easy"),
        cosface(0.4, 64.0),
        cosface(0.2, 16.0, interclass_threshold=0.3),
        combined(1.1, 0.3, 0.1, 16.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_loss_and_gradients_are_those_of_the_plain_head(margin: Margin, rate: float, sub_centres: int) -> None:
    head = head_of(margin, sub_centres=sub_centres, sampling_rate=rate)
    before = head.weight.clone()
    embeddings, labels = batch()
    loss = head(embeddings, labels)
    loss.backward()
    head.step(1.0)
    moved = before - head.weight

    rows = None
    if rate < 1:
        rows = torch.tensor(sorted({row // sub_centres for row in rows_moved(head, before)}))
        assert len(rows) == 18
        assert set(labels.tolist()) <= set(rows.tolist())
    plain, weight = embeddings.detach().clone().requires_grad_(), before.clone().requires_grad_()
    expected = plain_loss(plain, weight, labels, margin, sub_centres=sub_centres, rows=rows)
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(embeddings.grad, plain.grad, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(moved, weight.grad, rtol=1e-10, atol=1e-12)


def test_an_outside_implementation_gives_the_same_loss_and_gradients() -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    theirs = losses.ArcFaceLoss(
        num_classes=CLASSES, embedding_size=WIDTH, margin=math.degrees(0.5), scale=16.0
    ).double()
    head = head_of(arcface(0.5, 16.0, wrap="linear"))
    with torch.no_grad():
        theirs.W.copy_(head.weight.t())
    before = head.weight.clone()
    embeddings, labels = batch()
    other = embeddings.detach().clone().requires_grad_()
    expected = theirs(other, labels)
    expected.backward()
    loss = head(embeddings, labels)
    loss.backward()
    head.step(1.0)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(embeddings.grad, other.grad, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(before - head.weight, theirs.W.grad.t(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("update", ["frozen", "dense_lazy"])
def test_training_at_rate_1_is_sgd_on_the_plain_head(update: Any) -> None:
    head = head_of(momentum=0.9, weight_decay=0.01, update=update)
    weight = head.weight.clone().requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, weight_decay=0.01)
    for number in range(6):
        embeddings, labels = batch(number)
        head(embeddings, labels).backward()
        head.step(0.1)
        optimizer.zero_grad()
        plain_loss(embeddings.detach(), weight, labels, head.margin).backward()
        optimizer.step()
    torch.testing.assert_close(head.weight, weight.detach(), rtol=1e-10, atol=1e-12)


def test_dense_lazy_sampling_is_sgd_on_the_sampled_loss_of_all_rows() -> None:
    """The forward pass has to see the rows that are caught up."""
    head = head_of(momentum=0.9, weight_decay=0.01, update="dense_lazy", sampling_rate=0.3)
    weight = head.weight.clone().requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, weight_decay=0.01)
    for number in range(12):
        embeddings, labels = batch(number, 4)
        loss = head(embeddings, labels)
        loss.backward()
        chosen = head._passes[0].gradient.classes
        assert chosen is not None
        head.step(0.1)
        optimizer.zero_grad()
        expected = plain_loss(embeddings.detach(), weight, labels, head.margin, rows=chosen)
        torch.testing.assert_close(loss.detach(), expected.detach(), rtol=1e-10, atol=1e-12)
        expected.backward()
        optimizer.step()
    torch.testing.assert_close(head.weight, weight.detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("length", [0.0, 1e-14])
def test_a_centre_and_an_embedding_of_no_length_do_no_harm(length: float) -> None:
    head = head_of(cosface(0.2, 16.0))
    head.weight[3] *= length
    embeddings, labels = batch()
    with torch.no_grad():
        embeddings[0] *= length
    labels[1] = 3
    plain = embeddings.detach().clone().requires_grad_()
    expected = plain_loss(plain, head.weight, labels, head.margin)
    expected.backward()
    loss = head(embeddings, labels)
    loss.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(embeddings.grad, plain.grad)


# --- sampling --------------------------------------------------------------------------------------------------------


def test_the_rate_can_be_given_for_each_step_and_negatives_change() -> None:
    head = head_of(sampling_rate=0.5)
    seen = []
    for rate, count in ((None, 18), (None, 18), (0.8, 29), (1.0, CLASSES), (0.0, 4)):
        before = head.weight.clone()
        labels = torch.tensor([1, 5, 5, 7, 30])
        head(torch.randn(5, WIDTH, dtype=torch.float64), labels, sampling_rate=rate).backward()
        head.step(1.0)
        moved = rows_moved(head, before)
        assert len(moved) == count
        assert {1, 5, 7, 30} <= set(moved)
        seen.append(moved)
    assert seen[0] != seen[1]


def test_without_gradients_the_same_classes_are_chosen_again_and_nothing_is_kept() -> None:
    head = head_of(sampling_rate=0.6)
    embeddings, labels = batch()
    with torch.no_grad():
        losses = [head(embeddings, labels) for _ in range(2)]
    assert torch.equal(*losses)
    assert not losses[0].requires_grad
    loss = head(embeddings, labels)
    assert loss.item() == losses[0].item()
    assert head(embeddings, labels).item() != loss.item()
    assert head.draws == 2
    before = head.weight.clone()
    head.step(1.0)  # no backward pass, no gradient
    assert torch.equal(head.weight, before)


# --- backward passes -------------------------------------------------------------------------------------------------


def test_a_second_backward_pass_adds_the_gradients_again() -> None:
    head, embeddings = head_of(), batch()[0]
    before = head.weight.clone()
    loss = head(embeddings, batch()[1])
    loss.backward(retain_graph=True)
    once = embeddings.grad.clone()
    (2.0 * loss).backward()
    torch.testing.assert_close(embeddings.grad, 3 * once)
    head.step(1.0)
    triple = before - head.weight

    single = head_of()
    single(*batch()).backward()
    single.step(1.0)
    torch.testing.assert_close(triple, 3 * (before - single.weight))


def test_gradients_of_several_batches_accumulate_and_are_divided() -> None:
    head, whole = head_of(sampling_rate=0.0), head_of(sampling_rate=0.0)
    before = head.weight.clone()
    for number in range(3):
        head(*batch(number)).backward()
    head.step(1.0, scale=3.0)
    expected = torch.zeros_like(before)
    for number in range(3):
        whole.load_state_dict({**whole.state_dict(), "weight": before})
        whole(*batch(number)).backward()
        whole.step(1.0)
        expected += (before - whole.weight) / 3
    torch.testing.assert_close(before - head.weight, expected, rtol=1e-10, atol=1e-14)


def test_a_scaled_loss_gives_the_same_update() -> None:
    plain, scaled = head_of(), head_of()
    plain(*batch()).backward()
    plain.step(0.1)
    (scaled(*batch()) * 2.0**16).backward()
    scaled.step(0.1, scale=2.0**16)
    torch.testing.assert_close(scaled.weight, plain.weight)


def test_zero_grad_forgets_and_a_later_backward_pass_counts_again() -> None:
    head = head_of()
    before = head.weight.clone()
    loss = head(*batch())
    loss.backward(retain_graph=True)
    head.zero_grad()
    head.step(1.0)
    assert torch.equal(head.weight, before)

    head, once = head_of(), head_of()
    loss = head(*batch())
    loss.backward(retain_graph=True)
    head.zero_grad()
    loss.backward()
    head.step(1.0)
    once(*batch()).backward()
    once.step(1.0)
    assert torch.equal(head.weight, once.weight)


def test_a_loss_from_before_the_update_cannot_go_backward() -> None:
    head = head_of()
    loss = head(*batch())
    loss.backward(retain_graph=True)
    head.step(0.1)
    with pytest.raises(StateError, match="have been updated"):
        loss.backward()


def test_second_derivatives_are_refused() -> None:
    head = head_of()
    embeddings, labels = batch()
    with pytest.raises(StateError, match="create_graph"):
        torch.autograd.grad(head(embeddings, labels), embeddings, create_graph=True)


def test_centres_are_trained_also_above_a_frozen_backbone() -> None:
    head = head_of()
    before = head.weight.clone()
    head(batch()[0].detach(), batch()[1]).backward()
    head.step(0.1)
    assert rows_moved(head, before)
    assert list(head.parameters()) == []


def test_a_loss_that_is_held_does_not_hold_the_memory_of_the_pass() -> None:
    def large_tensors() -> int:
        gc.collect()
        return sum(type(one) is Tensor and one.shape == (CLASSES, BATCH) for one in gc.get_objects())

    head = head_of()
    loss = head(*batch())
    loss.backward()
    assert large_tensors() == 1
    head.step(0.1)
    assert large_tensors() == 0
    assert loss.requires_grad


# --- precision -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sub_centres", [1, 2])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_loss_is_float32_under_autocast(dtype: torch.dtype, sub_centres: int) -> None:
    head, outside = (head_of(dtype=torch.float32, sub_centres=sub_centres) for _ in range(2))
    backbone = torch.nn.Linear(WIDTH, WIDTH)
    images, labels = batch(dtype=torch.float32)
    with torch.autocast("cpu", dtype=dtype):
        embeddings = backbone(images.detach())
        assert embeddings.dtype == dtype
        loss = head(embeddings, labels)
        (loss * 64.0).backward()
    assert loss.dtype == torch.float32
    again = embeddings.detach().float().requires_grad_()
    expected = outside(again, labels)
    (expected * 64.0).backward()
    assert torch.equal(loss, expected)
    head.step(0.1, scale=64.0)
    outside.step(0.1, scale=64.0)
    assert torch.equal(head.weight, outside.weight)
    assert all(
        torch.isfinite(parameter.grad).all() for parameter in backbone.parameters() if parameter.grad is not None
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])  # the square of the last one overflows
def test_numbers_that_are_not_finite_show_in_the_loss_and_in_the_check(value: float) -> None:
    head = head_of(sampling_rate=0.5)
    assert head.gradients_are_finite()
    head(*batch()).backward()
    assert head.gradients_are_finite()
    embeddings, labels = batch()
    with torch.no_grad():
        embeddings[2, 3] = value
    loss = head(embeddings, labels)
    assert not torch.isfinite(loss)
    loss.backward()
    assert not head.gradients_are_finite()
    before = head.weight.clone()
    head.zero_grad()
    assert head.gradients_are_finite()
    head.step(0.1)
    assert torch.equal(head.weight, before)


def test_a_loss_scale_that_overflows_shows_in_the_check() -> None:
    head = head_of(dtype=torch.float32)
    (head(*batch(dtype=torch.float32)) * 1e38 * 10).backward()
    assert not head.gradients_are_finite()


def test_a_spoilt_centre_shows_in_the_loss() -> None:
    head = head_of()
    head.weight[5, 0] = math.nan
    assert torch.isnan(head(*batch()))


# --- batches and labels ----------------------------------------------------------------------------------------------


def test_one_sample_and_none() -> None:
    head = head_of(sampling_rate=0.0)
    loss = head(*batch(size=1))
    loss.backward()
    head.step(0.1)
    embeddings, labels = batch(size=0)
    nothing = head(embeddings, labels)
    nothing.backward()
    assert nothing.item() == 0.0
    assert embeddings.grad is not None
    assert embeddings.grad.shape == (0, WIDTH)
    before = head.weight.clone()
    head.step(0.1)
    assert torch.equal(head.weight, before)


@pytest.mark.parametrize("sub_centres", [1, 3])
@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_batch_without_samples_moves_nothing(rate: float, sub_centres: int) -> None:
    head = head_of(sampling_rate=rate, sub_centres=sub_centres)
    before = head.weight.clone()
    head(*batch(size=0)).backward()
    head.step(0.1)
    assert torch.equal(head.weight, before)


@pytest.mark.parametrize("classes", [CLASSES, 256, 300, 65536])
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int8, torch.int16])
def test_labels_may_be_any_integers_however_many_classes_there_are(dtype: torch.dtype, classes: int) -> None:
    head = PartialFC(classes, WIDTH, arcface(0.5, 16.0), sampling_rate=0.0)
    embeddings, labels = batch(dtype=torch.float32)
    assert torch.equal(head(embeddings, labels), head(embeddings, labels.to(dtype)))


@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (lambda e, y: (e, y + CLASSES), ArgumentValueError, "classes 0 to 36"),
        (lambda e, y: (e, torch.where(y == y[3], -1, y)), ArgumentValueError, "first of them -1"),
        (lambda e, y: (e, y.double()), ArgumentTypeError, "float64"),
        (lambda e, y: (e, y.bool()), ArgumentTypeError, "bool"),
        (lambda e, y: (e, y.tolist()), ArgumentTypeError, "list"),
        (lambda e, y: (e, y[:-1]), ArgumentValueError, r"\(11,\)"),
        (lambda e, y: (e, y[:, None]), ArgumentValueError, r"\(12, 1\)"),
        (lambda e, y: (e[:, :5], y), ArgumentValueError, r"\(12, 5\)"),
        (lambda e, y: (e[0], y), ArgumentValueError, r"\(8,\)"),
        (lambda e, y: (e.long(), y), ArgumentTypeError, "int64"),
        (lambda e, y: (e.to("meta"), y), ArgumentValueError, "meta, and the class centres on cpu"),
    ],
)
def test_what_cannot_be_trained_with_is_refused_and_changes_nothing(
    spoil: Any, error: type[Exception], says: str
) -> None:
    head = head_of(sampling_rate=0.5)
    with pytest.raises(error, match=says) as caught:
        head(*spoil(*batch()))
    assert isinstance(caught.value, OstinatoError)
    assert head.draws == 0


def test_the_error_of_a_label_names_value_and_range() -> None:
    embeddings, labels = batch()
    labels[4] = 99
    with pytest.raises(ArgumentValueError) as caught:
        head_of()(embeddings, labels)
    assert caught.value.fields["value"] == 99
    assert (caught.value.fields["classes"], caught.value.fields["highest"]) == (CLASSES, 99)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"classes": 0}, ArgumentValueError),
        ({"embedding_size": 1.5}, ArgumentValueError),
        ({"sub_centres": 256}, ArgumentValueError),
        ({"dtype": torch.float16}, ArgumentValueError),
        ({"sampling_rate": 1.5}, ArgumentValueError),
        ({"optimizer": "adamw", "update": "dense_lazy"}, ContractError),
    ],
)
def test_heads_that_make_no_sense_are_refused(wrong: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        PartialFC(**{"classes": 5, "embedding_size": 4, "margin": arcface(), **wrong})


def test_steps_that_make_no_sense_are_refused() -> None:
    head = head_of()
    with pytest.raises(ArgumentValueError, match="sampling rate"):
        head(*batch(), sampling_rate=-0.5)
    for rate, scale in ((-0.1, 1.0), (math.nan, 1.0), (math.inf, 1.0), (0.1, 0.0), (0.1, math.inf)):
        with pytest.raises(ArgumentValueError, match="scale"):
            head.step(rate, scale)


def test_it_says_what_it_is() -> None:
    assert "classes=37 (here 0 to 37)" in repr(head_of(sampling_rate=0.25))
