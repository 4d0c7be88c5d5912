from __future__ import annotations

from typing import Any

import pytest
import torch
from recognition_stand_ins import CLASSES, FormulaBatches, LinearBackbone, make_updater
from torch.nn.functional import cross_entropy, normalize

from ostinato.errors import ArgumentValueError, OutOfMemoryError, StateError
from ostinato.kvstore.loss_scaler import LossScaler
from ostinato.loop import scope
from ostinato.recognition.updater import RecognitionUpdater


def _update(updater: RecognitionUpdater, times: int = 1) -> dict[str, Any]:
    observation: dict[str, Any] = {}
    for _ in range(times):
        observation.clear()
        with scope(observation):
            updater.update()
    return {name: float(value) for name, value in observation.items()}


def _weights(updater: RecognitionUpdater) -> list[torch.Tensor]:
    return [updater.backbone.layer.weight.detach().clone(), updater.head.weight.clone()]


def _by_hand(updates: int, clipping: float) -> tuple[list[float], list[torch.Tensor]]:
    """The same training with one dense classifier and the optimizers of torch."""
    backbone, batches = LinearBackbone(), FormulaBatches(10)
    centres = torch.nn.Parameter(make_updater().head.weight.clone())
    optimizer = torch.optim.SGD([*backbone.parameters(), centres], lr=1.0, momentum=0.9, weight_decay=5e-4)
    losses = []
    for number in range(1, updates + 1):
        batch = batches.next_batch()
        cosines = normalize(backbone((batch.images - 127.5) / 127.5)) @ normalize(centres).T
        logits = 16.0 * (cosines - 0.2 * torch.nn.functional.one_hot(batch.labels, CLASSES))
        loss = cross_entropy(logits, batch.labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(backbone.parameters(), clipping)
        rate = 0.2 * min(1.0, number / 3)
        optimizer.param_groups[0]["lr"] = rate if number <= 3 else 0.2 * (100 - number + 1) / 97
        optimizer.step()
        losses.append(loss.item())
    return losses, [backbone.layer.weight.detach(), centres.detach()]


@pytest.mark.parametrize("clipping", [5.0, 0.3])
def test_an_update_is_that_of_a_dense_classifier_with_only_the_backbone_clipped(clipping: float) -> None:
    updater = make_updater(f"gradient_clipping={clipping}")
    losses = [_update(updater)["loss"] for _ in range(5)]
    expected, weights = _by_hand(5, clipping)
    assert losses == pytest.approx(expected, rel=1e-4)
    for found, wanted in zip(_weights(updater), weights, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_accumulated_batches_are_averaged_and_count_as_one_update() -> None:
    unclipped = "gradient_clipping=0"  # which would hide a gradient that is too large
    whole = make_updater(unclipped, batch=10)
    parts = make_updater(unclipped, "accumulation=2", batch=5)
    for _ in range(4):
        assert _update(parts)["loss"] == pytest.approx(_update(whole)["loss"], rel=1e-5)
    for found, wanted in zip(_weights(parts), _weights(whole), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert parts.state.iteration == whole.state.iteration == 4
    assert parts.state.samples == whole.state.samples == 40
    assert parts.batch_size == 10


def test_the_rate_follows_the_number_of_the_update_and_starts_low() -> None:
    updater = make_updater()
    rates = [_update(updater)["rate"] for _ in range(4)]
    assert rates == pytest.approx([0.2 / 3, 0.4 / 3, 0.2, 0.2])


def test_passes_are_counted_when_batches_run_over_their_ends() -> None:
    updater = make_updater(batch=20)
    epochs = []
    for _ in range(6):
        _update(updater)
        epochs.append(updater.state.epoch)
    assert epochs == [0, 1, 2, 2, 3, 4]
    updater = make_updater(batch=75)
    _update(updater)
    assert updater.state.epoch == 2


def test_what_is_reported() -> None:
    updater = make_updater(scaler=LossScaler(1024.0))
    seen = _update(updater, 2)
    assert {"loss", "rate", "gradient_norm", "loss_scale", "time/data", "time/backbone", "time/head"} <= seen.keys()
    assert seen["images_per_second"] > 0
    assert "gradient_norm" not in _update(make_updater("gradient_clipping=0"))


def test_a_loss_scale_changes_nothing_but_the_last_digits() -> None:
    plain = make_updater("gradient_clipping=0")
    scaled = make_updater("gradient_clipping=0", scaler=LossScaler(2.0**10))
    for _ in range(4):
        assert _update(scaled)["loss"] == pytest.approx(_update(plain)["loss"], rel=1e-4)


@pytest.mark.parametrize("where", ["backbone", "head"])
def test_an_update_that_overflows_changes_nothing_and_lowers_the_scale(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    updater = make_updater(scaler=LossScaler(1024.0))
    _update(updater)
    before = _weights(updater)
    if where == "head":
        monkeypatch.setattr(updater.head, "gradients_are_finite", lambda: False)
    else:
        weight = updater.backbone.layer.weight
        hook = weight.register_hook(lambda gradient: gradient * float("inf"))
    seen = _update(updater)
    assert updater.is_skipped
    assert seen["loss_scale"] == 512.0
    assert updater.state.iteration == 2
    for found, wanted in zip(_weights(updater), before, strict=True):
        assert found.equal(wanted)
    monkeypatch.undo()
    if where == "backbone":
        hook.remove()
    _update(updater)
    assert not updater.is_skipped
    assert not _weights(updater)[0].equal(before[0])


def test_a_continued_updater_goes_on_bit_for_bit() -> None:
    straight = make_updater(scaler=LossScaler(256.0, window=3))
    losses = [_update(straight)["loss"] for _ in range(9)]
    first = make_updater(scaler=LossScaler(256.0, window=3))
    assert [_update(first)["loss"] for _ in range(4)] == losses[:4]
    second = make_updater(scaler=LossScaler(window=3))
    second.load_state_dict(first.state_dict())
    assert [_update(second)["loss"] for _ in range(5)] == losses[4:]
    assert second.state == straight.state
    for found, wanted in zip(_weights(second), _weights(straight), strict=True):
        assert found.equal(wanted)


def test_settings_of_the_session_win_over_those_that_were_saved() -> None:
    first = make_updater("optimizer.momentum=0.9", "optimizer.weight_decay=0.0005")
    _update(first)
    second = make_updater("optimizer.momentum=0.5", "optimizer.weight_decay=0.001")
    second.load_state_dict(first.state_dict())
    group = second.optimizer.param_groups[0]
    assert (group["momentum"], group["weight_decay"]) == (0.5, 0.001)
    assert second.optimizer.state  # and what it remembers was taken over


def test_a_head_with_fewer_classes_than_the_data_grows_and_loses_none() -> None:
    first = make_updater()
    _update(first, 3)
    second = make_updater(data_classes=CLASSES + 3)
    second.load_state_dict(first.state_dict())
    assert second.head.classes == CLASSES + 3
    assert second.head.weight[:CLASSES].equal(first.head.weight)


def test_states_of_another_format_and_of_another_backbone_are_refused() -> None:
    updater = make_updater()
    state = updater.state_dict()
    with pytest.raises(ArgumentValueError, match="format 7"):
        updater.load_state_dict({**state, "format": 7})
    with pytest.raises(StateError, match="do not fit the backbone"):
        updater.load_state_dict({**state, "models": {"main": {"layer.weight": torch.zeros(2, 2)}}})


def test_running_out_of_memory_is_answered_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    updater = make_updater("batch_size=64")

    def fail() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(updater.loader, "next_batch", fail)
    with pytest.raises(OutOfMemoryError, match=r"-b 32 --set optimizer\.accumulation=2"):
        updater.update()


def test_the_last_update_can_be_told_in_words() -> None:
    updater = make_updater(scaler=LossScaler(1024.0))
    _update(updater)
    assert updater.describe_last() == f"Learning rate {0.2 / 3:g}, labels 0 to 9 of 12, loss scale 1024."
