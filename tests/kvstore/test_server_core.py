from __future__ import annotations

from typing import Any

import pytest
import torch

from ostinato.errors import ArgumentValueError
from ostinato.kvstore.compression import CompressionScheme, Compressor, decode
from ostinato.kvstore.server_core import WAIT, ServerCore
from ostinato.optim.rate_schedules import FactorSchedule
from ostinato.optim.rules import create


def settings(optimizer: Any, **multipliers: list[float]) -> dict[str, Any]:
    return {"optimizer": optimizer.state_dict(), "multipliers": multipliers}


def core_with(optimizer: Any, workers: int = 2, **options: Any) -> ServerCore:
    core = ServerCore(workers, **options)
    assert core.handle(0, {"call": "optimizer", "settings": settings(optimizer)}) == {}
    assert core.handle(0, {"call": "init", "values": {"w": torch.tensor([1.0, 2.0]), "t": torch.zeros(4, 2)}}) == {}
    return core


def push(core: ServerCore, worker: int, *values: float, **more: Any) -> Any:
    return core.handle(worker, {"call": "push", "values": {"w": torch.tensor(values)}, **more})


def pull(core: ServerCore, worker: int = 0, key: str = "w") -> list[float]:
    return core.handle(worker, {"call": "pull", "keys": [key]})["values"][key].tolist()


def test_worker_0_says_what_a_key_begins_with_and_the_others_wait_for_it() -> None:
    core = ServerCore(2)
    assert core.handle(1, {"call": "init", "values": {"w": None}}) is WAIT
    assert core.handle(1, {"call": "pull", "keys": ["w"]}) is WAIT
    core.handle(0, {"call": "init", "values": {"w": torch.ones(2)}})
    assert core.handle(1, {"call": "init", "values": {"w": None}}) == {}
    assert pull(core, 1) == [1, 1]


def test_a_worker_0_that_comes_back_finds_what_it_left() -> None:
    core = core_with(create("sgd", learning_rate=0.5))
    push(core, 0, 1.0, 1.0)
    core.handle(0, {"call": "init", "values": {"w": torch.zeros(2)}})
    assert pull(core) == [0.5, 1.5]
    assert core.handle(0, {"call": "init", "values": {"w": torch.zeros(3)}})["kind"] == "ArgumentValueError"


def test_every_push_is_applied_and_counted() -> None:
    core = core_with(create("sgd", lr_scheduler=FactorSchedule(step=1, factor=0.5, base_lr=1.0)))
    answers = [push(core, worker, 1.0, 0.0) for worker in (0, 1, 0)]
    assert [answer["versions"]["w"] for answer in answers] == [1, 2, 3]
    assert [answer["num_update"] for answer in answers] == [1, 2, 3]
    assert pull(core) == [1 - 1 - 0.5 - 0.25, 2]


def test_answers_share_no_memory_with_what_is_stored() -> None:
    core = core_with(create("sgd", learning_rate=1.0))
    before = core.handle(0, {"call": "pull", "keys": ["w"]})["values"]["w"]
    push(core, 0, 1.0, 1.0)
    assert before.tolist() == [1, 2]


def test_hyper_parameters_are_those_of_the_worker_that_pushes() -> None:
    optimizer = create("sgd", learning_rate=1.0)
    core = core_with(optimizer)
    push(core, 0, 1.0, 1.0)
    optimizer.set_learning_rate(0.5)
    push(core, 1, 1.0, 1.0, settings=settings(optimizer))
    push(core, 0, 1.0, 1.0, settings=settings(optimizer, w=[0.0, 1.0]))
    assert pull(core) == [-0.5, 0.5]


def test_a_push_without_optimizer_is_refused() -> None:
    core = ServerCore(1)
    core.handle(0, {"call": "init", "values": {"w": torch.zeros(2)}})
    answer = push(core, 0, 1.0, 1.0)
    assert answer["kind"] == "StateError"
    assert "has to update" in answer["advice"]


@pytest.mark.parametrize(
    "request_",
    [
        {"call": "push", "values": {"unknown": torch.zeros(2)}},
        {"call": "push", "values": {"w": torch.zeros(3)}},
        {"call": "push", "values": {"t": {"rows": torch.tensor([4]), "values": torch.zeros(1, 2)}}},
        {"call": "push", "values": {"t": {"rows": torch.tensor([2, 1]), "values": torch.zeros(2, 2)}}},
        {"call": "pull_rows", "key": "t", "rows": torch.tensor([-1])},
        {"call": "set_value", "key": "w", "value": torch.zeros(3)},
        {"call": "nonsense"},
    ],
    ids=["unknown key", "shape", "row out of range", "rows out of order", "row to pull", "value", "call"],
)
def test_a_request_that_cannot_be_carried_out_changes_nothing(request_: dict[str, Any]) -> None:
    core = core_with(create("sgd", learning_rate=1.0))
    assert core.handle(0, request_)["kind"] == "ArgumentValueError"
    assert pull(core) == [1, 2]
    assert core.handle(0, {"call": "pull", "keys": ["w", "t"]})["versions"] == {"w": 0, "t": 0}


