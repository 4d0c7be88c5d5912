"""What the parameter trainer does; what it refuses is in ``test_parameter_trainer_errors.py``."""

from __future__ import annotations

import gc
import itertools
import logging
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kvstore_stand_ins import OtherRankStore, assert_near, backward, backward_all, make, two_parameters, values
from torch import nn
from torch.nn import Parameter

from ostinato.errors import UpdateRefusedError
from ostinato.kvstore import (
    AsyncStore,
    LossScaler,
    ParameterTrainer,
    create,
    replica_parameters,
    replicate,
    split_and_load,
)
from ostinato.kvstore.server_core import ServerCore
from ostinato.kvstore.server_desk import ServerDesk
from ostinato.kvstore.transport_in_process import InProcessTransport
from ostinato.optim.rate_schedules import FactorSchedule
from ostinato.optim.rules import SGD, registered_names

STORES: list[tuple[str | None, bool | None]] = [
    (None, None),
    ("local", True),
    ("local", False),
    ("device", True),
    ("device", False),
    ("dist_sync", True),
    ("dist_sync", False),
    ("dist_async", True),
]
"""Every way of updating: name of the store, and whether it updates. The distributed ones have a single worker here."""


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


# --- one result, whatever the way ------------------------------------------------------------------------------------


def trained(
    replicas: int, store: str | None, on_store: bool | None, optimizer: str, **arguments: Any
) -> list[torch.Tensor]:
    """A model after four steps on batches of 12, summed losses."""
    copies = replicate(model(), ["cpu"] * replicas)
    trainer = ParameterTrainer(
        replica_parameters(copies), optimizer, arguments, kvstore=store, update_on_kvstore=on_store
    )
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        inputs = torch.randn(12, 3, generator=generator)
        targets = torch.randn(12, 2, generator=generator)
        shares = zip(
            copies,
            split_and_load(inputs, ["cpu"] * replicas, even_split=False),
            split_and_load(targets, ["cpu"] * replicas, even_split=False),
            strict=True,
        )
        trainer.zero_grad()
        for copy, x, y in shares:
            (copy(x) - y).square().sum().backward()
        trainer.step(12)
    for other in copies[1:]:
        assert all(torch.equal(p, q) for p, q in zip(copies[0].parameters(), other.parameters(), strict=True))
    return [p.detach() for p in copies[0].parameters()]


