from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_updater import COUNT, Batches, assert_equal, options_of, run, saved, updater_of
from torch import Tensor

from ostinato.config import SwapOptions
from ostinato.errors import OutOfMemoryError, StateError
from ostinato.faces.loader import SwapBatch
from ostinato.optim import optimizer_names
from ostinato.swap import updater as updater_module
from ostinato.swap.step import StepLosses, training_step
from ostinato.swap.updater import LOWEST_SCALE, SwapUpdater

# --- what an update reports -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["a", "ab", "abc", "abcde"])
def test_it_reports_every_side_and_part_of_the_loss_and_their_sum(names: str) -> None:
    updater = updater_of(options_of(), tuple(names))
    (losses,) = run(updater, 1)
    sides = [name for side in names for name in (f"loss/{side}", f"loss/{side}/ssim", f"loss/{side}/mse")]
    assert set(losses) == {"loss/total", "gradient/norm", *sides}
    assert losses["loss/total"] == pytest.approx(sum(losses[f"loss/{side}"] for side in names))
    assert updater.last_files == {side: [Path(f"{n}_0.png"), Path(f"{n}_1.png")] for n, side in enumerate(names)}
    assert updater.batch_size == len(names) * COUNT


def test_a_learned_mask_has_a_loss_of_its_own() -> None:
    (losses,) = run(updater_of(options_of("mask.learn_mask=true")), 1)
    assert {"loss/a/mask", "loss/b/mask"} <= set(losses)


def test_epochs_are_counted_by_samples() -> None:
    updater = updater_of(options_of())
    epochs = []
    for _ in range(5):
        run(updater, 1)
        epochs.append(updater.state.epoch)
    assert epochs == [0, 0, 1, 1, 2]  # 2, 4, 6, 8, 10 faces of 5


def test_a_batch_larger_than_the_folder_completes_several_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batches, "epoch_length", 1)
    updater = updater_of(options_of())
    run(updater, 3)
    assert (updater.state.epoch, updater.state.iteration) == (6, 3)


# --- continuing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("optimizer.gradient_accumulation=3",),
        ("optimizer.gradient_clipping=autoclip", "optimizer.clipping_value=5"),
        ("optimizer.ada_amsgrad=true", "optimizer.weight_decay=0.01"),
        ("network.mixed_precision=true", "optimizer.gradient_accumulation=2"),
        ("mask.learn_mask=true", "optimizer.gradient_clipping=global_norm", "optimizer.clipping_value=0.1"),
    ],
)
def test_it_continues_bit_for_bit_from_any_iteration(overrides: tuple[str, ...]) -> None:
    options = options_of(*overrides)
    whole = updater_of(options)
    states = []
    losses = []
    for _ in range(7):
        states.append(saved(whole))
        losses += run(whole, 1)
    for iteration, state in enumerate(states):
        parts = updater_of(options)
        run(parts, 1)  # whatever it did before is forgotten
        parts.load_state_dict(state)
        assert run(parts, 7 - iteration) == losses[iteration:]
        assert_equal(parts, whole)


def test_the_warm_up_continues_where_it_was() -> None:
    options = options_of()
    whole = updater_of(options, warm_up=6)
    run(whole, 2)
    state = saved(whole)
    rates: list[float] = []
    for _ in range(6):
        run(whole, 1)
        rates.append(whole.optimizer.param_groups[0]["lr"])
    assert rates[:4] == sorted(set(rates[:4]))
    assert rates[-1] == options.optimizer.learning_rate
    parts = updater_of(options, warm_up=6)
    parts.load_state_dict(state)
    run(parts, 6)
    assert_equal(parts, whole)


def test_the_warm_up_counts_steps_of_the_optimizer_and_not_batches() -> None:
    options = options_of("optimizer.gradient_accumulation=3")
    updater = updater_of(options, warm_up=4)
    rates = []
    for batch in range(1, 16):
        run(updater, 1)
        if batch % 3 == 0:
            rates.append(updater.optimizer.param_groups[0]["lr"])
        if batch == 5:
            state = saved(updater)
            updater = updater_of(options, warm_up=4)
            updater.load_state_dict(state)
    assert rates == pytest.approx([5e-5 * share for share in (0.25, 0.5, 0.75, 1.0, 1.0)], rel=1e-12)


