"""Row-sparse gradients: listed rows alone, or the results of the dense rule."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ostinato.errors import ArgumentValueError
from ostinato.optim.rate_schedules import create_schedule
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Updater, blocks, create, registered_names, sgd

ROWS, WIDTH = 7, 3
LAZY: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {"lazy_update": True, "momentum": 0.9, "wd": 0.1}),
    ("sgd", {"update": "frozen", "wd": 0.1}),
    ("adam", {"lazy_update": True, "wd": 0.1}),
    ("lars", {"lazy_update": True, "momentum": 0.9, "wd": 0.1}),
    ("adagrad", {}),
    ("groupadagrad", {}),
    ("ftrl", {"lazy_update": True, "wd": 0.1}),
]


def table(seed: int = 0) -> Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradient(rows: list[int], seed: int = 1) -> RowSparse:
    values = torch.randn(len(rows), WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return RowSparse(torch.tensor(rows, dtype=torch.int64), values, (ROWS, WIDTH))


@pytest.mark.parametrize(("name", "arguments"), LAZY)
def test_a_lazy_update_changes_the_listed_rows_as_the_dense_rule_would_and_no_others(
    name: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "block_size", lambda device: 2 * WIDTH)  # two rows at a time
    lazy = Updater(create(name, clip_gradient=0.5, rescale_grad=0.5, **arguments))
    weight, all_rows = table(), list(range(ROWS))
    lazy(0, gradient(all_rows), weight)
    before, state_before = weight.clone(), {k: v.clone() for k, v in lazy.states[0].items()}
    dense = Updater(create(name, clip_gradient=0.5, rescale_grad=0.5, **arguments))
    dense.load_state_dict(lazy.state_dict())
    listed, rest = [0, 1, 3, 6], [2, 4, 5]

    lazy(0, gradient(listed, 2), weight)

    expected = before.clone()
    dense(0, gradient(listed, 2).to_dense(), expected)
    torch.testing.assert_close(weight[listed], expected[listed], rtol=1e-12, atol=1e-14)
    assert torch.equal(weight[rest], before[rest])
    for key, value in lazy.states[0].items():
        torch.testing.assert_close(value[listed], dense.states[0][key][listed], rtol=1e-12, atol=1e-14)
        assert torch.equal(value[rest], state_before[key][rest])


@pytest.mark.parametrize("name", registered_names())
def test_other_rules_take_a_row_sparse_gradient_as_the_dense_one_it_stands_for(name: str) -> None:
    plain = {"use_fused_step": False} if name in ("adagrad", "groupadagrad") else {}
    wd = 0.0 if name == "groupadagrad" else 0.1
    sparse, dense = (Updater(create(name, wd=wd, **plain)) for _ in range(2))
    one, other = table(), table()
    for number, rows in enumerate(([0, 2], [], [1, 6], [0])):
        sparse(0, gradient(rows, number), one)
        dense(0, gradient(rows, number).to_dense(), other)
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("name", "arguments"), [*LAZY, ("sgd", {}), ("sgd", {"update": "dense_lazy"})])
def test_an_empty_gradient_counts(name: str, arguments: dict[str, Any]) -> None:
    updater, weight = Updater(create(name, **arguments)), table()
    updater(0, gradient([]), weight)
    assert updater.counts == {0: 1}
    if "wd" not in arguments or "update" in arguments or "lazy_update" in arguments:
        assert torch.equal(weight, table())


def test_adagrad_refuses_decay_that_would_have_to_reach_every_row() -> None:
    updater, weight = Updater(create("adagrad", wd=0.1)), table()
    with pytest.raises(ArgumentValueError, match="cannot decay the rows that it does not list"):
        updater(0, gradient([1]), weight)
    assert torch.equal(weight, table())
    assert updater.counts == {}
    updater.optimizer.param_dict = {0: SimpleNamespace(lr_mult=1.0, wd_mult=0.0)}
    updater.optimizer.wd = 0.0
    updater(0, gradient([1]), weight)


def test_ftrl_is_lazy_for_parameters_that_are_row_sparse_themselves() -> None:
    for stype, untouched in (("row_sparse", True), ("default", False)):
        updater, weight = Updater(create("ftrl", param_dict={0: SimpleNamespace(stype=stype)})), table()
        updater(0, gradient([1]), weight)
        assert torch.equal(weight[0], table()[0]) == untouched


def test_lazy_adam_is_sparse_adam_of_torch() -> None:
    weight, other = table(), table()
    updater = Updater(create("adam", lazy_update=True, learning_rate=0.1))
    reference = torch.optim.SparseAdam([other], lr=0.1)
    for number, rows in enumerate(([0, 2], [1, 6], [0])):
        updater(0, gradient(rows, number), weight)
        other.grad = gradient(rows, number).to_coo()
        reference.step()
    torch.testing.assert_close(weight, other, rtol=1e-9, atol=1e-11)


def test_master_copies_take_lazy_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "block_size", lambda device: 2 * WIDTH)
    weight, wide = table().half(), table().half().float()
    narrow, full = (
        Updater(create("adam", lazy_update=True, multi_precision=True)),
        Updater(create("adam", lazy_update=True)),
    )
    for rows in ([0, 2, 5], [1, 2]):
        given_rows = gradient(rows)
        narrow(0, RowSparse(given_rows.indices, given_rows.values.half(), given_rows.shape), weight)
        full(0, RowSparse(given_rows.indices, given_rows.values.half().float(), given_rows.shape), wide)
    assert torch.equal(narrow.states[0]["master_weight"], wide)
    assert torch.equal(weight, wide.half())


# --- dense results at sparse cost ------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("update"), st.sets(st.integers(0, ROWS - 1))),
        st.tuples(st.just("catch_up"), st.sets(st.integers(0, ROWS - 1))),
        st.tuples(st.sampled_from(["all", "dense", "save", "freeze"]), st.just(frozenset())),
    ),
    min_size=1,
    max_size=30,
)


@settings(deadline=None, max_examples=60)
@given(
    steps=STEPS,
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    wd=st.sampled_from([0.0, 0.05]),
    schedule=st.booleans(),
    block=st.sampled_from([1, 7, 10**6]),
    forget=st.sampled_from([3, 2**20]),
)
def test_rows_that_are_caught_up_equal_those_of_the_dense_rule(
    steps: list[Any], momentum: float, wd: float, schedule: bool, block: int, forget: int
) -> None:
    def build(update: str) -> Updater:
        arguments: dict[str, Any] = {"momentum": momentum, "wd": wd, "rescale_grad": 0.5, "clip_gradient": 0.6}
        if schedule:
            arguments["lr_scheduler"] = create_schedule("cosine", max_update=20, base_lr=0.3)
        return Updater(create("sgd", update=update, param_dict={0: parameter}, **arguments))

    parameter = SimpleNamespace(lr_mult=1.0, wd_mult=1.0)
    late, dense = build("dense_lazy"), build("dense")
    weight, expected = table(), table()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "block_size", lambda device: block)
        patch.setattr(sgd, "MAX_MISSED_STEPS", forget)
        for number, (what, chosen) in enumerate(steps):
            rows = sorted(chosen)
            if what == "update":
                late(0, gradient(rows, number), weight)
                dense(0, gradient(rows, number), expected)
            elif what == "dense":
                for updater, tensor in ((late, weight), (dense, expected)):
                    updater(0, gradient(list(range(ROWS)), number).to_dense(), tensor)
            elif what == "save":
                again = build("dense_lazy")
                again.load_state_dict(late.state_dict())
                again.optimizer.load_state_dict(late.optimizer.state_dict())
                late = again
            elif what == "freeze":
                parameter.lr_mult = 1.0 - parameter.lr_mult
            else:
                late.catch_up(0, weight, torch.tensor(rows * 2, dtype=torch.int64) if what == "catch_up" else None)
                seen = rows if what == "catch_up" else list(range(ROWS))
                torch.testing.assert_close(weight[seen], expected[seen], rtol=1e-9, atol=1e-12)
        late.catch_up([0], [weight])
        torch.testing.assert_close(weight, expected, rtol=1e-9, atol=1e-12)
        if momentum and late.states:
            torch.testing.assert_close(late.states[0]["momentum"], dense.states[0]["momentum"], rtol=1e-9, atol=1e-12)


def test_rare_rows_of_a_long_training_end_where_the_dense_rule_has_them() -> None:
    generator = torch.Generator().manual_seed(3)
    late = Updater(create("sgd", update="dense_lazy", momentum=0.9, wd=1e-2, learning_rate=0.05))
    dense = Updater(create("sgd", momentum=0.9, wd=1e-2, learning_rate=0.05))
    weight, expected = table().float(), table().float()
    for number in range(500):
        # Row 6 is listed once in 100 steps.
        rows = sorted(
            {int(row) for row in torch.randint(0, 6, (2,), generator=generator)} | ({6} if number % 100 == 5 else set())
        )
        one = gradient(rows, number)
        one = RowSparse(one.indices, one.values.float(), one.shape)
        late.catch_up(0, weight, one.indices)
        torch.testing.assert_close(weight[rows], expected[rows], rtol=2e-5, atol=2e-6)
        late(0, one, weight)
        dense(0, one, expected)
    late.catch_up(0, weight)
    torch.testing.assert_close(weight, expected, rtol=2e-5, atol=2e-6)
    frozen_row = table().float()[6]
    assert not torch.allclose(expected[6], frozen_row, rtol=0.05)


def test_catching_up_has_nothing_to_do_for_other_updates() -> None:
    updater, weight = Updater(create("sgd", momentum=0.9)), table()
    updater(0, gradient([1]), weight)
    before = weight.clone()
    updater.catch_up(0, weight)
    updater.catch_up([5], [weight])  # never seen
    assert torch.equal(weight, before)


def test_caught_up_rows_forget_the_steps() -> None:
    updater, weight = Updater(create("sgd", momentum=0.9, update="dense_lazy")), table()
    for _ in range(5):
        updater(0, gradient([1]), weight)
    assert updater.states[0]["row_step"].tolist() == [0, 5, 0, 0, 0, 0, 0]
    assert len(updater.states[0]["missed_steps"]) == 5
    updater.catch_up(0, weight)
    assert updater.states[0]["row_step"].tolist() == [0] * ROWS
    assert len(updater.states[0]["missed_steps"]) == 0
