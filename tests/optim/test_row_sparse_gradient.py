"""Row-sparse gradients: built from rows and from COO tensors, checked, and made dense."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.optim.row_sparse_gradient import RowSparse


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), max_size=12))
def test_rows_in_any_order_and_listed_twice_give_the_summed_table(rows: list[int]) -> None:
    indices = torch.tensor(rows, dtype=torch.int64)
    values = torch.arange(len(rows) * 2, dtype=torch.float64).reshape(len(rows), 2)
    made = RowSparse.from_rows(indices, values, (7, 2)).checked()
    expected = torch.zeros(7, 2, dtype=torch.float64)
    for row, value in zip(rows, values, strict=True):
        expected[row] += value
    assert torch.equal(made.to_dense(), expected)
    assert made.indices.tolist() == sorted(set(rows))
    assert torch.equal(made.to_coo().to_dense(), expected)
    assert torch.equal(RowSparse.from_coo(made.to_coo()).indices, made.indices)


def test_the_gradient_of_a_sparse_embedding_is_taken_as_rows() -> None:
    embedding = nn.Embedding(5, 3, sparse=True)
    embedding(torch.tensor([4, 1, 4])).sum().backward()
    assert embedding.weight.grad is not None
    gradient = RowSparse.from_coo(embedding.weight.grad)
    assert gradient.indices.tolist() == [1, 4]
    assert gradient.values.tolist() == [[1.0] * 3, [2.0] * 3]
    assert gradient.shape == (5, 3)
    assert (gradient.dtype, gradient.device.type) == (torch.float32, "cpu")


def test_a_table_of_numbers_has_rows_too() -> None:
    made = RowSparse.from_rows(torch.tensor([2, 0]), torch.tensor([5.0, 7.0]), (4,))
    assert made.to_dense().tolist() == [7.0, 0.0, 5.0, 0.0]
    assert RowSparse.empty((4,)).to_dense().tolist() == [0.0] * 4


def test_row_numbers_outside_the_table_are_refused() -> None:
    for rows in ([0, 3], [-1, 2]):
        with pytest.raises(ArgumentValueError, match="outside a table of 3 rows") as caught:
            RowSparse.from_rows(torch.tensor(rows), torch.ones(2, 2), (3, 2))
        assert caught.value.fields["row"] in (-1, 3)
    with pytest.raises(ArgumentValueError, match="outside a table"):
        RowSparse(torch.tensor([3]), torch.ones(1, 2), (3, 2)).checked()


def test_checking_finds_rows_out_of_order_and_rows_listed_twice() -> None:
    for rows in ([1, 0], [1, 1]):
        with pytest.raises(ArgumentValueError, match="ascend"):
            RowSparse(torch.tensor(rows), torch.ones(2, 2), (3, 2)).checked()


def test_parts_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="int64"):
        RowSparse(torch.tensor([0], dtype=torch.int32), torch.ones(1, 2), (3, 2))
    for values, shape in ((torch.ones(2, 2), (3, 2)), (torch.ones(1, 3), (3, 2)), (torch.ones(()), ())):
        with pytest.raises(ArgumentValueError, match="do not make a table"):
            RowSparse(torch.tensor([0]), values, shape)
    with pytest.raises(ArgumentValueError, match="the rows on meta"):
        RowSparse(torch.tensor([0]), torch.ones(1, 2, device="meta"), (3, 2))
    with pytest.raises(ArgumentTypeError, match="strided"):
        RowSparse.from_coo(torch.ones(2, 2))
    with pytest.raises(ArgumentTypeError, match="2 sparse dimensions"):
        RowSparse.from_coo(torch.ones(2, 2).to_sparse())