def test_a_state_of_before_rates_and_steps_were_saved_goes_on() -> None:
    options = options_of("optimizer.gradient_accumulation=2")
    whole = updater_of(options, warm_up=4)
    run(whole, 5)
    state = saved(whole)
    del state["learning_rate"], state["updates"]
    parts = updater_of(options, warm_up=4)
    parts.load_state_dict(state)
    assert run(parts, 3) == run(whole, 3)
    assert_equal(parts, whole)


# --- the rate in force ------------------------------------------------------------------------------------------------


def rate_of(updater: SwapUpdater) -> float:
    (rate,) = {group["lr"] for group in updater.optimizer.param_groups}
    return rate


def test_a_rate_that_was_found_or_lowered_is_state_and_the_warm_up_rises_to_it() -> None:
    updater = updater_of(options_of(), warm_up=2)
    updater.rate = updater.rate.with_found(1e-3).lowered(0.5, 8, 6, "loss/b is nan")
    run(updater, 1)
    assert rate_of(updater) == pytest.approx(2.5e-4)
    later = updater_of(options_of(), warm_up=2)
    later.load_state_dict(saved(updater))
    run(later, 1)
    assert rate_of(later) == pytest.approx(5e-4)
    assert later.rate == updater.rate


def test_another_rate_that_is_asked_for_wins_over_what_was_found() -> None:
    updater = updater_of(options_of())
    updater.rate = updater.rate.with_found(1e-3).lowered(0.5, 8, 6, "loss/b is nan")
    asked = updater_of(options_of("optimizer.learning_rate=2e-5"))
    asked.load_state_dict(saved(updater))
    run(asked, 1)
    assert rate_of(asked) == 2e-5
    assert len(asked.rate.recoveries) == 1


def test_a_forced_rate_wins_over_everything() -> None:
    updater = updater_of(options_of(), warm_up=5)
    updater.forced_rate = 3e-6
    run(updater, 1)
    assert rate_of(updater) == 3e-6
    updater.forced_rate = None
    run(updater, 1)
    assert rate_of(updater) == pytest.approx(2e-5)


# --- what is not finite -----------------------------------------------------------------------------------------------


def spoil(updater: SwapUpdater, value: float) -> None:
    """Let the gradients of the next batch, and no loss, be ruined."""
    parameter = next(updater.model.parameters())

    def once(gradient: Tensor) -> Tensor:
        handle.remove()
        return torch.full_like(gradient, value)

    handle = parameter.register_hook(once)


@pytest.mark.parametrize(
    ("optimizer", "method"),
    [
        *((name, "none") for name in optimizer_names()),
        *(("adam", method) for method in ("norm", "global_norm", "value", "autoclip")),
    ],
)
def test_gradients_that_are_not_finite_reach_neither_weights_nor_moments(optimizer: str, method: str) -> None:
    options = options_of(f"optimizer.optimizer={optimizer}", f"optimizer.gradient_clipping={method}")
    updater = updater_of(options)
    run(updater, 2)
    before = saved(updater)
    spoil(updater, float("nan"))
    (losses,) = run(updater, 1)
    assert math.isnan(losses["gradient/norm"])
    assert math.isfinite(losses["loss/total"])
    other = updater_of(options)
    other.load_state_dict(before)
    assert_equal(updater, other)
    assert saved(updater)["clipper"].keys() == before["clipper"].keys()
    for name, norms in before["clipper"].items():
        assert norms.equal(saved(updater)["clipper"][name])
    run(updater, 1)  # and the next batch trains again
    assert any(not p.detach().equal(before["models"]["main"][name]) for name, p in updater.model.named_parameters())