@settings(max_examples=50)
@given(
    st.integers(1, 5),
    st.sampled_from(STORES),
    st.sampled_from(
        [
            ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01, "clip_gradient": 0.05}),
            ("adam", {"learning_rate": 0.01}),
            ("rmsprop", {"learning_rate": 0.01, "centered": True}),
            ("lars", {"learning_rate": 0.1, "momentum": 0.9, "eta": 0.1}),
        ]
    ),
)
def test_any_number_of_replicas_gives_what_one_gives_on_the_joined_batch(
    replicas: int, store: tuple[str | None, bool | None], rule: tuple[str, dict[str, Any]]
) -> None:
    name, arguments = rule
    expected = trained(1, None, None, name, **arguments)
    for found, wanted in zip(trained(replicas, *store, name, **arguments), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("name", sorted(set(registered_names()) - {"groupadagrad", "sgld"}))
@pytest.mark.parametrize("on_store", [True, False])
def test_every_optimizer_updates_two_replicas_as_one(name: str, on_store: bool) -> None:
    arguments = {"learning_rate": 0.01, "aggregate_num": 1 if on_store else None}
    expected = trained(1, None, None, name, **arguments)
    for found, wanted in zip(trained(2, "device", on_store, name, **arguments), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


def test_a_torch_optimizer_by_class_and_by_object_gives_what_torch_gives() -> None:
    expected = model()
    reference = torch.optim.AdamW(expected.parameters(), lr=0.01, weight_decay=0.1)
    by_class, by_object = model(), model()
    groups = [{"params": [p], "lr": 0.01} for p in by_object.parameters()]  # one group each
    trainers = [
        ParameterTrainer(dict(by_class.named_parameters()), torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
        ParameterTrainer(dict(by_object.named_parameters()), torch.optim.AdamW(groups, weight_decay=0.1)),
    ]
    for step in range(3):
        x = torch.full((2, 3), 0.1 * step)
        for net in (expected, by_class, by_object):
            net.zero_grad()
            net(x).sum().backward()
        reference.step()
        for trainer in trainers:
            trainer.step(1)
    for net in (by_class, by_object):
        for found, wanted in zip(net.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(found, wanted)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # it looks for calls of torch's own step
def test_a_torch_schedule_moves_the_rate_of_a_torch_optimizer() -> None:
    weight = Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    trainer = ParameterTrainer({"w": weight}, optimizer)
    for _ in range(3):
        trainer.zero_grad()
        weight.sum().backward()
        trainer.step(1)
        schedule.step()
    assert weight.item() == pytest.approx(-1.75)
    assert trainer.learning_rate == 0.125


# --- freshness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("store", "on_store"), STORES)
def test_stale_parameters_that_are_ignored_are_left_alone(store: str | None, on_store: bool | None) -> None:
    weights = two_parameters()
    trainer = make(
        weights,
        kvstore=store,
        update_on_kvstore=on_store,
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 0.1},
    )
    backward_all(weights)
    trainer.step(1)
    after = values(weights["b"])
    for _ in range(2):
        trainer.zero_grad()
        backward(weights, a=[[1.0, 1.0], [1.0, 1.0]])
        trainer.step(1, ignore_stale_grad=True)
        assert values(weights["b"]) == after
    trainer.zero_grad()
    backward_all(weights)
    trainer.step(1)
    assert trainer.state_dict()["counts"] == {"a": 4, "b": 2}


@pytest.mark.parametrize(("store", "on_store"), STORES)
def test_one_fresh_replica_is_enough_and_the_others_follow(store: str | None, on_store: bool | None) -> None:
    weights = two_parameters()
    trainer = make(weights, kvstore=store, update_on_kvstore=on_store)
    for handle in trainer.parameters.values():
        handle.grad_req = "write"
    backward_all(weights)
    trainer.step(1)
    backward(weights, a=[None, [1.0, 2.0]], b=[[4.0], None])
    trainer.step(1)  # what the other replica kept from before does not count again
    assert_near(weights["a"], 1.0 - 0.2 - 0.1, 2.0 - 0.2 - 0.2)
    assert_near(weights["b"], -1.0 - 0.2 - 0.4)


def test_a_retry_after_an_error_does_not_add_up_twice() -> None:
    weights = two_parameters()
    trainer = make(weights, update_on_kvstore=False)
    backward(weights, a=[[1.0, 2.0], [0.5, -1.0]])
    for _ in range(3):
        with pytest.raises(UpdateRefusedError):
            trainer.step(1)
    trainer.allreduce_grads()
    trainer.allreduce_grads()
    with pytest.raises(UpdateRefusedError):
        trainer.update(1)
    trainer.step(1, ignore_stale_grad=True)
    assert_near(weights["a"], 0.85, 1.9)


def test_allreduce_then_update_is_step() -> None:
    one, other = two_parameters(), two_parameters()
    whole, split = make(one, update_on_kvstore=False), make(other, update_on_kvstore=False)
    for _ in range(2):
        for weights in (one, other):
            backward(weights, a=[[1.0, 2.0], [0.5, -1.0]], b=[[4.0], [2.0]])
        whole.step(4)
        split.allreduce_grads()
        split.update(4)
        whole.zero_grad()
        split.zero_grad()
    assert values(one["a"]) == values(other["a"])
    assert values(one["b"]) == values(other["b"])


def test_gradients_written_by_hand_count_when_they_are_marked() -> None:
    weights = two_parameters(1)
    trainer = make(weights)
    for handle in trainer.parameters.values():
        handle.replicas[0].grad = torch.ones_like(handle.replicas[0])
        handle.mark_fresh()
    trainer.step(1)
    assert_near(weights["b"], -1.1)


def test_the_user_s_gradient_is_never_changed_by_an_update() -> None:
    weights = two_parameters(1)
    trainer = make(weights, optimizer_params={"learning_rate": 0.1, "wd": 0.5, "clip_gradient": 0.1})
    backward(weights, a=[[1.0, 2.0]], b=[[4.0]])
    trainer.step(8)
    assert weights["a"][0].grad is not None
    assert weights["a"][0].grad.tolist() == [1.0, 2.0]


# --- agreement over ranks --------------------------------------------------------------------------------------------


def test_a_parameter_that_another_rank_has_a_gradient_for_is_updated_here_too() -> None:
    weights, store = two_parameters(1), OtherRankStore()
    trainer = make(weights, kvstore=store)
    trainer.open()
    backward(weights, a=[[1.0, 2.0]])
    store.flags = [False, True, False, True, False, False]  # the other rank: b is fresh, and not added up
    store.gradients = {1: torch.tensor([3.0])}
    trainer.step(1)
    assert store.exchanged == [[0, 1]]
    assert_near(weights["a"], 0.9, 1.8)
    assert_near(weights["b"], -1.3)


def test_every_rank_raises_for_a_gradient_that_no_rank_has() -> None:
    weights, store = two_parameters(1), OtherRankStore()
    trainer = make(weights, kvstore=store)
    trainer.open()
    backward(weights, b=[[1.0]])
    with pytest.raises(UpdateRefusedError, match="'a'"):
        trainer.step(1)
    assert store.exchanged == []


def test_an_overflow_on_another_rank_skips_the_update_here() -> None:
    weights, store = two_parameters(1), OtherRankStore()
    trainer = make(weights, kvstore=store)
    trainer.loss_scaler = LossScaler(8.0)
    trainer.open()
    backward_all(weights)
    store.flags = [True]
    trainer.step(1)
    assert trainer.last_update_skipped
    assert trainer.loss_scaler.loss_scale == 4.0
    assert values(weights["a"]) == [[1.0, 2.0]]


def test_a_rank_decides_by_the_row_sparse_gradients_of_the_others_too() -> None:
    store = OtherRankStore()
    store.flags = [True]
    with pytest.raises(ValueError, match="knows no row-sparse values"):
        make(two_parameters(1), kvstore=store).open()


def test_a_row_sparse_gradient_that_turns_up_late_on_ranks_is_told_how_to_be_announced() -> None:
    module = nn.Embedding(4, 2, sparse=True)
    trainer = make({"table": module.weight}, kvstore=OtherRankStore())
    trainer.open()
    module(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="grad_stype"):
        trainer.step(1)


def test_an_asynchronous_worker_pulls_what_others_did_to_parameters_it_leaves_out() -> None:
    desks = [ServerDesk(ServerCore(2))]
    sides = []
    for rank in range(2):
        store = AsyncStore(
            group=SimpleNamespace(rank=rank, size=2),  # type: ignore[arg-type]
            transport=InProcessTransport(desks, worker=rank),
        )
        weights = two_parameters(1)
        trainer = make(weights, kvstore=store)
        trainer.open()
        sides.append((trainer, weights))
    (first, mine), (second, theirs) = sides
    backward(theirs, b=[[4.0]])
    second.step(1, ignore_stale_grad=True)
    backward(mine, a=[[1.0, 2.0]])
    first.step(1, ignore_stale_grad=True)
    assert_near(mine["a"], 0.9, 1.8)
    assert_near(mine["b"], -1.4)
    second.step(1, ignore_stale_grad=True)
    assert_near(theirs["a"], 0.9, 1.8)


# --- rates and multipliers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("store", "on_store"), STORES)
@pytest.mark.parametrize("where", ["handle", "parameter", "name"])
def test_a_multiplier_of_zero_freezes_bit_for_bit_and_can_change_at_any_step(
    store: str | None, on_store: bool | None, where: str
) -> None:
    weights = two_parameters()
    trainer = make(
        weights,
        kvstore=store,
        update_on_kvstore=on_store,
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 0.1},
    )

    def set_rate(factor: float) -> None:
        if where == "handle":
            trainer.parameters["a"].lr_mult = factor
        elif where == "parameter":
            weights["a"][0].lr_mult = factor  # type: ignore[attr-defined]
        else:
            trainer.set_multipliers(lr_mult={"a": factor})

    for factor, moves in ((1.0, True), (0.0, False), (0.0, False), (0.5, True)):
        set_rate(factor)
        before = values(weights["a"])
        trainer.zero_grad()
        backward_all(weights)
        trainer.step(1)
        assert (values(weights["a"]) != before) == moves


@pytest.mark.parametrize(("store", "on_store"), STORES)
def test_decay_multipliers_act_at_the_next_step(store: str | None, on_store: bool | None) -> None:
    weights = two_parameters()
    trainer = make(
        weights, kvstore=store, update_on_kvstore=on_store, optimizer_params={"learning_rate": 0.1, "wd": 1.0}
    )
    expected = -1.0
    for factor in (1.0, 0.0, 3.0):
        trainer.parameters["b"].wd_mult = factor
        trainer.zero_grad()
        backward_all(weights, 0.0)
        trainer.step(1)
        expected -= 0.1 * factor * expected
        assert_near(weights["b"], expected)


@pytest.mark.parametrize(("store", "on_store"), STORES)
def test_the_reported_rate_is_the_rate_that_was_used(store: str | None, on_store: bool | None) -> None:
    weights = two_parameters()
    schedule = FactorSchedule(step=2, factor=0.1, base_lr=1.0)
    trainer = make(weights, kvstore=store, update_on_kvstore=on_store, optimizer_params={"lr_scheduler": schedule})
    rates = []
    for _ in range(5):
        before = weights["b"][0].item()
        trainer.zero_grad()
        backward_all(weights, 0.5)
        trainer.step(1)
        rates.append(trainer.learning_rate)
        assert before - weights["b"][0].item() == pytest.approx(trainer.learning_rate, abs=1e-6)
    assert rates == pytest.approx([1.0, 1.0, 0.1, 0.1, 0.01])


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("store", "on_store"), STORES)
def test_replicas_start_from_the_first(store: str | None, on_store: bool | None) -> None:
    weights = {"w": [Parameter(torch.tensor([float(n)])) for n in range(1, 4)]}
    trainer = make(weights, kvstore=store, update_on_kvstore=on_store)
    trainer.open()
    assert values(weights["w"]) == [[1.0]] * 3


def test_first_gradients_of_other_weights_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    for opened in (True, False):
        weights = {"w": [Parameter(torch.tensor([float(n)])) for n in (1, 2)]}
        trainer = make(weights)
        if opened:
            trainer.open()
        backward_all(weights)
        with caplog.at_level(logging.WARNING):
            trainer.step(1)
        assert ("before the first forward pass" in caplog.text) is not opened
        assert_near(weights["w"], 0.8)


@pytest.mark.parametrize(("store", "on_store"), STORES)
def test_a_checkpoint_that_is_loaded_into_the_first_replica_only_reaches_all(
    store: str | None, on_store: bool | None
) -> None:
    copies = replicate(nn.Linear(1, 1, bias=False), ["cpu", "cpu"])
    weights = replica_parameters(copies)
    trainer = make(weights, kvstore=store, update_on_kvstore=on_store)
    for _ in range(2):
        copies[0].load_state_dict({"weight": torch.tensor([[5.0]])})
        trainer.zero_grad()
        backward_all(weights)
        trainer.step(1)
        assert_near([replica.view(1) for replica in weights["weight"]], 5.0 - 0.1 * 2)


@pytest.mark.parametrize(("store", "on_store"), STORES)
@pytest.mark.parametrize("way", ["set_data", "in place", "checkpoint"])
def test_a_replaced_weight_is_kept_and_so_is_its_momentum(store: str | None, on_store: bool | None, way: str) -> None:
    copies = replicate(nn.Linear(1, 1, bias=False), ["cpu", "cpu"])
    weights = replica_parameters(copies)
    trainer = make(
        weights,
        kvstore=store,
        update_on_kvstore=on_store,
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9},
    )
    backward_all(weights)
    trainer.step(1)
    new = torch.tensor([[5.0]])
    if way == "set_data":
        trainer.set_data("weight", new)
    elif way == "in place":
        with torch.no_grad():
            for replica in weights["weight"]:
                replica.copy_(new)
    else:
        for copy in copies:
            copy.load_state_dict({"weight": new})
    trainer.zero_grad()
    backward_all(weights)
    trainer.step(1)
    torch.testing.assert_close(weights["weight"][1].detach(), torch.tensor([[5.0 - 0.9 * 0.2 - 0.2]]))


