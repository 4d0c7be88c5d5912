from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.loop import is_scalar, read_scalars, report, scope


def test_tensors_are_detached_and_stay_tensors() -> None:
    target: dict[str, Any] = {}
    weight = torch.ones((), requires_grad=True)
    with scope(target):
        report("loss", weight * 2)
        report("weighted", (weight * 3, 4))
    assert not target["loss"].requires_grad
    assert not target["weighted"][0].requires_grad
    assert read_scalars([target["loss"], target["weighted"][0]]) == [2.0, 3.0]


def test_another_thread_does_not_report_into_this_scope() -> None:
    target: dict[str, Any] = {}
    with scope(target):
        thread = threading.Thread(target=report, args=("x", 1))
        thread.start()
        thread.join()
    assert target == {}


@pytest.mark.parametrize("name", [None, 1, b"x"])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises(TypeError):
        report(name, 1)


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        report("", 1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, True),
        (1.5, True),
        (True, True),
        (np.float32(1), True),
        (np.ones(1), True),
        (np.ones(2), False),
        (torch.ones(()), True),
        (torch.ones(1, 1), True),
        (torch.ones(2), False),
        (torch.ones((), dtype=torch.complex64), False),
        ("1", False),
        (None, False),
        ([1], False),
    ],
)
def test_what_counts_as_a_number(value: Any, expected: bool) -> None:
    assert is_scalar(value) is expected


def test_values_of_all_kinds_are_read_in_order_and_exactly() -> None:
    single = torch.tensor(0.1)
    values = [
        1,
        single,
        2.5,
        torch.tensor([[7]]),
        torch.tensor(0.1, dtype=torch.float64),
        np.float32(0.5),
        single.bfloat16(),
    ]
    found = read_scalars(values)
    assert found == [1.0, float(single), 2.5, 7.0, 0.1, 0.5, float(single.bfloat16())]
    assert all(type(number) is float for number in found)
    assert math.isnan(read_scalars([torch.tensor(math.nan)])[0])
    assert read_scalars([]) == []


def test_many_tensors_are_fetched_in_one_transfer() -> None:
    fetches = []

    class Watched(torch.Tensor):
        def tolist(self) -> Any:
            fetches.append("tolist")
            return super().tolist()

        def item(self) -> Any:
            fetches.append("item")
            return super().item()

        def __float__(self) -> float:
            fetches.append("float")
            return super().__float__()

    values = [torch.tensor(float(number)).as_subclass(Watched) for number in range(1000)]
    assert read_scalars(values) == [float(number) for number in range(1000)]
    assert fetches == ["tolist"]


def test_each_asynchronous_task_reports_into_its_own_scope() -> None:
    async def work(number: int) -> dict[str, int]:
        with scope(target := {}):
            for step in range(3):
                await asyncio.sleep(0)  # the others have their turn
                report(f"task {number} step {step}", number)
        return target

    async def all_of_them() -> list[dict[str, int]]:
        return await asyncio.gather(*(work(number) for number in range(3)))

    assert asyncio.run(all_of_them()) == [
        {f"task {number} step {step}": number for step in range(3)} for number in range(3)
    ]
