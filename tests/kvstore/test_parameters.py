from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from ostinato.errors import ArgumentValueError, StateError
from ostinato.kvstore.parameter_binding import bind_parameters
from ostinato.kvstore.parameters import ParameterHandle
from ostinato.optim.row_sparse_gradient import RowSparse


def handle_of(*values: float, replicas: int = 1) -> ParameterHandle:
    return ParameterHandle("w", [Parameter(torch.tensor(values)) for _ in range(replicas)])


# --- binding ------------------------------------------------------------------------------------------------------


def test_a_mapping_is_ordered_by_its_keys_as_text_and_a_list_keeps_its_order() -> None:
    weights = {name: Parameter(torch.zeros(1)) for name in ("2.weight", "10.weight", "1.bias")}
    assert [(h.index, h.name) for h in bind_parameters(weights)] == [(0, "1.bias"), (1, "10.weight"), (2, "2.weight")]
    assert [h.name for h in bind_parameters(list(weights.items()))] == ["2.weight", "10.weight", "1.bias"]
    assert [h.name for h in bind_parameters(list(weights.values()))] == ["0", "1", "2"]


def test_named_parameters_of_a_model_go_in_as_they_are() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    for given in (dict(model.named_parameters()), list(model.named_parameters())):
        assert [h.name for h in bind_parameters(given)] == ["0.bias", "0.weight", "1.bias", "1.weight"] or isinstance(
            given, list
        )


def test_tied_layers_are_one_parameter_and_numbers_run_over_what_is_left() -> None:
    tied, other = Parameter(torch.zeros(2)), Parameter(torch.zeros(1))
    handles = bind_parameters({"a.weight": tied, "b.weight": tied, "c.weight": other})
    assert [(h.index, h.name) for h in handles] == [(0, "a.weight"), (1, "c.weight")]


def test_layers_tied_in_one_replica_only_are_refused() -> None:
    tied = Parameter(torch.zeros(2))
    with pytest.raises(ArgumentValueError, match="not all of them"):
        bind_parameters({"a": [tied, Parameter(torch.zeros(2))], "b": [tied, Parameter(torch.zeros(2))]})


def test_two_parameters_of_one_name_are_refused() -> None:
    with pytest.raises(ArgumentValueError, match="Two parameters have the name 'w'"):
        bind_parameters([handle_of(1.0), handle_of(2.0)])


def test_replicas_have_to_be_alike() -> None:
    with pytest.raises(ArgumentValueError, match="differ"):
        bind_parameters({"w": [Parameter(torch.zeros(2)), Parameter(torch.zeros(3))]})
    with pytest.raises(ArgumentValueError, match="no replica"):
        ParameterHandle("w", [])


# --- what the user may set ------------------------------------------------------------------------------------------


def test_multipliers_are_those_of_the_parameter_wherever_they_are_set() -> None:
    handle = handle_of(1.0, replicas=2)
    assert (handle.lr_mult, handle.wd_mult) == (1.0, 1.0)
    handle.replicas[0].lr_mult = 0.5  # type: ignore[attr-defined]
    handle.wd_mult = 2.0
    assert (handle.lr_mult, handle.wd_mult) == (0.5, 2.0)
    again = ParameterHandle("w", handle.replicas)
    assert (again.lr_mult, again.wd_mult) == (0.5, 2.0)


def test_grad_req_null_is_the_same_as_requires_grad_false() -> None:
    handle = handle_of(1.0, replicas=2)
    assert (handle.grad_req, handle.is_trained) == ("add", True)
    handle.grad_req = "null"
    assert [replica.requires_grad for replica in handle.replicas] == [False, False]
    frozen = ParameterHandle("f", [Parameter(torch.zeros(1), requires_grad=False)])
    assert (frozen.grad_req, frozen.is_trained) == ("null", False)
    frozen.grad_req = "write"
    assert frozen.replicas[0].requires_grad
    with pytest.raises(ArgumentValueError, match="'white'"):
        frozen.grad_req = "white"  # type: ignore[assignment]


# --- gradients ------------------------------------------------------------------------------------------------------


def test_backward_overwrites_with_write_and_adds_with_add() -> None:
    for way, expected in (("write", 3.0), ("add", 5.0)):
        handle = handle_of(1.0)
        handle.grad_req = way  # type: ignore[assignment]
        handle.watch()
        (parameter,) = handle.replicas
        for factor in (2.0, 3.0):
            (parameter * factor).sum().backward()
        assert parameter.grad is not None
        assert parameter.grad.item() == expected


def test_a_parameter_that_is_used_twice_in_one_pass_has_the_sum_of_both_uses() -> None:
    handle = handle_of(1.0)
    handle.grad_req = "write"
    (parameter,) = handle.replicas
    (parameter * 2 + parameter * 3).sum().backward()
    assert parameter.grad is not None
    assert parameter.grad.item() == 5.0


def test_freshness_comes_with_backward_and_goes_with_the_gradient() -> None:
    handle = handle_of(1.0, replicas=2)
    handle.watch()
    assert not handle.is_fresh
    handle.replicas[1].sum().backward()
    assert handle.is_fresh
    handle.zero_grad()
    assert not handle.is_fresh
    handle.replicas[0].sum().backward()
    handle.clear_fresh()
    assert not handle.is_fresh
    assert handle.replicas[0].grad is not None
    handle.mark_fresh()
    assert handle.is_fresh