def test_a_loss_that_is_not_finite_stops_the_step_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the gradients alone would not tell."""
    updater = updater_of(options_of("optimizer.gradient_accumulation=2"))
    before = saved(updater)["models"]["main"]
    real = updater_module.training_step
    spoiled = iter([True, False])

    def step(*arguments: Any, **settings: Any) -> StepLosses:
        losses = real(*arguments, **settings)
        return replace(losses, total=losses.total * float("inf")) if next(spoiled, False) else losses

    monkeypatch.setattr(updater_module, "training_step", step)
    run(updater, 2)
    for name, parameter in updater.model.named_parameters():
        assert parameter.detach().equal(before[name])
    assert updater.state_dict()["collected"] == 0
    run(updater, 2)
    assert any(not p.detach().equal(before[name]) for name, p in updater.model.named_parameters())


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "adamax"])
def test_on_an_accelerator_the_step_is_left_out_without_a_look_at_the_result(
    optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an accelerator would do, on a processor: the flag stays a tensor."""
    options = options_of(f"optimizer.optimizer={optimizer}")
    updater, exact = updater_of(options), updater_of(options)
    updater._device = torch.device("cuda")
    monkeypatch.setattr(SwapUpdater, "_on_device", lambda self, images: images)
    assert [one["loss/total"] for one in run(updater, 2)] == [one["loss/total"] for one in run(exact, 2)]
    assert_equal(updater, exact)
    before = saved(updater)
    spoil(updater, float("inf"))
    run(updater, 1)
    moved = [n for n, p in updater.model.named_parameters() if not p.detach().equal(before["models"]["main"][n])]
    assert all(parameter.isfinite().all() for parameter in updater.model.parameters())
    if optimizer == "adamax":  # it has no fused kernel: the weights follow the moments once more
        assert moved
    else:
        assert not moved
        assert {float(entry["step"]) for entry in saved(updater)["optimizers"]["main"]["state"].values()} == {2.0}
    assert not hasattr(updater.optimizer, "found_inf")


def test_a_loss_scaler_may_leave_steps_out_and_has_given_up_when_its_factor_is_next_to_nothing() -> None:
    updater = updater_of(options_of())
    updater._scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-13)
    assert updater.has_loss_scaler
    before = saved(updater)["models"]["main"]
    factors = []
    for _ in range(3):
        spoil(updater, float("inf"))
        (losses,) = run(updater, 1)
        assert math.isfinite(losses["loss/total"])
        assert "gradient/norm" not in losses
        factors.append(losses["gradient/loss_scale"])
    assert factors[0] == LOWEST_SCALE
    assert all(math.isnan(factor) for factor in factors[1:])
    for name, parameter in updater.model.named_parameters():
        assert parameter.detach().equal(before[name])


def test_the_factor_is_told_where_the_optimizer_steps_and_is_the_one_of_the_next_step() -> None:
    updater = updater_of(options_of("optimizer.gradient_accumulation=2"))
    updater._scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
    told = [losses.get("gradient/loss_scale") for losses in run(updater, 4)]
    assert told == [None, 16.0, None, 32.0]


def test_weights_of_another_model_are_refused() -> None:
    small = updater_of(options_of())
    with pytest.raises(StateError, match="do not fit the model lightweight"):
        updater_of(options_of("model.name=lightweight")).load_state_dict(saved(small))


# --- changed options act in the first step ----------------------------------------------------------------------------


def hand_made_step(state: dict[str, Any], options: SwapOptions, batches: int) -> dict[str, Tensor]:
    """The parameters after one step of Adam, written out, from a saved state."""
    updater = updater_of(options)
    updater.model.load_state_dict(state["models"]["main"])
    updater.model.train()
    source, position = updater.loader, state["loader"]["position"]
    for _ in range(batches):
        batch = source.at(position)  # type: ignore[attr-defined]
        position = batch.position
        training_step(updater.model, updater.loss, batch.inputs, batch.targets, batch.masks, scale=1 / max(1, batches))
    wanted = options.optimizer
    gradients = {name: p.grad.clone() for name, p in updater.model.named_parameters() if p.grad is not None}
    if wanted.gradient_clipping == "global_norm":
        norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
        factor = min(1.0, wanted.clipping_value / (float(norm) + 1e-6))
        assert factor < 1, "the test wants the clipping to act"
        gradients = {name: gradient * factor for name, gradient in gradients.items()}
    result = {}
    for name, parameter in updater.model.named_parameters():
        gradient, value = gradients[name].double(), parameter.detach().double()
        if parameter.ndim > 1:
            gradient = gradient + wanted.weight_decay * value
        moments = state["optimizers"]["main"]["state"][name]
        step = float(moments["step"]) + 1
        first = wanted.ada_beta_1 * moments["exp_avg"].double() + (1 - wanted.ada_beta_1) * gradient
        second = wanted.ada_beta_2 * moments["exp_avg_sq"].double() + (1 - wanted.ada_beta_2) * gradient**2
        corrected = (second / (1 - wanted.ada_beta_2**step)).sqrt() + 10.0**wanted.epsilon_exponent
        result[name] = (value - wanted.learning_rate * (first / (1 - wanted.ada_beta_1**step)) / corrected).float()
    return result


