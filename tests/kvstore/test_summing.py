from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ostinato.kvstore.summing import as_value, sum_values, write_value
from ostinato.optim.row_sparse_gradient import RowSparse

CPU = torch.device("cpu")


def test_the_order_of_the_host_store_is_the_first_plus_fours() -> None:
    # In float32, 1 disappears beside 2**24; so the result tells the order.
    values = [torch.tensor([v]) for v in (2.0**24, 1.0, 1.0)]
    assert sum_values(values, CPU, in_fours=True).item() == 2**24 + 2  # type: ignore[union-attr]
    assert sum_values(values, CPU).item() == 2**24  # type: ignore[union-attr]
    seven = [torch.tensor([float(v)]) for v in range(1, 8)]
    assert sum_values(seven, CPU, in_fours=True).item() == 28  # type: ignore[union-attr]


@pytest.mark.parametrize("in_fours", [True, False])
def test_a_sum_shares_no_memory_with_its_parts(in_fours: bool) -> None:
    part = torch.ones(3)
    total = sum_values([part], CPU, in_fours=in_fours)
    total.fill_(5)  # type: ignore[union-attr]
    assert part.tolist() == [1, 1, 1]
    rows = RowSparse(torch.tensor([1]), torch.ones(1, 2), (3, 2))
    summed = sum_values([rows], CPU)
    summed.values.fill_(5)  # type: ignore[union-attr,operator]
    assert rows.values.tolist() == [[1, 1]]


rows_of_a_table = st.lists(st.integers(0, 5), max_size=4, unique=True).map(sorted)


@given(st.lists(st.tuples(rows_of_a_table, st.booleans()), min_size=1, max_size=4))
def test_rows_add_up_as_their_dense_forms_do(given_rows: list[tuple[list[int], bool]]) -> None:
    values: list[Tensor | RowSparse] = []
    for rows, is_dense in given_rows:
        value = RowSparse(torch.tensor(rows, dtype=torch.int64), torch.full((len(rows), 2), 1.0 + len(rows)), (6, 2))
        values.append(value.to_dense() if is_dense else value)
    total = sum_values(values, CPU)
    dense = torch.stack([v if isinstance(v, Tensor) else v.to_dense() for v in values]).sum(0)
    assert isinstance(total, Tensor) == any(is_dense for _, is_dense in given_rows)
    assert torch.equal(total if isinstance(total, Tensor) else total.checked().to_dense(), dense)


def test_coo_tensors_are_rows() -> None:
    coo = torch.sparse_coo_tensor(torch.tensor([[2, 0, 2]]), torch.ones(3, 2), (4, 2), check_invariants=True)
    value = as_value(coo)
    assert isinstance(value, RowSparse)
    assert (value.indices.tolist(), value.values.tolist()) == ([0, 2], [[1, 1], [2, 2]])


def test_writing_reaches_outputs_of_every_form() -> None:
    rows = RowSparse(torch.tensor([1]), torch.ones(1, 2), (3, 2))
    dense = torch.zeros(3, 2)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.ones(2, 2), (3, 2), check_invariants=True)
    write_value(rows, [dense, sparse])
    assert dense.tolist() == sparse.to_dense().tolist() == [[0, 0], [1, 1], [0, 0]]
    weight = torch.nn.Parameter(torch.zeros(2))
    write_value(torch.ones(2, dtype=torch.float64), [weight, weight.detach()])
    assert weight.tolist() == [1, 1]