def test_a_gradient_that_somebody_else_left_is_not_fresh() -> None:
    parameter = Parameter(torch.ones(1))
    parameter.sum().backward()
    handle = ParameterHandle("w", [parameter])
    handle.watch()
    assert not handle.is_fresh


def test_a_parameter_that_is_unfrozen_is_watched_and_its_gradient_is_fresh() -> None:
    parameter = Parameter(torch.ones(1), requires_grad=False)
    handle = ParameterHandle("w", [parameter])
    handle.watch()
    parameter.requires_grad_(True)
    parameter.sum().backward()
    handle.watch()
    assert handle.is_fresh


def test_a_lazy_parameter_is_watched_once_it_has_a_shape() -> None:
    module = nn.LazyLinear(2, bias=False)
    handle = ParameterHandle("w", [module.weight])
    handle.watch()
    assert handle.is_deferred
    assert handle.numel() == 0
    module(torch.ones(1, 3)).sum().backward()
    assert not handle.is_deferred
    handle.watch()
    assert handle.is_fresh
    handle.clear_fresh()
    module(torch.ones(1, 3)).sum().backward()
    assert handle.is_fresh


def test_a_replica_without_backward_contributes_zeros_and_its_buffer_stays_as_it_is() -> None:
    handle = handle_of(1.0, 2.0, replicas=2)
    handle.watch()
    for replica in handle.replicas:
        replica.sum().backward()
    handle.clear_fresh()
    handle.replicas[0].sum().backward()
    given = handle.gradients(fill=False)
    assert [g.tolist() for g in given] == [[2, 2], [0, 0]]  # type: ignore[union-attr]
    assert handle.replicas[1].grad is not None
    assert handle.replicas[1].grad.tolist() == [1, 1]


def test_buffers_to_be_filled_are_zeroed_in_place() -> None:
    handle = handle_of(1.0, 2.0, replicas=3)
    handle.watch()
    for replica in handle.replicas[:2]:
        replica.sum().backward()
    held = handle.replicas[1].grad
    handle.grown[1] = False
    given = handle.gradients(fill=True)
    assert [g.tolist() for g in given] == [[1, 1], [0, 0], [0, 0]]  # type: ignore[union-attr]
    assert [replica.grad for replica in handle.replicas] == given
    assert given[1] is held


def test_row_sparse_gradients_are_seen_or_announced() -> None:
    module = nn.Embedding(4, 2, sparse=True)
    handle = ParameterHandle("table", [module.weight])
    assert handle.grad_stype == "default"
    handle.watch()
    module(torch.tensor([1, 1])).sum().backward()
    assert handle.grad_stype == "row_sparse"
    rows = handle.reduced_gradient(0)
    assert isinstance(rows, RowSparse)
    assert (rows.indices.tolist(), rows.values.tolist()) == ([1], [[2, 2]])
    handle.zero_grad()
    module.weight.grad_stype = "row_sparse"  # type: ignore[assignment]
    (empty,) = handle.gradients(fill=False)
    assert isinstance(empty, RowSparse)
    assert len(empty.indices) == 0
    (buffer,) = handle.gradients(fill=True)
    assert module.weight.grad is buffer


def test_a_dense_parameter_has_no_rows_to_pull() -> None:
    for call in (handle_of(1.0).row_sparse_data, handle_of(1.0).list_row_sparse_data):
        with pytest.raises(StateError, match="dense"):
            call(torch.tensor([0]))


# --- life ------------------------------------------------------------------------------------------------------------


def test_a_handle_that_is_gone_leaves_no_hooks_behind() -> None:
    parameter = Parameter(torch.ones(1))
    handle = ParameterHandle("w", [parameter])
    handle.grad_req = "write"
    assert parameter._post_accumulate_grad_hooks
    gone = weakref.ref(handle)
    del handle
    gc.collect()
    assert gone() is None
    assert not parameter._post_accumulate_grad_hooks
    for factor in (1.0, 2.0):
        (parameter * factor).sum().backward()
    assert parameter.grad is not None
    assert parameter.grad.item() == 3.0, "without a trainer, backward adds again"


def test_a_model_whose_parameters_are_watched_can_be_copied() -> None:
    model = nn.Linear(2, 1)
    handles = bind_parameters(dict(model.named_parameters()))
    for handle in handles:
        handle.watch()
    other = copy.deepcopy(model)
    other(torch.ones(1, 2)).sum().backward()
    assert not any(handle.is_fresh for handle in handles)


def test_a_value_is_set_on_all_replicas_and_has_to_have_the_shape() -> None:
    handle = handle_of(1.0, 2.0, replicas=2)
    handle.set_data(torch.tensor([3.0, 4.0], dtype=torch.float64))
    assert [replica.tolist() for replica in handle.replicas] == [[3.0, 4.0]] * 2
    with pytest.raises(ArgumentValueError, match=r"the shape \(2,\), and the new value has \(3,\)"):
        handle.set_data(torch.zeros(3))
