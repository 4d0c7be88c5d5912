from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ostinato.errors import ArgumentValueError
from ostinato.kvstore import replica_parameters, replicate, split_and_load, split_data


@given(st.integers(1, 20), st.integers(1, 6))
def test_shares_are_whole_and_differ_by_one_at_most(size: int, shares: int) -> None:
    data = torch.arange(size)
    if size < shares:
        with pytest.raises(ArgumentValueError, match="cannot be cut"):
            split_data(data, shares, even_split=False)
        return
    parts = split_data(data, shares, even_split=False)
    assert torch.equal(torch.cat(parts), data)
    sizes = [len(part) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1
    if size % shares:
        with pytest.raises(ArgumentValueError, match="equal shares"):
            split_data(data, shares)
    else:
        assert [len(part) for part in split_data(data, shares)] == sizes


def test_shares_are_views_along_any_dimension() -> None:
    data = torch.zeros(3, 4)
    parts = split_data(data, 2, batch_axis=1)
    parts[1].fill_(1)
    assert data.tolist() == [[0, 0, 1, 1]] * 3


def test_shares_go_to_their_devices_and_a_single_device_gets_everything() -> None:
    data = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert [part.tolist() for part in split_and_load(data, ["cpu"])] == [data.tolist()]
    assert [len(part) for part in split_and_load(data, ["cpu", "cpu"], even_split=False)] == [2, 1]
    assert [part.device.type for part in split_and_load(data, ["cpu", "meta"], even_split=False)] == ["cpu", "meta"]


def test_replicas_are_equal_and_apart_and_keep_what_was_set() -> None:
    model = nn.Linear(2, 1)
    model.weight.lr_mult = 0.5  # type: ignore[assignment]
    replicas = replicate(model, ["cpu", "cpu", "cpu"])
    assert replicas[0] is model
    parameters = replica_parameters(replicas)
    assert list(parameters) == ["weight", "bias"]
    assert len({id(p) for p in parameters["weight"]}) == 3
    assert all(torch.equal(p, model.weight) and p.lr_mult == 0.5 for p in parameters["weight"])  # type: ignore[attr-defined]


def test_tied_layers_stay_tied_in_every_replica() -> None:
    model = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    model["b"].weight = model["a"].weight
    replicas = replicate(model, ["cpu", "cpu"])
    assert list(replica_parameters(replicas)) == ["a.weight"]


def test_a_model_needs_a_device() -> None:
    with pytest.raises(ArgumentValueError, match="no device"):
        replicate(nn.Linear(1, 1), [])
    with pytest.raises(ArgumentValueError, match="Only some"):
        replica_parameters([nn.Linear(1, 1, bias=False), nn.Linear(1, 1)])
