from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import run_on_ranks
from torch import Tensor, nn

from ostinato.dist import Alone
from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.kvstore.collective import CollectiveStore
from ostinato.kvstore.collective_agreement import CHECK_VARIABLE
from ostinato.kvstore.compression import CompressionScheme, Compressor, decode
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Updater, create

SMALL = 64
"""Bytes of a bucket, so that little models have several."""


def filled(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 9), nn.Tanh(), nn.Linear(9, 2))


def batch(rank: int, turn: int) -> Tensor:
    return filled(100 * turn + rank, 4, 6)


def backward(net: nn.Module, rank: int, turn: int) -> None:
    net(batch(rank, turn)).pow(2).sum().backward()


def parameters_of(net: nn.Module) -> dict[int, list[Tensor]]:
    return {number: [parameter] for number, parameter in enumerate(net.parameters())}


def watched_store(group: Any, net: nn.Module) -> CollectiveStore:
    store = CollectiveStore("dist_sync", group, bucket_bytes=SMALL)
    started(store, net)
    return store


def started(store: CollectiveStore, net: nn.Module) -> None:
    parameters = parameters_of(net)
    keys = list(parameters)
    store.broadcast(keys, [parameters[key][0] for key in keys], [parameters[key][0] for key in keys])
    store.watch(parameters)


def reduce(store: CollectiveStore, net: nn.Module, **options: Any) -> bool:
    parameters = parameters_of(net)
    grads = [p[0].grad.detach() if p[0].grad is not None else torch.zeros_like(p[0]) for p in parameters.values()]
    return store.pushpull(list(parameters), grads, **options)


def gradients(net: nn.Module) -> list[Tensor]:
    return [parameter.grad.detach().clone() for parameter in net.parameters()]


# --- each case runs on some ranks and returns what the test looks at ---------------------------------------------


def case_weights_begin_as_rank_0_has_them(group: Any) -> Any:
    net = nn.Linear(3, 2)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(group.rank + 5)
    watched_store(group, net)
    return [parameter.detach().unique().tolist() for parameter in net.parameters()]


def case_gradients_are_summed_in_backward(group: Any) -> Any:
    net = model()
    store = watched_store(group, net)
    found = []
    for turn in range(4):
        net.zero_grad(set_to_none=turn % 2 == 0)
        backward(net, group.rank, turn)
        early = len(store._rounds.buckets._flights)
        local = gradients(net)
        assert reduce(store, net)
        found.append((early, local, gradients(net)))
    return found


def case_accumulated_gradients(group: Any) -> Any:
    net = model()
    store = watched_store(group, net)
    with store.holding():
        backward(net, group.rank, 0)
        early = len(store._rounds.buckets._flights)
    backward(net, group.rank, 1)
    reduce(store, net)
    return early, gradients(net)


def case_two_backwards_without_holding(group: Any) -> Any:
    net = model()
    store = watched_store(group, net)
    backward(net, group.rank, 0)
    backward(net, group.rank, 1)
    reduce(store, net)
    return gradients(net)


def case_a_step_that_is_never_asked_for(group: Any) -> Any:
    net = model()
    store = watched_store(group, net)
    backward(net, group.rank, 0)
    net.zero_grad()
    backward(net, group.rank, 1)
    reduce(store, net)
    return gradients(net)


def case_a_gradient_that_changes_on_one_rank(group: Any) -> Any:
    net = model()
    store = watched_store(group, net)
    backward(net, group.rank, 0)
    if group.rank == 0:
        for parameter in net.parameters():
            parameter.grad.mul_(3)
    reduce(store, net)
    return gradients(net)


def case_ranks_that_use_different_parts(group: Any) -> Any:
    net = model()
    store = watched_store(group, net)
    if group.rank == 0:
        net[:3](batch(0, 0)).pow(2).sum().backward()  # the last layer has no gradient here
    else:
        backward(net, group.rank, 0)
    for parameter in net.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    reduce(store, net)
    return gradients(net)


def case_only_if_finite(group: Any) -> Any:
    net = model()
    store = watched_store(group, net)
    backward(net, group.rank, 0)
    if group.rank == group.size - 1:
        next(net.parameters()).grad[0, 0] = torch.inf
    local = gradients(net)
    done = reduce(store, net, only_if_finite=True)
    after = gradients(net)
    net.zero_grad()
    backward(net, group.rank, 1)
    again = reduce(store, net, only_if_finite=True)
    unchanged = all(torch.equal(a, b) for a, b in zip(local, after, strict=True))
    return done, unchanged, again, gradients(net)