@pytest.mark.parametrize("on_store", [True, False])
def test_a_master_copy_follows_a_replaced_weight(on_store: bool) -> None:
    weights = {"w": [Parameter(torch.ones(1, dtype=torch.float16)) for _ in range(2)]}
    trainer = make(
        weights, update_on_kvstore=on_store, optimizer_params={"learning_rate": 0.5, "multi_precision": True}
    )
    for start, expected in ((None, 0.0), (8.0, 7.0)):
        if start is not None:
            trainer.set_data("w", torch.tensor([start]))
        trainer.zero_grad()
        backward_all(weights)
        trainer.step(1)
        assert_near(weights["w"], expected)


def test_an_explicit_reset_of_the_store_forgets_its_optimizer_state() -> None:
    weights = two_parameters()
    trainer = make(weights, update_on_kvstore=True, optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    for _ in range(2):
        trainer.zero_grad()
        backward_all(weights)
        trainer.step(1)
        trainer.reset_store()
    assert_near(weights["b"], -1.0 - 0.2 - 0.2)


def test_a_store_object_is_used_even_for_one_replica() -> None:
    weights, store = two_parameters(1), create("local")
    trainer = make(weights, kvstore=store)
    backward_all(weights)
    trainer.step(1)
    assert trainer.kvstore is store
    assert trainer.update_on_kvstore is True
    assert_near(weights["b"], -1.1)


# --- grad_req and lazy shapes ----------------------------------------------------------------------------------------


def test_a_parameter_with_grad_req_null_is_left_out() -> None:
    weights = two_parameters()
    trainer = make(weights)
    trainer.parameters["a"].grad_req = "null"
    backward(weights, b=[[4.0], [2.0]])
    trainer.step(1)
    assert values(weights["a"]) == [[1.0, 2.0]] * 2
    assert_near(weights["b"], -1.6)


@pytest.mark.parametrize("on_store", [True, False])
def test_lazy_layers_take_part_once_they_have_a_shape(on_store: bool) -> None:
    torch.manual_seed(0)
    copies = [nn.Sequential(nn.Linear(2, 3), nn.LazyLinear(1)) for _ in range(2)]
    trainer = make(replica_parameters(copies), update_on_kvstore=on_store)
    trainer.open()
    for copy in copies:
        copy(torch.ones(1, 2)).sum().backward()
    before = copies[0][1].weight.detach().clone()
    trainer.step(1)
    first, second = copies[0][1].weight, copies[1][1].weight
    assert torch.equal(first, second), "the second replica drew other values when it took its shape"
    assert not torch.equal(first, before)


def test_a_lazy_layer_that_never_ran_is_stale() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.LazyLinear(1))
    trainer = make(dict(net.named_parameters()))
    net[0](torch.ones(1, 2)).sum().backward()
    with pytest.raises(UpdateRefusedError, match=r"'1\.bias', '1\.weight'"):
        trainer.step(1)
    before = net[0].weight.detach().clone()
    trainer.step(1, ignore_stale_grad=True)
    assert not torch.equal(net[0].weight, before)