def test_rows_are_updated_alone_and_no_rows_are_no_update() -> None:
    core = core_with(create("sgd", learning_rate=1.0, lazy_update=True))
    rows = {"rows": torch.tensor([1, 3]), "values": torch.ones(2, 2)}
    assert core.handle(0, {"call": "push", "values": {"t": rows}})["versions"] == {"t": 1}
    none = {"rows": torch.empty(0, dtype=torch.int64), "values": torch.empty(0, 2)}
    assert core.handle(1, {"call": "push", "values": {"t": none}})["versions"] == {"t": 1}
    pulled = core.handle(0, {"call": "pull_rows", "key": "t", "rows": torch.tensor([0, 3])})
    assert pulled["values"].tolist() == [[0, 0], [-1, -1]]


def test_compressed_gradients_are_decoded() -> None:
    core = core_with(create("sgd", learning_rate=1.0))
    compressor = Compressor(CompressionScheme("2bit", 0.1))
    packed = compressor.compress("w", torch.tensor([0.3, -0.05]))
    value = {"packed": packed, "elements": 2, "type": "2bit", "threshold": compressor.scheme.threshold}
    core.handle(0, {"call": "push", "values": {"w": value}})
    expected = torch.tensor([1.0, 2.0]) - decode(compressor.scheme, packed, 2)
    assert pull(core) == expected.tolist()


def test_a_worker_that_is_too_far_ahead_waits_for_the_slowest() -> None:
    core = core_with(create("sgd", learning_rate=1.0), workers=3, staleness=1)
    assert push(core, 0, 1.0, 0.0) is not WAIT
    assert push(core, 0, 1.0, 0.0) is not WAIT  # one ahead is allowed, so the second push still goes through
    assert push(core, 0, 1.0, 0.0) is WAIT
    assert pull(core) == [-1, 2]
    push(core, 1, 0.0, 0.0)
    assert push(core, 0, 1.0, 0.0) is WAIT
    core.lost(2)
    assert push(core, 0, 1.0, 0.0) is not WAIT
    core.arrived(2)  # it comes back, level with the slowest of the others
    assert push(core, 1, 0.0, 0.0) is not WAIT


def test_a_barrier_opens_when_everybody_who_is_there_has_come() -> None:
    core = ServerCore(3)
    assert core.handle(0, {"call": "barrier", "number": 1}) is WAIT
    assert core.handle(0, {"call": "barrier", "number": 1}) is WAIT  # asking again is not coming twice
    assert core.handle(1, {"call": "barrier", "number": 1}) is WAIT
    core.lost(2)
    assert core.handle(0, {"call": "barrier", "number": 1}) == {}
    assert core.handle(0, {"call": "barrier", "number": 2}) is WAIT
    assert core.handle(1, {"call": "barrier", "number": 1}) == {}


def test_workers_that_come_back_wait_for_one_another_again() -> None:
    core = ServerCore(2)
    assert core.handle(0, {"call": "barrier", "number": 1}) is WAIT
    assert core.handle(1, {"call": "barrier", "number": 1}) == {}
    for worker in range(2):
        core.lost(worker)
        core.arrived(worker)
    assert core.handle(1, {"call": "barrier", "number": 1}) is WAIT
    assert core.handle(0, {"call": "barrier", "number": 1}) == {}


def test_each_worker_is_compared_with_what_it_pulled_itself() -> None:
    core = core_with(create("dcasgd", learning_rate=0.1, lamda=2.0))
    pull(core, 0)
    pull(core, 1)
    push(core, 0, 1.0, -1.0)  # seen and stored are equal: a plain step
    assert pull(core, 0) == pytest.approx([0.9, 2.1])
    push(core, 1, 2.0, 0.5)  # worker 1 still sees [1, 2]
    expected = [0.9 - 0.1 * (2 + 2 * 4 * (0.9 - 1)), 2.1 - 0.1 * (0.5 + 2 * 0.25 * (2.1 - 2))]
    assert pull(core, 1) == pytest.approx(expected)


def test_states_are_saved_and_loaded() -> None:
    rule = create("sgd", learning_rate=0.1, momentum=0.9)
    first, second = core_with(rule), core_with(rule)
    for _ in range(3):
        push(first, 0, 1.0, 2.0)
    saved = first.handle(0, {"call": "save"})
    second.handle(0, {"call": "set_value", "key": "w", "value": torch.tensor(pull(first))})
    assert second.handle(0, {"call": "load", **saved}) == {}
    push(first, 0, 1.0, 2.0)
    assert push(second, 0, 1.0, 2.0)["num_update"] == 4
    assert pull(first) == pull(second)


def test_a_server_ends_when_all_workers_have_said_goodbye() -> None:
    core = ServerCore(2)
    core.handle(0, {"call": "bye"})
    assert not core.has_finished
    core.handle(1, {"call": "bye"})
    assert core.has_finished


def test_a_bound_below_zero_is_refused() -> None:
    with pytest.raises(ArgumentValueError):
        ServerCore(2, staleness=-1)
