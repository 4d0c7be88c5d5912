"""Parameters that live on the store."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kvstore_stand_ins import make
from torch import Tensor
from torch.nn import Embedding, Linear

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError, UpdateRefusedError
from ostinato.kvstore import LossScaler, ParameterTrainer, TableParameter
from ostinato.optim.row_sparse_gradient import RowSparse

WHOLE = torch.arange(12.0).reshape(6, 2)


def table_of(devices: int = 1) -> TableParameter:
    return TableParameter("table", WHOLE.clone(), ["cpu"] * devices)


@pytest.mark.parametrize("store", ["local", "device"])
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    "settings", [{"lazy_update": True}, {"momentum": 0.9, "update": "dense_lazy"}, {"momentum": 0.9, "wd": 0.01}]
)
def test_a_table_trains_as_a_dense_embedding_does(store: str, replicas: int, settings: dict[str, Any]) -> None:
    dense = Embedding.from_pretrained(WHOLE.clone(), freeze=False)
    plain = {key: value for key, value in settings.items() if key in ("momentum", "wd")}
    reference = make({"table": dense.weight}, optimizer_params={"learning_rate": 0.01, **plain})
    table = table_of(replicas)
    trainer = ParameterTrainer([table], "sgd", {"learning_rate": 0.01, **settings}, kvstore=store)
    for batch in ([0, 3, 3, 5], [1, 1, 4, 0], [2, 2, 2, 2]):
        ids = torch.tensor(batch)
        dense.zero_grad()
        dense(ids).square().sum().backward()
        reference.step(4)
        for share in ids.chunk(replicas):
            rows = table.row_sparse_data(share)
            rows.lookup(share).square().sum().backward()
        trainer.step(4)
    torch.testing.assert_close(table.all_rows(), dense.weight.detach())
    assert trainer.update_on_kvstore is True


@pytest.mark.parametrize("store", ["local", "dist_sync"])
def test_updates_that_were_put_off_belong_to_the_rows_before_they_were_replaced(store: str) -> None:
    def run(update: str) -> torch.Tensor:
        table = table_of()
        settings = {"learning_rate": 0.01, "momentum": 0.9, "update": update}
        trainer = ParameterTrainer([table], "sgd", settings, kvstore=store)
        for step, ids in enumerate(([0, 3], [1, 3], [0, 5])):
            if step == 2:
                trainer.replace_table(table, torch.ones_like(WHOLE))
            table.row_sparse_data(torch.tensor(ids)).lookup(torch.tensor(ids)).square().sum().backward()
            trainer.step(1)
        return table.all_rows()

    torch.testing.assert_close(run("dense_lazy"), run("dense"))


def test_rows_are_pulled_sorted_and_once() -> None:
    table = table_of(2)
    trainer = make([table], kvstore="local")
    rows = table.row_sparse_data(torch.tensor([[5, 1], [1, 5]]))
    assert (rows.indices.tolist(), rows.values.tolist()) == ([1, 5], [[2, 3], [10, 11]])
    assert rows.lookup(torch.tensor([[5], [1]])).tolist() == [[[10, 11]], [[2, 3]]]
    assert [one.indices.tolist() for one in table.list_row_sparse_data(torch.tensor([3]))] == [[3], [3]]
    assert trainer.kvstore is not None


def test_a_row_that_was_not_pulled_is_not_looked_up() -> None:
    table = table_of()
    trainer = make([table], kvstore="local")
    rows = table.row_sparse_data(torch.tensor([1, 3]))
    assert trainer.kvstore is not None
    for wrong in (0, 2, 4):
        with pytest.raises(ArgumentValueError, match=f"Row {wrong} was not pulled"):
            rows.lookup(torch.tensor([1, wrong]))
    with pytest.raises(ArgumentTypeError, match="not list"):
        rows.lookup([1])  # pyrefly: ignore


def test_pulling_rows_for_looking_only_keeps_nothing() -> None:
    table = table_of()
    trainer = make([table], kvstore="local")
    with torch.no_grad():
        rows = table.row_sparse_data(torch.tensor([1]))
    assert not rows.values.requires_grad
    with pytest.raises(UpdateRefusedError):
        trainer.step(1)
    table.grad_req = "null"
    assert not table.row_sparse_data(torch.tensor([1])).values.requires_grad


def test_only_rows_with_a_gradient_are_pushed() -> None:
    table = table_of()
    trainer = make([table], kvstore="local", optimizer_params={"learning_rate": 1.0, "lazy_update": True})
    table.row_sparse_data(torch.tensor([0]))  # pulled, and not used
    table.row_sparse_data(torch.tensor([1, 2])).values.sum().backward()
    table.row_sparse_data(torch.tensor([2, 3])).values.sum().backward()
    trainer.step(1)
    expected = WHOLE.clone()
    expected[1] -= 1
    expected[2] -= 2
    expected[3] -= 1
    assert torch.equal(table.all_rows(), expected)
    with pytest.raises(UpdateRefusedError):
        trainer.step(1)


def test_a_table_stands_beside_dense_parameters() -> None:
    table, layer = table_of(), Linear(2, 1)
    trainer = make([table, ("weight", layer.weight), ("bias", layer.bias)], kvstore="local")
    before = layer.weight.detach().clone()
    ids = torch.tensor([0, 4])
    layer(table.row_sparse_data(ids).lookup(ids)).sum().backward()
    trainer.step(2)
    assert not torch.equal(layer.weight, before)
    assert not torch.equal(table.all_rows()[4], WHOLE[4])
    assert torch.equal(table.all_rows()[1], WHOLE[1])


def test_an_overflow_in_a_row_skips_everything() -> None:
    table, layer = table_of(), Linear(2, 1)
    trainer = make([table, ("weight", layer.weight), ("bias", layer.bias)], kvstore="local")
    trainer.loss_scaler = LossScaler(4.0)
    before = layer.weight.detach().clone()
    (table.row_sparse_data(torch.tensor([0])).values * float("inf")).sum().backward()
    layer(torch.ones(1, 2)).sum().backward()
    trainer.step(1)
    assert trainer.last_update_skipped
    assert torch.equal(layer.weight, before)
    assert torch.equal(table.all_rows(), WHOLE)


def test_unscaling_reaches_pulled_rows() -> None:
    table = table_of()
    trainer = make([table], kvstore="local", optimizer_params={"learning_rate": 1.0})
    trainer.loss_scaler = LossScaler(4.0)
    trainer.scale_loss(table.row_sparse_data(torch.tensor([1])).values.sum()).backward()
    trainer.unscale()
    trainer.step(1)
    assert table.all_rows()[1].tolist() == (WHOLE[1] - 1).tolist()


@pytest.mark.parametrize(
    "initial", [WHOLE, RowSparse(torch.tensor([1, 4]), WHOLE[[1, 4]], (6, 2))], ids=["whole", "rows"]
)
def test_a_table_begins_with_what_it_was_given(initial: Tensor | RowSparse) -> None:
    table = TableParameter("table", initial)
    trainer = make([table], kvstore="local")
    expected = initial if isinstance(initial, Tensor) else initial.to_dense()
    assert torch.equal(table.all_rows(), expected)
    assert (table.shape, table.numel(), table.dtype) == ((6, 2), 12, torch.float32)
    assert trainer.kvstore is not None


def test_a_table_can_be_replaced_and_keeps_its_state(tmp_path: Any) -> None:
    def run(restart: bool) -> Tensor:
        table = table_of()
        settings = {"learning_rate": 0.1, "momentum": 0.9}
        trainer = make([table], kvstore="local", optimizer_params=settings)
        for step in range(4):
            if restart and step == 2:
                trainer.save_states(tmp_path / "x.states")
                kept = table.all_rows()
                table = TableParameter("table", torch.zeros(6, 2))
                trainer = make([table], kvstore="device", optimizer_params=settings)
                trainer.load_states(tmp_path / "x.states")
                table.set_data(kept)
            table.row_sparse_data(torch.tensor([step, 5])).values.square().sum().backward()
            trainer.step(1)
        return table.all_rows()

    assert torch.equal(run(True), run(False))


# --- errors -------------------------------------------------------------------------------------------------------


def test_a_table_without_a_trainer_has_no_rows() -> None:
    table = table_of()
    with pytest.raises(StateError, match="belongs to no trainer"):
        table.row_sparse_data(torch.tensor([0]))
    trainer = make([table], kvstore="local")
    trainer.open()
    del trainer
    with pytest.raises(StateError, match="belongs to no trainer"):
        table.all_rows()


def test_a_table_is_replaced_as_a_whole() -> None:
    table = table_of()
    with pytest.raises(ArgumentValueError, match="shape"):
        table.set_data(torch.zeros(5, 2))
    with pytest.raises(StateError, match="belongs to no trainer"):
        table.set_data(torch.zeros(6, 2))


def test_the_data_of_a_table_is_not_here() -> None:
    with pytest.raises(StateError, match="row_sparse_data"):
        table_of().data()


@pytest.mark.parametrize("wrong", [[0, 1], 3, torch.tensor([0.5]), torch.tensor([True])])
def test_rows_are_asked_for_by_a_tensor_of_integers(wrong: Any) -> None:
    table = table_of()
    make([table], kvstore="local").open()
    for call in (table.row_sparse_data, table.list_row_sparse_data):
        with pytest.raises(ArgumentTypeError, match="integers"):
            call(wrong)


def test_a_row_that_is_not_there_is_an_error() -> None:
    table = table_of()
    trainer = make([table], kvstore="local")
    with pytest.raises(ArgumentValueError, match="Row 6 "):
        table.row_sparse_data(torch.tensor([0, 6]))
    assert trainer.kvstore is not None


def test_a_table_is_handed_over_once() -> None:
    table = table_of()
    trainer = make([table], kvstore="local")
    trainer.open()
    del trainer
    again = make([table], kvstore="local")
    with pytest.raises(StateError, match="handed to a store before"):
        again.open()