# --- loss scaling ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("store", "on_store"), STORES)
def test_an_overflow_changes_nothing_in_any_mode(store: str | None, on_store: bool | None) -> None:
    weights = two_parameters()
    trainer = make(
        weights, kvstore=store, update_on_kvstore=on_store, optimizer_params={"learning_rate": 0.1, "momentum": 0.9}
    )
    trainer.loss_scaler = LossScaler(4.0)
    backward(weights, a=[[1.0, 2.0], [0.5, -1.0]], b=[[float("inf")], [2.0]])
    trainer.step(1)
    assert trainer.last_update_skipped
    assert trainer.loss_scaler.loss_scale == 2.0
    assert values(weights["a"]) == [[1.0, 2.0]] * 2
    assert trainer.optimizer.num_update == 0
    trainer.zero_grad()
    backward_all(weights)
    trainer.step(1)
    assert not trainer.last_update_skipped
    assert_near(weights["b"], -1.2)


@pytest.mark.parametrize("unscale", [False, True])
def test_scaled_losses_give_the_same_update(unscale: bool) -> None:
    plain, scaled = two_parameters(), two_parameters()
    one, other = (make(w, update_on_kvstore=False, optimizer_params={"rescale_grad": 0.5}) for w in (plain, scaled))
    other.loss_scaler = LossScaler(8.0, window=2)
    for _ in range(4):
        for trainer, weights in ((one, plain), (other, scaled)):
            trainer.zero_grad()
            losses = [(w.square()).sum() for replicas in weights.values() for w in replicas]
            if trainer is other:
                losses = trainer.scale_loss(losses)
            for loss in losses:
                loss.backward()
            if trainer is other and unscale:
                trainer.unscale()
                assert weights["b"][0].grad is not None
                # torch accumulates 2*w; times rescale_grad, which unscaling includes
                assert weights["b"][0].grad.item() == pytest.approx(weights["b"][0].item())
            trainer.step(2)
    assert other.loss_scaler.loss_scale == 32.0
    for name in plain:
        torch.testing.assert_close(plain[name][0], scaled[name][0])


