from __future__ import annotations

import pytest

from ostinato.data.count_of import count_of


@pytest.mark.parametrize(("number", "said"), [(0, "0 pairs"), (1, "1 pair"), (2, "2 pairs"), (1000, "1,000 pairs")])
def test_one_is_one_and_thousands_are_cut(number: int, said: str) -> None:
    assert count_of(number, "pair") == said
