"""The tables of single extensions, and the rows of existing systems with which they agree."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ostinato.extensions import rate_shifts


def _optimizer(rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)


def _run(shift: Any, optimizer: torch.optim.Optimizer, calls: int) -> list[float]:
    trainer = SimpleNamespace(updater=SimpleNamespace(optimizers={"main": optimizer}))
    shift.initialize(trainer)
    values = [optimizer.param_groups[0]["lr"]]
    for _ in range(calls):
        shift(trainer)
        values.append(optimizer.param_groups[0]["lr"])
    return values


def test_shift_extensions_agree_with_chainer(golden: Path) -> None:
    cases = json.loads((golden / "training-loop" / "shift_extensions.chainer.json").read_text())["cases"]
    compared = 0
    for case in cases:
        make = getattr(rate_shifts, case["extension"])
        if "construct" in case:
            if case["construct"] == "ValueError":
                with pytest.raises(ValueError, match=case["extension"]):
                    make("lr", **case["arguments"])
            else:
                make("lr", **case["arguments"])
        elif "values" in case:
            # One row ends with the division by zero of a polynomial with a target; here the target is simply held.
            expected = [value for value in case["values"] if not isinstance(value, str)]
            expected += [case["arguments"].get("target")] * (9 - len(expected))
            found = _run(make("lr", **case["arguments"]), _optimizer(case["learning_rate_before"]), 8)
            assert found == pytest.approx(expected, rel=1e-12, abs=0), case
            compared += 1
    assert compared == 21


def test_a_resumed_shift_goes_on_whether_or_not_its_optimizer_was_restored(golden: Path) -> None:
    cases = json.loads((golden / "training-loop" / "shift_extensions.chainer.json").read_text())["cases"]
    rows = [case for case in cases if "uninterrupted_next" in case]
    assert len(rows) == 2
    for case in rows:
        make = getattr(rate_shifts, case["extension"])
        optimizer = _optimizer(0.1)
        shift = make("lr", **case["arguments"])
        before = _run(shift, optimizer, 3)[-1]
        resumed = make("lr", **case["arguments"])
        resumed.load_state_dict(json.loads(json.dumps(shift.state_dict())))
        # Chainer reads the start value from the decayed rate in the second row; here it is part of the saved state.
        after = _run(resumed, _optimizer(0.1) if "before_save" in case else optimizer, 1)
        assert after == pytest.approx([before, case["uninterrupted_next"]], rel=1e-12)