def case_two_replicas(group: Any) -> Any:
    nets = [model(), model()]
    store = CollectiveStore("dist_sync", group, bucket_bytes=SMALL)
    pairs = {n: [a, b] for n, (a, b) in enumerate(zip(*(net.parameters() for net in nets), strict=True))}
    store.broadcast(list(pairs), [pair[0] for pair in pairs.values()], list(pairs.values()))
    store.watch(pairs)
    for number, net in enumerate(nets):
        backward(net, 2 * group.rank + number, 0)
    early = len(store._rounds.buckets._flights)
    store.pushpull(list(pairs), [[p.grad for p in pair] for pair in pairs.values()])
    return early, [gradients(net) for net in nets]


def case_compressed(group: Any) -> Any:
    found = []
    for route in ("all_gather", "all_to_all"):
        net = model()
        store = CollectiveStore("dist_sync", group, bucket_bytes=SMALL, route=route)
        store.set_gradient_compression({"type": "2bit", "threshold": 0.3})
        started(store, net)
        sums = []
        for turn in range(3):
            net.zero_grad()
            backward(net, group.rank, turn)
            reduce(store, net)
            sums.append(gradients(net))
        before = store.residuals()
        net.zero_grad()
        backward(net, group.rank, 3)
        if group.rank == 0:
            next(net.parameters()).grad[0, 0] = torch.nan
        skipped = not reduce(store, net, only_if_finite=True)
        after = store.residuals()
        kept = all(
            torch.equal(a["residuals"][key], b["residuals"][key])
            for a, b in zip(before, after, strict=True)
            for key in a["residuals"]
        )
        found.append((sums, before, skipped, kept, dict(store.handed_over)))
    return found


def case_raw_calls(group: Any) -> Any:
    """Keys that nobody watches."""
    store = CollectiveStore("dist_sync", group)
    store.init("w", torch.tensor([1.0, 2.0, 3.0]) * (group.rank + 1))
    store.init(["a", "b"], [torch.zeros(2), torch.zeros(3, 2)])
    out = torch.empty(3)
    pulled = []
    store.pull("w", out)
    pulled.append(out.clone())
    for turn in range(1, 3):
        store.push("w", torch.tensor([1.0, -1.0, 0.5]) * (group.rank + 1) * turn)
        store.pull("w", out)
        pulled.append(out.clone())
    values = [torch.ones(2) * group.rank, [torch.ones(3, 2), torch.ones(3, 2)]]
    store.pushpull(["a", "b"], values)
    store.set_value("w", torch.full((3,), float(group.rank) + 7))
    store.pull("w", out)
    pulled.append(out.clone())
    pulled.append(values[0])
    pulled.append(values[1][1])
    store.barrier()
    return pulled, store.rank, store.num_workers, store.agree([group.rank == 0, False])


def case_rows(group: Any) -> Any:
    """Sparse gradients of dense weights, on one rank dense, on one rank none."""
    store = CollectiveStore("dist_sync", group, bucket_bytes=SMALL)
    store.init(["table", "dense"], [torch.zeros(8, 3), torch.zeros(5)])
    sums = []
    for turn in range(2):
        if group.rank == 0:
            value: Any = RowSparse(torch.tensor([1, 4]), torch.full((2, 3), turn + 1.0), (8, 3))
        elif group.rank == 1:
            value = torch.sparse_coo_tensor(torch.tensor([[4, 4, 7]]), torch.ones(3, 3), (8, 3))
        else:
            value = []
        dense = torch.ones(5)
        store.pushpull(["table", "dense"], [value, dense], [[], dense])
        out = torch.empty(8, 3)
        store.pull("table", out)
        sums.append((out.clone(), dense.clone()))
    return sums


