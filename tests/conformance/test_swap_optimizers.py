"""Optimizers, clipping, accumulation, loss scaling and warm-up of a swap training against golden numbers.

Trajectories and the rows of the loss scaler run through the updater that training uses, so that what is checked is also
the order of things: scale, average over batches, unscale, clip, step. Tolerances are those of the specification,
section 7.

Left out, because they record what upstream does wrong:

* trajectories of adabelief as it is, from the sixth update on: the factor is cached for too long and computed in
  float32. The first five updates know no factor and are checked; the whole trajectories with the prefix ``corrected/``
  are those of the equations. AMSGrad makes no difference to them, as none to ours, which does not offer it.
* values of adabelief's state after 25 calls, which those trajectories led to.
* the rate of the first update of a warm-up, which is 0; ours is that of the second, and so on.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ostinato.config import NetworkOptions, OptimizerOptions
from ostinato.faces.loader import SwapBatch
from ostinato.loop import scope
from ostinato.optim import GradientClipper, build_optimizer, optimizer_names, warm_up_factor
from ostinato.swap.losses import SideLoss
from ostinato.swap.updater import SwapUpdater

FOLDER = "swap-losses-optimizers"
CALLS = 25
TOLERANCE = {"nadam": 1e-8, "adabelief": 1e-8}  # upstream keeps numbers in float32 there; 1e-12 for the others
TRAJECTORIES = {
    "adabelief": 43,
    "corrected/adabelief": 43,
    "adam": 42,
    "adamw": 42,
    "adamax": 22,
    "nadam": 22,
    "lion": 21,
    "rms-prop": 21,
}


def read(golden: Path, name: str) -> Any:
    return json.loads((golden / FOLDER / name).read_text())


def arrays(golden: Path, name: str) -> Any:
    return np.load(golden / FOLDER / name)


class Regression(nn.Module):
    """The golden regression problem in the place of a model: W decays, b does not. Faces are not looked at."""

    name = "regression"
    sides = ("a",)
    output_sizes = (1,)

    def __init__(self, golden: Path, dtype: torch.dtype) -> None:
        super().__init__()
        stored = arrays(golden, "optimizer_problem.npz")
        self.kernel = nn.Parameter(torch.from_numpy(stored["W0"]).to(dtype))
        self.bias = nn.Parameter(torch.from_numpy(stored["b0"]).to(dtype))
        self.x, self.y = (torch.from_numpy(stored[name]).to(dtype) for name in ("X", "Y"))

    def forward(self, faces: Tensor) -> list[list[Tensor]]:
        return [[faces]]

    def loss(self, call: int) -> Tensor:
        index = call % 8
        return ((torch.tanh(self.x[index] @ self.kernel + self.bias) - self.y[index]) ** 2).sum() / 5

    def flat(self) -> np.ndarray:
        return torch.cat([self.kernel.detach().flatten(), self.bias.detach()]).numpy()


class RegressionLoss(nn.Module):
    """The loss of the next call; its gradient is infinite at the calls listed, counted from 1."""

    def __init__(self, problem: Regression, overflow: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.problem = [problem]  # in a list, so that it is not taken for a part
        self.overflow = overflow
        self.calls = 0
        self.values: list[float] = []

    def forward(self, *_: Any) -> SideLoss:
        total = self.problem[0].loss(self.calls)
        self.calls += 1
        self.values.append(total.item())
        if self.calls in self.overflow:
            total.register_hook(lambda gradient: gradient * math.inf)
            total = total * 1.0
        return SideLoss(total, ({},), ({},), None)


class NoFaces:
    """Batches of one black pixel."""

    batch_size = 1
    epoch_length = 8

    def __init__(self) -> None:
        self.position = 0

    def next_batch(self) -> SwapBatch:
        self.position += 1
        pixel = torch.zeros((1, 1, 1, 1, 3), dtype=torch.uint8)
        return SwapBatch(pixel, [pixel], {}, [[Path("face.png")]], self.position, self.position // self.epoch_length)

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: Any) -> None:
        self.position = state["position"]


def training(
    golden: Path, options: OptimizerOptions, dtype: torch.dtype, overflow: tuple[int, ...] = (), warm_up: int = 0
) -> tuple[Regression, RegressionLoss, SwapUpdater]:
    problem = Regression(golden, dtype)
    loss = RegressionLoss(problem, overflow)
    optimizer = build_optimizer(problem.named_parameters(), options)
    stand_ins: tuple[Any, Any] = (problem, loss)
    updater = SwapUpdater(*stand_ins, optimizer, NoFaces(), options=options, network=NetworkOptions(), warm_up=warm_up)
    return problem, loss, updater


def update(updater: SwapUpdater) -> None:
    with scope({}):
        updater.update()


def options_of(case: dict[str, Any], **changes: Any) -> OptimizerOptions:
    names = OptimizerOptions.model_fields.keys() & case.keys()
    return OptimizerOptions(**{**{name: case[name] for name in names}, **changes})


def family(key: str) -> str:
    parts = key.split("/")
    return "/".join(parts[:2]) if parts[0] == "corrected" else parts[0]


def test_every_optimizer_of_the_trajectories_is_built(golden: Path) -> None:
    cases = read(golden, "optimizer_trajectories.json")

    assert {case["optimizer"] for case in cases} == set(optimizer_names())
    assert len(cases) == sum(TRAJECTORIES.values()) == 256


@pytest.mark.parametrize("name", sorted(TRAJECTORIES))
def test_trajectories(golden: Path, name: str) -> None:
    trajectories = arrays(golden, "optimizer_trajectories.npz")
    cases = [case for case in read(golden, "optimizer_trajectories.json") if family(case["key"]) == name]
    assert len(cases) == TRAJECTORIES[name]
    tolerance = TOLERANCE.get(name, 1e-12)
    for case in cases:
        key, options = case["key"], options_of(case)
        problem, loss, updater = training(golden, options, torch.float64)
        calls = CALLS
        if name == "adabelief":  # up to the last update before the first that knows a factor
            calls = min(CALLS, 6 * options.gradient_accumulation - 1)
        for call in range(calls):
            update(updater)
            np.testing.assert_allclose(problem.flat(), trajectories[key][call], rtol=0, atol=tolerance, err_msg=key)
        assert loss.values == pytest.approx(case["losses"][:calls], rel=100 * tolerance), key


def test_what_is_left_out_of_adabelief_differs_from_the_equations(golden: Path) -> None:
    """So that nobody reads the left-out rows as right."""
    trajectories = arrays(golden, "optimizer_trajectories.npz")
    rectified = [key for key in trajectories if family(key) == "adabelief" and "eps" not in key and "acc4" not in key]
    assert len(rectified) == 21
    for key in rectified:
        corrected = trajectories[f"corrected/{key}"]
        assert np.abs(trajectories[key][-1] - corrected[-1]).max() > 1e-3, key


STATES = ["adabelief/ams0", "adam/ams0", "adam/ams1", "adamax/ams0", "adamw/ams0", "adamw/ams1", "lion/ams0"]


@pytest.mark.parametrize("case", [*STATES, "nadam/ams0", "rms-prop/ams0"])
def test_state_after_25_calls(golden: Path, case: str) -> None:
    name, amsgrad = case.split("/")
    stored = arrays(golden, "optimizer_state_float32.npz")
    rate = read(golden, "optimizer_state_float32.json")[case]["param_groups"][0]["lr"]
    chosen: dict[str, Any] = {"optimizer": name, "learning_rate": rate, "ada_amsgrad": amsgrad == "ams1"}
    options = OptimizerOptions(weight_decay=0.05, **chosen)
    problem, _, updater = training(golden, options, torch.float32)
    for _ in range(CALLS):
        update(updater)
    for index, parameter in enumerate((problem.kernel, problem.bias)):
        state = updater.optimizer.state[parameter]
        prefix = f"{case}/{index}"
        assert {f"{prefix}/{key}" for key in state} == {key for key in stored if key.startswith(f"{prefix}/")}
        for key, value in state.items():
            golden_value = stored[f"{prefix}/{key}"]
            assert (value.dtype, tuple(value.shape)) == (torch.float32, golden_value.shape)
            if name != "adabelief" or key == "step":
                np.testing.assert_allclose(value.numpy(), golden_value, rtol=1e-4, atol=1e-7)


def test_autoclip_thresholds(golden: Path) -> None:
    cases = read(golden, "autoclip.json")["cases"]
    # No golden history is as long as 10000, so that those rows are also those of an unlimited one.
    cases += [{**case, "history": 0} for case in cases if case["history"] == 10_000]
    for case in cases:
        clipper = GradientClipper("autoclip", case["clipping_value"], case["history"])
        for row in case["rows"]:
            norm = float(row["norm_in"])
            parameters = [nn.Parameter(torch.zeros(n, dtype=torch.float64)) for n in (2, 1, 3)]
            parameters[0].grad = torch.tensor([0.48 * norm, 0.64 * norm], dtype=torch.float64)
            parameters[1].grad = torch.tensor([0.6 * norm], dtype=torch.float64)
            clipper.clip(parameters)
            assert len(clipper.state_dict()["norms"]) == row["history_len"]
            after = torch.cat([parameters[0].grad, parameters[1].grad]).norm().item()
            if math.isfinite(norm):
                assert after == pytest.approx(float(row["norm_out"]), rel=1e-12)
                if norm > 0:
                    assert after * (norm + 1e-6) / norm == pytest.approx(min(row["threshold"], norm + 1e-6), rel=1e-12)
            else:
                assert not math.isfinite(after)


@pytest.mark.parametrize("name", ["plain", "global_norm", "autoclip", "acc3_value", "warmup5"])
def test_loss_scaling(golden: Path, name: str) -> None:
    """Overflow leaves the parameters and the optimizer's count alone, halves the scale, and passes the warm-up by."""
    (case,) = [case for case in read(golden, "grad_scaler.json") if case["name"] == name]
    config = case["config"]
    options = OptimizerOptions(
        learning_rate=0.01,
        gradient_clipping=config.get("clip", "none"),
        clipping_value=config.get("cv", 1.0),
        gradient_accumulation=config.get("acc", 1),
    )
    problem, _, updater = training(
        golden, options, torch.float32, tuple(case["overflow_calls"]), warm_up=case["warmup_steps"]
    )
    # What a GPU gets with mixed precision, on the processor.
    scaler = torch.amp.GradScaler("cpu", growth_interval=case["growth_interval"])
    updater._scaler = scaler
    expected = arrays(golden, "grad_scaler.npz")[name]
    for call, row in enumerate(case["rows"]):
        update(updater)
        assert scaler.get_scale() == row["scale_after"]
        assert scaler.state_dict()["_growth_tracker"] == row["growth_tracker_after"]
        state = updater.optimizer.state.get(problem.kernel, {})
        assert float(state.get("step", 0)) == row["adam_step_after"]
        if case["warmup_steps"] == 0:
            np.testing.assert_allclose(problem.flat(), expected[call], rtol=0, atol=1e-5)
        elif call + 1 < len(case["rows"]):  # ours is one update ahead
            assert updater.optimizer.param_groups[0]["lr"] == pytest.approx(case["rows"][call + 1]["lr_before"])
    assert scaler.state_dict() == case["final_scaler_state"]
    if name == "autoclip":
        assert updater.state_dict()["clipper"]["norms"].tolist() == pytest.approx(case["autoclip_history"], rel=1e-5)


def test_warm_up_is_one_update_ahead_of_upstream_s(golden: Path) -> None:
    for case in read(golden, "lr_warmup.json"):
        after = [call["lr_after_call"] for call in case["calls"] if call["is_update"]]
        ours = [case["target_lr"] * warm_up_factor(number, case["warmup_steps"]) for number in range(len(after))]

        assert ours == pytest.approx(after, rel=1e-12, abs=0)
