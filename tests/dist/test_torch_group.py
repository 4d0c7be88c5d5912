"""The group of several processes, with real ones."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from rank_processes import run_on_ranks

from ostinato.dist import Alone, Placement, open_group
from ostinato.errors import BadInputError, RankFailedError


def everything_a_group_offers(group: Any) -> dict[str, Any]:
    import torch.distributed

    group.barrier()
    return {
        "place": (group.rank, group.size, group.local_rank),
        "gathered": group.gather({"rank": group.rank, "name": "ä" * group.rank}),
        "from 0": group.broadcast(f"rank {group.rank}"),
        "from 2": group.broadcast([group.rank] if group.rank == 2 else None, source=2),
        "sums": group.sum_of([0.1, 10.0**group.rank, 1e308 * (group.rank < 2), math.inf if group.rank else -math.inf]),
        "none": group.sum_of([]),
        "repr": repr(group),
        "torch": (torch.distributed.get_rank(), torch.distributed.get_world_size(), torch.distributed.get_backend()),
    }


def test_three_ranks_exchange_small_things(tmp_path) -> None:
    results = run_on_ranks(everything_a_group_offers, folder=tmp_path, ranks=3)
    assert [result.exit_code for result in results] == [0, 0, 0], results
    for rank, result in enumerate(results):
        assert result.value["place"] == (rank, 3, rank)
        assert result.value["gathered"] == [{"rank": number, "name": "ä" * number} for number in range(3)]
        assert (result.value["from 0"], result.value["from 2"]) == ("rank 0", [2])
        tenths, powers, huge, infinite = result.value["sums"]
        assert (tenths, powers, huge) == (math.fsum([0.1] * 3), 111.0, math.inf)
        assert math.isnan(infinite)
        assert result.value["none"] == []
        assert result.value["repr"] == f"TorchGroup(rank={rank}, size=3)"
        assert result.value["torch"] == (rank, 3, "gloo")


def rank_1_raises(group: Any) -> None:
    group.barrier()
    if group.rank == 1:
        raise ValueError("the disk of rank 1 is full")
    group.gather("still here")


def plain_torch_meets_a_killed_rank(group: Any) -> None:
    import torch
    import torch.distributed

    torch.distributed.barrier()
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        torch.distributed.all_reduce(torch.ones(1))
    except RuntimeError as error:
        raise group.explain(error) from None


def rank_1_is_killed(group: Any) -> None:
    group.barrier()
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    group.gather("still here")


def rank_1_leaves(group: Any) -> None:
    if group.rank == 0:
        group.gather("still here")


def plain_torch_meets_a_failure(group: Any) -> None:
    import torch
    import torch.distributed

    torch.distributed.barrier()
    if group.rank == 1:
        raise ValueError("the disk of rank 1 is full")
    try:
        torch.distributed.all_reduce(torch.ones(1))
    except RuntimeError as error:
        assert group.explain(KeyError("x")).args == ("x",)
        raise group.explain(error) from None


@pytest.mark.parametrize("function", [rank_1_raises, plain_torch_meets_a_failure])
def test_a_rank_that_raises_makes_the_others_say_so_instead_of_waiting(tmp_path, function) -> None:
    first, second, third = run_on_ranks(function, folder=tmp_path, ranks=3, timeout=200)
    assert [type(result.error) for result in (first, second, third)] == [RankFailedError, ValueError, RankFailedError]
    assert [result.exit_code for result in (first, second, third)] == [1, 1, 1]
    for result in (first, third):
        assert result.error.fields == {"rank": 1, "error": "ValueError: the disk of rank 1 is full"}
        assert f"Rank 1 failed, so rank {result.rank} cannot go on." in str(result.error)
        assert "gloo" not in result.output


def rank_1_has_bad_input(group: Any) -> int:
    if group.rank == 1:
        raise BadInputError("There is no faces.")
    with pytest.raises(RankFailedError) as caught:
        group.barrier()
    return caught.value.exit_code


def test_all_ranks_end_with_the_status_of_the_one_that_failed(tmp_path) -> None:
    first, second = run_on_ranks(rank_1_has_bad_input, folder=tmp_path, timeout=200)
    assert isinstance(second.error, BadInputError)
    assert first.value == BadInputError.exit_code


@pytest.mark.parametrize(
    ("function", "code"),
    [(rank_1_is_killed, -signal.SIGKILL), (plain_torch_meets_a_killed_rank, -signal.SIGKILL), (rank_1_leaves, 0)],
)
def test_a_rank_that_is_gone_without_a_word_makes_the_others_fail(tmp_path, function, code) -> None:
    first, second = run_on_ranks(function, folder=tmp_path, timeout=200)
    assert second.exit_code == code
    assert isinstance(first.error, RankFailedError)
    assert "Another rank has ended without a word" in str(first.error)


def rank_1_does_not_come(group: Any, folder: str) -> str:
    if group.rank == 0:
        try:
            group.barrier()
        except RankFailedError as error:
            Path(folder, "rank 0 has given up").touch()
            return str(error)
    while not Path(folder, "rank 0 has given up").exists():
        os.sched_yield()
    return ""


def test_a_rank_that_does_not_come_is_waited_for_as_long_as_was_said(tmp_path) -> None:
    first, _ = run_on_ranks(rank_1_does_not_come, str(tmp_path), folder=tmp_path, timeout=0.5)
    assert first.value.startswith("Rank 0 waited 0.5 seconds for the others, and not all of them came.")


def meets_over_the_environment(placement: Placement, meeting: Path) -> Any:
    """As under mpirun, on a port that rank 0 has found free."""
    import torch.distributed

    keeper = None
    if placement.rank == 0:
        keeper = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        meeting.with_suffix(".new").write_text(str(keeper.port))
        meeting.with_suffix(".new").rename(meeting)
    while not meeting.exists():
        os.sched_yield()
    # As under torchrun: the store is kept by somebody who is there already.
    os.environ.update(
        RANK=str(placement.rank),
        WORLD_SIZE=str(placement.size),
        LOCAL_RANK=str(placement.rank),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=meeting.read_text(),
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    with open_group(backend="gloo", timeout=200) as group:
        everyone = group.gather(group.rank)
        with open_group(timeout=200) as adopted:  # what a program has started itself is taken over
            everyone += adopted.gather(adopted.rank)
        group.barrier()
    with pytest.raises(RuntimeError, match="is closed"):
        group.barrier()
    group.close()
    return everyone


def test_ranks_meet_at_the_address_in_the_environment(tmp_path) -> None:
    results = run_on_ranks(meets_over_the_environment, folder=tmp_path, opened=False)
    assert [(result.value, result.error) for result in results] == [([0, 1, 0, 1], None)] * 2


def alone_with_a_backend(placement: Placement, meeting: Path) -> Any:
    import torch.distributed

    with open_group(backend="gloo", placement=placement) as group:
        return torch.distributed.get_backend(), group.gather(5), group.sum_of([0.5])


def test_a_world_of_one_starts_torch_only_when_a_backend_is_named(tmp_path) -> None:
    assert isinstance(open_group(placement=Placement(0, 1, 0)), Alone)
    (result,) = run_on_ranks(alone_with_a_backend, folder=tmp_path, opened=False, ranks=1)
    assert result.value == ("gloo", [5], [0.5])


def rank_0_fails_and_keeps_the_store(placement: Placement, meeting: Path) -> None:
    """As under mpirun: the store ends with rank 0, so its last words have to be read before."""
    import torch.distributed as distributed

    from ostinato.dist import torch_group

    torch_group._SECONDS_FOR_READERS = 100.0
    if placement.rank == 0:
        store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        meeting.with_suffix(".new").write_text(str(store.port))
        meeting.with_suffix(".new").rename(meeting)
    else:
        while not meeting.exists():
            os.sched_yield()
        store = distributed.TCPStore("127.0.0.1", int(meeting.read_text()), is_master=False)
    distributed.init_process_group("gloo", store=store, rank=placement.rank, world_size=placement.size)
    # The process group is nobody else's: its connections end with the last who holds it.
    with torch_group.TorchGroup(
        placement, distributed.new_group(backend="gloo"), store, 200, keeps_store=placement.rank == 0
    ) as group:
        group.barrier()
        if placement.rank == 0:
            raise ValueError("the disk of rank 0 is full")
        group.gather("still here")


def test_the_last_words_of_the_rank_that_keeps_the_store_are_read(tmp_path) -> None:
    first, second, third = run_on_ranks(rank_0_fails_and_keeps_the_store, folder=tmp_path, ranks=3, opened=False)
    assert isinstance(first.error, ValueError)
    for result in (second, third):
        assert isinstance(result.error, RankFailedError)
        assert result.error.fields == {"rank": 0, "error": "ValueError: the disk of rank 0 is full"}