def case_tables(group: Any) -> Any:
    """A table that is whole everywhere and one that is cut by rows, with the same pushes and pulls."""
    found: dict[str, Any] = {}
    for name, bound in (("whole", 1000), ("cut", 5)):
        os.environ["MXNET_KVSTORE_BIGARRAY_BOUND"] = str(bound)
        store = CollectiveStore("dist_sync", group)
        store.set_optimizer(create("sgd", learning_rate=0.1, momentum=0.9, wd=0.1, lazy_update=True))
        initial = filled(5, 11, 3) if group.rank == 0 else torch.zeros(11, 3)
        store.init(3, RowSparse(torch.arange(11), initial, (11, 3)))
        held = len(store._keys.tables[3].stored)
        rows = []
        for turn in range(4):
            if (turn + group.rank) % 3 == 2:
                push = RowSparse.empty((11, 3))
            else:
                indices = torch.tensor([group.rank, 5, 10 - turn])
                push = RowSparse.from_rows(indices, filled(turn * 10 + group.rank, 3, 3), (11, 3))
            store.push(3, push)
            pulled = store.row_sparse_pull(
                3, torch.tensor([[10, 0], [5, 5]]) if group.rank != 1 else torch.tensor([]).long()
            )
            rows.append((pulled.indices, pulled.values))
        whole = torch.empty(11, 3)
        store.pull(3, whole, ignore_sparse=False)
        states = store.save_optimizer_states()
        store.set_value(3, torch.ones(11, 3) * (group.rank + 1))
        ones = store.row_sparse_pull(3, torch.tensor([0, 10])).values
        found[name] = (held, rows, whole, states["states"][3]["momentum"], states["counts"], ones)
    return found


CASES: dict[str, Callable[[Any], Any]] = {name: value for name, value in globals().items() if name.startswith("case_")}


def run_cases(group: Any) -> dict[str, Any]:
    """All cases one after the other, so that the processes start once."""
    return {name: case(group) for name, case in CASES.items()}


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return _values(run_on_ranks(run_cases, folder=tmp_path_factory.mktemp("two"), ranks=2))