@pytest.mark.parametrize("on_store", [True, False])
def test_a_loss_that_was_not_scaled_is_not_divided(on_store: bool) -> None:
    weights = two_parameters()
    trainer = make(weights, update_on_kvstore=on_store)
    trainer.loss_scaler = LossScaler(8.0)
    for scaled in (True, False):
        trainer.zero_grad()
        losses = [replica.sum() for replica in weights["b"]]
        for loss in trainer.scale_loss(losses) if scaled else losses:
            loss.backward()
        trainer.step(1, ignore_stale_grad=True)
    assert_near(weights["b"], -1.0 - 0.2 - 0.2)


def test_a_loss_is_scaled_by_the_newest_scale() -> None:
    trainer = make(two_parameters())
    trainer.loss_scaler = LossScaler(8.0)
    assert trainer.scale_loss(torch.tensor(2.0)).item() == 16.0
    trainer.loss_scaler.update(True)
    assert [loss.item() for loss in trainer.scale_loss([torch.tensor(1.0), torch.tensor(2.0)])] == [4.0, 8.0]
    trainer.loss_scaler = None
    with pytest.raises(RuntimeError, match="scales no losses"):
        trainer.scale_loss(torch.tensor(1.0))


# --- row-sparse gradients of dense weights ---------------------------------------------------------------------------