CHANGES = {
    "learning rate": ("optimizer.learning_rate=3e-3",),
    "epsilon": ("optimizer.epsilon_exponent=-2",),
    "decay": ("optimizer.weight_decay=0.5",),
    "clipping": ("optimizer.gradient_clipping=global_norm", "optimizer.clipping_value=0.001"),
    "accumulation": ("optimizer.gradient_accumulation=3",),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_changed_option_acts_in_the_first_step(changed: str) -> None:
    # A large rate and epsilon, so that each option has an effect that can be told from rounding.
    base = ("optimizer.learning_rate=1e-3", "optimizer.epsilon_exponent=-5")
    before = updater_of(options_of(*base))
    run(before, 4)
    state = saved(before)
    options = options_of(*base, *CHANGES[changed])
    batches = options.optimizer.gradient_accumulation
    after = updater_of(options)
    after.load_state_dict(state)
    run(after, batches)
    expected, unchanged = hand_made_step(state, options, batches), hand_made_step(state, options_of(*base), 1)
    differs = False
    for name, parameter in after.model.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-5, atol=2e-7)
        differs |= not torch.allclose(expected[name], unchanged[name], rtol=1e-5, atol=2e-6)
    assert differs, "the change would not have been noticed"


def test_a_shorter_accumulation_steps_as_soon_as_enough_is_collected() -> None:
    before = updater_of(options_of("optimizer.gradient_accumulation=4"))
    run(before, 3)
    after = updater_of(options_of("optimizer.gradient_accumulation=2"))
    after.load_state_dict(saved(before))
    weights = saved(after)["models"]["main"]
    run(after, 1)
    assert after.state_dict()["collected"] == 0
    assert any(not p.detach().equal(weights[name]) for name, p in after.model.named_parameters())


# --- accumulation and precision ---------------------------------------------------------------------------------------


def test_accumulated_batches_step_once_with_their_mean_gradient() -> None:
    options = options_of("optimizer.gradient_accumulation=2", "optimizer.learning_rate=1e-3")
    updater = updater_of(options)
    first = saved(updater)
    run(updater, 1)
    for name, parameter in updater.model.named_parameters():
        assert parameter.detach().equal(first["models"]["main"][name])
    run(updater, 1)
    zeros = {n: {"step": 0.0, "exp_avg": 0 * p, "exp_avg_sq": 0 * p} for n, p in first["models"]["main"].items()}
    first["optimizers"]["main"]["state"] = zeros
    expected = hand_made_step(first, options, 2)
    for name, parameter in updater.model.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-4, atol=1e-5)


def test_mixed_precision_computes_the_model_in_bfloat16_and_the_loss_in_float32() -> None:
    seen: set[torch.dtype] = set()
    updater = updater_of(options_of("network.mixed_precision=true"))
    updater.model.encoder.register_forward_hook(lambda _m, _i, output: seen.add(output[0].dtype))
    losses = run(updater, 2)
    assert seen == {torch.bfloat16}
    full = run(updater_of(options_of()), 2)
    assert losses != full
    assert losses[0]["loss/total"] == pytest.approx(full[0]["loss/total"], rel=0.02)
    assert all(parameter.dtype == torch.float32 for parameter in updater.model.parameters())


def test_no_memory_becomes_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("ostinato.swap.updater.training_step", fail)
    with pytest.raises(OutOfMemoryError, match="-b 1 instead of -b 2"):
        run(updater_of(options_of()), 1)


def test_no_memory_for_the_faces_becomes_advice_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> SwapBatch:
        raise MemoryError

    monkeypatch.setattr(Batches, "next_batch", fail)
    with pytest.raises(OutOfMemoryError, match="-b 1 instead of -b 2"):
        run(updater_of(options_of()), 1)
