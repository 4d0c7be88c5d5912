from __future__ import annotations

import pytest

from ostinato.dist import Alone, Group


def test_one_process_is_a_group_of_its_own() -> None:
    group: Group = Alone()
    assert (group.rank, group.size, group.local_rank) == (0, 1, 0)
    assert group.gather("x") == ["x"]
    assert group.broadcast("x") == "x"
    assert group.sum_of([1, 0.5]) == [1.0, 0.5]
    group.barrier()
    error = ValueError("no")
    assert group.explain(error) is error
    group.abort(error)
    group.close()


def left_with(error: BaseException) -> None:
    with Alone() as group:
        assert group.size == 1
        raise error


def test_it_closes_behind_a_block_and_lets_errors_through() -> None:
    with pytest.raises(ValueError, match="no"):
        left_with(ValueError("no"))
