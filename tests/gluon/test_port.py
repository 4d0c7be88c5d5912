"""A Gluon training script and its port, side by side."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import torch


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "port" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_both_versions_reach_the_same_parameters(tmp_path: Path) -> None:
    expected = program("train_torch").main(tmp_path)
    found = program("train_ostinato").main(tmp_path)
    start = program("train_torch").network().state_dict()
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)
        assert not torch.allclose(value, start[name], atol=1e-3)
