from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ostinato.errors import ArgumentTypeError, StateError
from ostinato.runs import GenerationContent, GenerationWriter, RunFolder
from ostinato.runs.atomic import set_hook
from ostinato.runs.host_copy import HostCopy

MakeContent = Callable[..., GenerationContent]


@pytest.fixture
def writer(run: RunFolder):
    writer = GenerationWriter(run).open()
    yield writer
    writer.close()


def test_training_may_change_everything_right_after_submit(
    run: RunFolder, writer: GenerationWriter, make_content: MakeContent
) -> None:
    gate = threading.Event()
    set_hook(lambda _moment, _operation, _path: gate.wait(120) and None)
    content = make_content(10)
    writer.submit(content)
    for tensor in content.model.values():
        tensor.zero_()
    content.state["position"] = -1
    content.optimizer["state"].clear()
    gate.set()
    (result,) = writer.flush()
    assert result.error is None
    loaded = run.load_newest()
    assert loaded is not None
    expected = make_content(10)
    assert all(torch.equal(loaded.model[name], tensor) for name, tensor in expected.model.items())
    assert loaded.state["position"] == 80
    assert loaded.optimizer["state"].keys() == {"encoder.weight"}


def test_submit_returns_before_the_disk_is_done_and_the_next_one_waits(
    writer: GenerationWriter, make_content: MakeContent
) -> None:
    gate = threading.Event()
    set_hook(lambda _moment, _operation, _path: gate.wait(120) and None)
    writer.submit(make_content(10))
    assert writer.poll() == []
    waiting = threading.Thread(target=writer.submit, args=(make_content(20),))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    gate.set()
    waiting.join(120)
    assert [result.iteration for result in writer.flush()] == [10, 20]


def test_a_failed_save_is_a_result_and_the_next_one_works(
    run: RunFolder, writer: GenerationWriter, make_content: MakeContent
) -> None:
    def full(_moment: str, operation: str, _path: Path) -> None:
        if operation == "write":
            raise OSError(28, "No space left on device")

    writer.submit(make_content(10))
    writer.flush()
    set_hook(full)
    writer.submit(make_content(20))
    (result,) = writer.flush()
    set_hook(None)
    assert "Free some space" in str(result.error)
    assert [str(name) for name in run.names()] == ["00000010"]
    writer.submit(make_content(30))
    assert writer.flush()[0].error is None


def test_a_fault_in_the_program_costs_a_save_and_not_the_training(
    run: RunFolder, writer: GenerationWriter, make_content: MakeContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "commit", lambda *_arguments: 1 / 0)
    writer.submit(make_content(10))
    (result,) = writer.flush()
    assert "please report" in str(result.error)


def test_without_memory_for_a_copy_the_state_is_saved_anyway(
    run: RunFolder, writer: GenerationWriter, make_content: MakeContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_arguments: object, **_named: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "empty", no_memory)
    writer.submit(make_content(10))
    (result,) = writer.poll()
    assert result.error is None
    assert run.load_newest() is not None


def test_a_save_that_runs_out_of_memory_fails_with_advice(
    run: RunFolder, writer: GenerationWriter, make_content: MakeContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr("ostinato.runs.folder.write_generation", no_memory)
    writer.submit(make_content(10))
    (result,) = writer.flush()
    assert "lower the batch size" in str(result.error)


def test_the_block_is_used_again() -> None:
    copy = HostCopy()
    first = copy.copy({"a": torch.ones(1000)})["a"]
    size = copy.allocated_bytes
    second = copy.copy({"a": torch.zeros(1000)})["a"]
    assert first.data_ptr() == second.data_ptr()
    assert copy.allocated_bytes == size


def test_memory_got_beforehand_is_what_the_first_save_uses(
    run: RunFolder, writer: GenerationWriter, make_content: MakeContent
) -> None:
    content = make_content(10)
    writer.prepare(run.pack(content).tensors.values())
    assert writer.flush() == []
    block = writer._copy._block
    writer.submit(content)
    assert writer._copy._block.data_ptr() == block.data_ptr()
    assert writer.flush()[0].error is None


def test_copies_keep_shape_type_value_and_memory_order() -> None:
    tensors = {
        "last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "turned": torch.randn(4, 3).t(),
        "cut": torch.randn(10)[::2],
        "half": torch.randn(3).bfloat16(),
        "flag": torch.tensor(True),
        "none": torch.empty(0, 4),
    }
    copies = HostCopy().copy(tensors)
    for name, tensor in tensors.items():
        assert copies[name].dtype == tensor.dtype
        assert torch.equal(copies[name], tensor)
    assert copies["last"].stride() == tensors["last"].stride()


def test_what_cannot_be_saved_is_said_at_once(writer: GenerationWriter, make_content: MakeContent) -> None:
    with pytest.raises(ArgumentTypeError, match=r"odd"):
        writer.submit(make_content(10, state={"odd": object()}))
    writer.submit(make_content(10))
    assert writer.flush()[0].error is None


def test_a_closed_writer_refuses(run: RunFolder, make_content: MakeContent) -> None:
    with pytest.raises(StateError):
        GenerationWriter(run).submit(make_content(1))