@pytest.mark.parametrize(("store", "on_store"), [way for way in STORES if way != ("dist_sync", False)])  # refused
@pytest.mark.parametrize("lazy", [True, False])
def test_an_embedding_trains_alike_by_rows_and_dense(store: str | None, on_store: bool | None, lazy: bool) -> None:
    def run(sparse: bool, replicas: int) -> torch.Tensor:
        torch.manual_seed(0)
        copies = replicate(nn.Embedding(6, 2, sparse=sparse), ["cpu"] * replicas)
        trainer = ParameterTrainer(
            replica_parameters(copies),
            "sgd",
            {"learning_rate": 0.1, "momentum": 0.9 if not lazy else 0.0, "lazy_update": lazy and sparse},
            kvstore=store,
            update_on_kvstore=on_store,
        )
        for rows in ([0, 2, 2, 5], [1, 1, 0, 3], [4, 4, 4, 4]):
            trainer.zero_grad()
            for copy, share in zip(copies, split_and_load(torch.tensor(rows), ["cpu"] * replicas), strict=True):
                copy(share).square().sum().backward()
            trainer.step(4)
        assert all(torch.equal(copy.weight, copies[0].weight) for copy in copies)
        return copies[0].weight.detach()

    torch.testing.assert_close(run(True, 2), run(False, 1))


def test_rows_whose_updates_were_put_off_are_caught_up_on_demand() -> None:
    def run(update: str) -> torch.Tensor:
        torch.manual_seed(0)
        table = nn.Embedding(6, 2, sparse=True)
        trainer = make(
            {"table": table.weight},
            optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01, "update": update},
        )
        for rows in ([0, 2], [1, 2], [4], [0], [2]):
            trainer.zero_grad()
            trainer.catch_up("table", torch.tensor(rows))
            table(torch.tensor(rows)).square().sum().backward()
            trainer.step(1)
        trainer.catch_up("table")
        return table.weight.detach()

    torch.testing.assert_close(run("dense_lazy"), run("dense"))


# --- compression -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_store", [True, False])
def test_compressed_gradients_reach_the_weights_in_quanta(on_store: bool) -> None:
    weights = two_parameters()
    trainer = make(weights, update_on_kvstore=on_store, compression_params={"type": "2bit", "threshold": 0.5})
    moves = []
    for _ in range(3):
        before = weights["b"][0].item()
        trainer.zero_grad()
        backward_all(weights, 0.3)
        trainer.step(1)
        moves.append(before - weights["b"][0].item())
    assert moves == pytest.approx([0.0, 0.1, 0.0])  # 0.3, 0.6 -> one quantum each, 0.4
    residuals = [state["residuals"]["b"].item() for state in trainer.state_dict()["residuals"]]
    assert residuals == pytest.approx([0.4, 0.4])


# --- life ------------------------------------------------------------------------------------------------------------


def test_a_trainer_is_let_go_of_with_its_last_reference() -> None:
    weights = two_parameters()
    trainer = make(weights)
    backward_all(weights)
    trainer.step(1)
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert gone() is None
    assert all(not p._post_accumulate_grad_hooks for p in itertools.chain(*weights.values()))


def test_an_optimizer_object_is_used_as_it_is() -> None:
    optimizer = SGD(learning_rate=0.5)
    trainer = make(two_parameters(), optimizer)
    assert trainer.optimizer is optimizer
    assert optimizer.idx2name == {0: "a", 1: "b"}