@pytest.fixture(scope="module")
def on_four(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return _values(run_on_ranks(run_cases, folder=tmp_path_factory.mktemp("four"), ranks=4))


@pytest.fixture(scope="module")
def on_one() -> list[dict[str, Any]]:
    return [run_cases(Alone())]


def _values(results: list[Any]) -> list[dict[str, Any]]:
    for result in results:
        if result.error is not None:
            raise AssertionError(result.output) from result.error
    return [result.value for result in results]


@pytest.fixture(params=["on_one", "on_two", "on_four"])
def ranks(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return request.getfixturevalue(request.param)


def expected_sum(size: int, *turns: int) -> list[Tensor]:
    """The gradient of the joined batch, in one process."""
    net = model()
    for turn in turns:
        for rank in range(size):
            backward(net, rank, turn)
    return gradients(net)


def close(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_weights_begin_as_rank_0_has_them(ranks: list[dict[str, Any]]) -> None:
    assert [rank["case_weights_begin_as_rank_0_has_them"] for rank in ranks] == [[[5.0], [5.0]]] * len(ranks)


def test_gradients_become_their_sum_and_were_on_their_way_in_backward(ranks: list[dict[str, Any]]) -> None:
    for rank, values in enumerate(ranks):
        for turn, (early, local, total) in enumerate(values["case_gradients_are_summed_in_backward"]):
            assert early == (0 if len(ranks) == 1 else 4)
            net = model()
            backward(net, rank, turn)
            close(local, gradients(net))  # an exchange that has started does not show before it is asked for
            close(total, expected_sum(len(ranks), turn))
            assert all(
                torch.equal(one, other)
                for one, other in zip(total, ranks[0]["case_gradients_are_summed_in_backward"][turn][2], strict=True)
            )


def test_held_back_passes_are_exchanged_with_the_last_one(ranks: list[dict[str, Any]]) -> None:
    for values in ranks:
        early, total = values["case_accumulated_gradients"]
        assert early == 0
        close(total, expected_sum(len(ranks), 0, 1))


def test_a_second_pass_after_the_exchange_began_is_not_lost(ranks: list[dict[str, Any]]) -> None:
    for values in ranks:
        close(values["case_two_backwards_without_holding"], expected_sum(len(ranks), 0, 1))


def test_an_exchange_that_nobody_asks_for_is_dropped(ranks: list[dict[str, Any]]) -> None:
    for values in ranks:
        close(values["case_a_step_that_is_never_asked_for"], expected_sum(len(ranks), 1))


def test_a_gradient_that_one_rank_changes_is_exchanged_again(ranks: list[dict[str, Any]]) -> None:
    size = len(ranks)
    net = model()
    backward(net, 0, 0)
    expected = [3 * one for one in gradients(net)]
    net.zero_grad()
    for rank in range(1, size):
        backward(net, rank, 0)
    if size > 1:
        expected = [one + other for one, other in zip(expected, gradients(net), strict=True)]
    for values in ranks:
        close(values["case_a_gradient_that_changes_on_one_rank"], expected)


def test_a_rank_without_a_gradient_contributes_zeros(on_two: list[dict[str, Any]]) -> None:
    net = model()
    net[:3](batch(0, 0)).pow(2).sum().backward()
    backward(net, 1, 0)
    for values in on_two:
        close(values["case_ranks_that_use_different_parts"], gradients(net))


def test_an_infinite_gradient_on_one_rank_changes_nothing_on_any(ranks: list[dict[str, Any]]) -> None:
    for values in ranks:
        done, unchanged, again, total = values["case_only_if_finite"]
        assert (done, unchanged, again) == (False, True, True)
        close(total, expected_sum(len(ranks), 1))


def test_replicas_of_all_ranks_receive_one_sum(ranks: list[dict[str, Any]]) -> None:
    for values in ranks:
        early, totals = values["case_two_replicas"]
        assert early == (0 if len(ranks) == 1 else 4)
        for total in totals:
            close(total, expected_sum(2 * len(ranks), 0))


def test_compressed_gradients_equal_the_scheme_in_one_process(ranks: list[dict[str, Any]]) -> None:
    size = len(ranks)
    compressors = [Compressor(CompressionScheme("2bit", 0.3)) for _ in range(size)]
    expected = []
    net = model()
    for turn in range(3):
        sums = [torch.zeros(parameter.numel()) for parameter in net.parameters()]
        for rank, compressor in enumerate(compressors):
            net.zero_grad()
            backward(net, rank, turn)
            for key, (total, gradient) in enumerate(zip(sums, gradients(net), strict=True)):
                total += decode(compressor.scheme, compressor.compress(key, gradient), len(total))
        expected.append([total.view_as(p) for total, p in zip(sums, net.parameters(), strict=True)])
    for values in ranks:
        for sums, residuals, skipped, kept, handed_over in values["case_compressed"]:
            assert (skipped, kept) == (True, True)
            for turn in range(3):
                assert all(torch.equal(a, b) for a, b in zip(sums[turn], expected[turn], strict=True))
            assert len(residuals) == size
            for rank, compressor in enumerate(compressors):
                for key, kept_back in compressor.state_dict()["residuals"].items():
                    torch.testing.assert_close(residuals[rank]["residuals"][key], kept_back, rtol=0, atol=1e-5)
            assert "all_reduce" not in handed_over


def test_keys_that_are_not_watched(ranks: list[dict[str, Any]]) -> None:
    size = len(ranks)
    workers = sum(range(1, size + 1))
    for rank, values in enumerate(ranks):
        pulled, own, count, agreed = values["case_raw_calls"]
        assert (own, count, agreed) == (rank, size, [True, False])
        assert pulled[0].tolist() == [1, 2, 3]
        assert pulled[1].tolist() == [workers, -workers, workers / 2]
        assert pulled[2].tolist() == [2 * workers, -2 * workers, workers]
        assert pulled[3].tolist() == [7, 7, 7]
        assert pulled[4].tolist() == [sum(range(size))] * 2
        assert pulled[5].unique().tolist() == [2 * size]


def test_sparse_gradients_of_dense_weights_travel_as_rows(ranks: list[dict[str, Any]]) -> None:
    for values in ranks:
        expected = torch.zeros(8, 3)
        for turn, (table, dense) in enumerate(values["case_rows"]):
            expected[1] = turn + 1
            expected[4] = turn + 1 + (2 if len(ranks) > 1 else 0)
            expected[7] = 1 if len(ranks) > 1 else 0
            assert torch.equal(table, expected)
            assert dense.tolist() == [len(ranks)] * 5


def test_tables_give_the_same_cut_and_whole(ranks: list[dict[str, Any]]) -> None:
    one = run_cases_of_one_process_on_joined_rows(len(ranks))
    for rank, values in enumerate(ranks):
        found = values["case_tables"]
        assert found["whole"][0] == 11
        assert found["cut"][0] == ([11], [6, 5], None, [3, 3, 2, 3])[len(ranks) - 1][rank]
        for name in ("whole", "cut"):
            _, rows, whole, momentum, counts, ones = found[name]
            for indices, _ in rows:
                assert indices.tolist() == ([] if rank == 1 else [0, 5, 10])
            torch.testing.assert_close(whole, one[0])
            torch.testing.assert_close(momentum, one[1])
            assert counts == {3: 4}
            assert ones.unique().tolist() == [1]
        for (_, first), (_, second) in zip(found["whole"][1], found["cut"][1], strict=True):
            torch.testing.assert_close(first, second)


def run_cases_of_one_process_on_joined_rows(size: int) -> tuple[Tensor, Tensor]:
    updater = Updater(create("sgd", learning_rate=0.1, momentum=0.9, wd=0.1, lazy_update=True))
    table = filled(5, 11, 3)
    for turn in range(4):
        indices, values = [torch.empty(0).long()], [torch.empty(0, 3)]
        for rank in range(size):
            if (turn + rank) % 3 != 2:
                indices.append(torch.tensor([rank, 5, 10 - turn]))
                values.append(filled(turn * 10 + rank, 3, 3))
        updater(3, RowSparse.from_rows(torch.cat(indices), torch.cat(values), (11, 3)), table)
    return table, updater.states[3]["momentum"]


# --- mistakes ------------------------------------------------------------------------------------------------------


def test_mistakes_are_named() -> None:
    store = CollectiveStore("dist_sync", Alone())
    store.init("w", torch.zeros(3))
    with pytest.raises(ArgumentValueError, match="initialised before"):
        store.init("w", torch.zeros(3))
    with pytest.raises(ArgumentValueError, match="never initialised"):
        store.push("v", torch.zeros(3))
    with pytest.raises(ArgumentValueError, match="holds"):
        store.push("w", torch.zeros(4))
    with pytest.raises(ArgumentValueError, match="Row 3"):
        store.row_sparse_pull("w", torch.tensor([3]))
    with pytest.raises(StateError, match="no optimizer"):
        store.save_optimizer_states()
    store.set_gradient_compression({"type": "2bit"})
    with pytest.raises(ArgumentTypeError, match="float32"):
        store.push("w", torch.zeros(3, dtype=torch.float64))
    store.close()
    store.close()


def different_keys(group: Any) -> None:
    store = CollectiveStore("dist_sync", group)
    store.init("w" if group.rank == 0 else "v", torch.zeros(3))


def different_rates(group: Any) -> None:
    store = CollectiveStore("dist_sync", group)
    store.check_workers_agree({"rate": 0.1})
    store.check_workers_agree({"rate": 0.1 + group.rank})


def test_workers_that_do_not_do_the_same_are_told(tmp_path: Path) -> None:
    for result in run_on_ranks(different_keys, folder=tmp_path):
        assert isinstance(result.error, StateError)
        assert "Worker 1 initialises" in str(result.error)
    for result in run_on_ranks(different_rates, folder=tmp_path, environment={CHECK_VARIABLE: "1"}):
        assert isinstance(result.error, StateError)
        assert "1.1" in str(result.error)


def test_a_key_that_is_not_pushed_keeps_what_compression_owes_it() -> None:
    store = CollectiveStore("dist_sync", Alone())
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    store.init(["a", "b"], [torch.zeros(3), torch.zeros(3)])
    store.push(["a", "b"], [torch.full((3,), 0.4), torch.full((3,), 0.4)])
    store.push("a", torch.full((3,), 0.4))
    (state,) = store.residuals()
    assert state["residuals"]["a"].tolist() == pytest.approx([0.3] * 3)
    assert state["residuals"]["b"].tolist() == pytest.approx([0.4] * 3)
    other = CollectiveStore("dist_sync", Alone())
    with pytest.raises(StateError, match="compresses nothing"):
        other.load_residuals([state])
    other.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    other.load_residuals([state])
    assert torch.equal(other.residuals()[0]["residuals"]["a"], state["residuals"]["a"])


def test_a_new_value_is_a_tensor() -> None:
    store = CollectiveStore("dist_sync", Alone())
    store.init("w", torch.zeros(2))
    with pytest.raises(ArgumentTypeError, match="is a tensor, not list"):
        store.set_value("w", [1, 2])  # type: ignore[arg-type]
