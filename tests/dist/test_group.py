from __future__ import annotations

from ostinato.dist import Alone, Group


def test_one_process_is_a_group_of_its_own() -> None:
    group: Group = Alone()
    assert (group.rank, group.size, group.gather("x")) == (0, 1, ["x"])
