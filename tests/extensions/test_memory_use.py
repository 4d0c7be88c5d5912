from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from loop_stand_ins import CountingUpdater

from ostinato.extensions import memory_use as module
from ostinato.extensions.memory_use import MemoryUse, memory_use
from ostinato.loop import Trainer


def test_sizes_of_this_process_are_reported_in_bytes() -> None:
    seen: list[dict[str, Any]] = []
    trainer = Trainer(CountingUpdater(), (200, "iteration"), extensions=[MemoryUse()])
    trainer.extend(lambda trainer: seen.append(dict(trainer.observation)), trigger=(50, "iteration"), name="look")
    trainer.run()
    assert [sorted(numbers) for numbers in seen][0::2] == [[], []]
    if sys.platform == "linux":
        assert 1e6 < seen[1]["memory/host"] <= seen[1]["memory/host_peak"] < 1e13


def test_pages_and_kibibytes_become_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    statm = tmp_path / "statm"
    statm.write_text("900 300 20 1 0 50 0\n")
    monkeypatch.setattr(module, "_STATM", statm)
    monkeypatch.setattr(module.os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096}[name])
    usage = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=2000))
    monkeypatch.setitem(sys.modules, "resource", usage)
    monkeypatch.setattr(module.sys, "platform", "linux")
    assert memory_use() == {"host": 300 * 4096, "host_peak": 2000 * 1024}
    monkeypatch.setattr(module.sys, "platform", "darwin")  # which counts the peak in bytes
    assert memory_use() == {"host": 300 * 4096, "host_peak": 300 * 4096}


def test_with_cuda_the_maxima_of_the_device_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 7)
    sizes = memory_use()
    assert (sizes["allocated_peak"], sizes["reserved_peak"]) == (5, 7)


def test_what_a_system_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_STATM", tmp_path / "absent")
    monkeypatch.setitem(sys.modules, "resource", None)
    assert memory_use() == {}
