"""Every error and warning of the trainer, of the kind that Gluon's users catch; none of them changes anything."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from kvstore_stand_ins import (
    FrozenStore,
    PlugInStore,
    assert_near,
    backward,
    backward_all,
    make,
    two_parameters,
    values,
)
from torch import nn
from torch.nn import Parameter

from ostinato.errors import OstinatoError
from ostinato.kvstore import LocalStore, ParameterHandle, ParameterTrainer, TableParameter, register
from ostinato.optim.rate_schedules import FactorSchedule
from ostinato.optim.rules import SGD, create


def raises(kind: type[BaseException], match: str) -> Any:
    """The error is of Gluon's kind and of our family."""
    found = pytest.raises(kind, match=match)

    class Both:
        def __enter__(self) -> Any:
            self.info = found.__enter__()
            return self.info

        def __exit__(self, *exception: Any) -> bool | None:
            answer = found.__exit__(*exception)
            assert isinstance(self.info.value, OstinatoError)
            return answer

    return Both()


# --- the constructor -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [{1, 2}, iter([]), None, 3])
def test_a_container_that_is_neither_dict_nor_list_is_a_value_error(params: Any) -> None:
    with raises(ValueError, "dict, a list or a tuple"):
        make(params)


def test_a_generator_of_named_parameters_is_told_what_to_write() -> None:
    with raises(ValueError, r"dict\(model.named_parameters"):
        make(nn.Linear(1, 1).named_parameters())


@pytest.mark.parametrize("element", [torch.zeros(2), "weight", 3, [torch.zeros(2)]])
def test_an_element_that_is_no_parameter_is_a_value_error(element: Any) -> None:
    with raises(ValueError, "not a parameter"):
        make({"a": element})


def test_no_parameters_at_all_are_a_value_error() -> None:
    with raises(ValueError, "no parameters"):
        make({})


def test_replica_lists_that_differ_are_an_assertion_error() -> None:
    weights = two_parameters()
    weights["b"] = weights["b"][:1]
    with raises(AssertionError, "'b' is on cpu, and 'a' is on cpu, cpu"):
        make(weights)


def test_a_parameter_without_a_value_is_a_runtime_error() -> None:
    with raises(RuntimeError, "'a' has no value"):
        make({"a": Parameter(torch.empty(2, device="meta"))})


def test_a_table_belongs_to_one_trainer() -> None:
    table = TableParameter("table", torch.zeros(4, 2))
    first = make([table], kvstore="local")
    with raises(RuntimeError, "belongs to another trainer"):
        make([table], kvstore="local")
    assert first.parameters["table"] is table


def test_dense_parameters_may_be_bound_again() -> None:
    weights = two_parameters()
    make(weights)
    trainer = make(weights)
    backward_all(weights)
    trainer.step(1)
    assert_near(weights["b"], -1.2)


def test_an_optimizer_object_together_with_parameters_is_an_assertion_error() -> None:
    with raises(AssertionError, "learning_rate"):
        ParameterTrainer(two_parameters(), SGD(), {"learning_rate": 0.1})
    ParameterTrainer(two_parameters(), SGD(), {})


def test_an_unknown_optimizer_is_a_value_error_with_the_nearest_name() -> None:
    with raises(ValueError, "'sgd'"):
        ParameterTrainer(two_parameters(), "sdg")


def test_an_unknown_keyword_is_a_type_error() -> None:
    with raises(TypeError, "momentun"):
        ParameterTrainer(two_parameters(), "sgd", {"momentun": 0.9})


@pytest.mark.parametrize(("optimizer", "keyword"), [("rmsprop", "gamma1"), ("rmsprop", "gamma2"), ("adagrad", "eps")])
def test_a_keyword_with_another_name_today_is_a_raised_deprecation_warning(optimizer: str, keyword: str) -> None:
    with raises(DeprecationWarning, keyword):
        ParameterTrainer(two_parameters(), optimizer, {keyword: 0.5})


def test_an_optimizer_that_is_none_is_a_type_error() -> None:
    with raises(TypeError, "optimizer is int"):
        ParameterTrainer(two_parameters(), 3)


def test_updates_on_the_store_and_aggregation_exclude_each_other() -> None:
    with raises(ValueError, "aggregate_num"):
        make(two_parameters(), optimizer_params={"aggregate_num": 4}, update_on_kvstore=True)


# --- first use: where updates run ------------------------------------------------------------------------------------


def test_a_table_cannot_be_updated_on_the_replicas() -> None:
    table = TableParameter("table", torch.zeros(4, 2))
    trainer = make([table], kvstore="local", update_on_kvstore=False)
    with raises(ValueError, "row-sparse weight"):
        trainer.open()


def test_a_table_needs_a_store(clean_registry: None) -> None:
    for store in (None, PlugInStore()):
        with raises(TypeError, "row-sparse weight"):
            make([TableParameter("table", torch.zeros(4, 2))], kvstore=store).open()
    register(PlugInStore)
    with raises(AssertionError, "cannot run an optimizer"):
        make([TableParameter("table", torch.zeros(4, 2))], kvstore="PlugInStore").open()


def test_row_sparse_gradients_need_a_store_that_knows_them() -> None:
    weights = {"table": [Parameter(torch.zeros(4, 2)) for _ in range(2)]}
    weights["table"][0].grad_stype = "row_sparse"  # type: ignore[attr-defined]
    with raises(ValueError, "row-sparse"):
        make(weights, kvstore=PlugInStore()).open()


def test_a_store_that_cannot_run_an_optimizer_cannot_be_asked_to() -> None:
    with raises(ValueError, "cannot run an optimizer"):
        make(two_parameters(), kvstore=PlugInStore(), update_on_kvstore=True).open()


def test_updates_on_a_store_that_is_not_there_run_on_the_replicas() -> None:
    """Upstream dereferences the store that is not there."""
    for store, replicas in ((None, 2), ("device", 1), ("local", 1)):
        weights = two_parameters(replicas)
        trainer = make(weights, kvstore=store, update_on_kvstore=True)
        backward_all(weights)
        trainer.step(1)
        assert trainer.update_on_kvstore is None
        assert trainer.kvstore is None
        assert_near(weights["b"], -1.0 - 0.1 * replicas)


@pytest.mark.parametrize("store", [3, ["device"], LocalStore])
def test_a_store_argument_of_another_kind_is_a_type_error(store: Any) -> None:
    with raises(TypeError, "neither a name, nor a store, nor None"):
        make(two_parameters(), kvstore=store).open()


def test_an_unknown_store_is_a_value_error_with_the_nearest_name() -> None:
    with raises(ValueError, "'device'"):
        make(two_parameters(), kvstore="devise").open()


def test_the_environment_variable_has_to_be_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", "yes")
    with raises(ValueError, "MXNET_UPDATE_ON_KVSTORE is 'yes'"):
        make(two_parameters()).open()


def test_what_was_refused_at_first_use_is_refused_again() -> None:
    trainer = make(two_parameters(), kvstore=PlugInStore(), update_on_kvstore=True)
    for _ in range(2):
        with raises(ValueError, "cannot run an optimizer"):
            trainer.open()
    with raises(RuntimeError, "decided by the first step"):
        _ = trainer.update_on_kvstore


# --- first use: compression ------------------------------------------------------------------------------------------


def test_the_store_local_does_not_compress() -> None:
    with raises(Exception, "'local' compresses nothing"):
        make(two_parameters(), kvstore="local", compression_params={"type": "2bit"}).open()


def test_a_plug_in_without_compression_is_an_attribute_error() -> None:
    with raises(AttributeError, "set_gradient_compression"):
        make(two_parameters(), kvstore=PlugInStore(), compression_params={"type": "2bit"}).open()


@pytest.mark.parametrize("params", [{}, {"type": "3bit"}, {"type": "2bit", "threshold": 0}])
def test_compression_that_makes_no_sense_is_refused(params: dict[str, Any]) -> None:
    with raises(ValueError, "ompression"):
        make(two_parameters(), compression_params=params).open()


def test_compression_of_other_values_than_dense_float32_is_a_type_error() -> None:
    half = {"a": [Parameter(torch.zeros(2, dtype=torch.float16)) for _ in range(2)]}
    with raises(TypeError, "float16"):
        make(half, compression_params={"type": "2bit"}).open()
    rows = {"a": [Parameter(torch.zeros(4, 2)) for _ in range(2)]}
    rows["a"][0].grad_stype = "row_sparse"  # type: ignore[attr-defined]
    with raises(TypeError, "row-sparse"):
        make(rows, compression_params={"type": "2bit"}).open()


def test_compression_without_a_store_is_said_to_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    weights = two_parameters(1)
    trainer = make(weights, compression_params={"type": "2bit"})
    backward_all(weights)
    with caplog.at_level(logging.WARNING):
        trainer.step(1)
    assert "have no effect" in caplog.text
    assert_near(weights["b"], -1.1)


# --- steps -----------------------------------------------------------------------------------------------------------


def test_a_changed_batch_size_is_refused_where_the_store_has_a_frozen_copy_of_the_optimizer() -> None:
    weights = two_parameters(1)
    trainer = make(weights, kvstore=FrozenStore(), update_on_kvstore=True)
    backward_all(weights)
    trainer.step(4)
    backward_all(weights)
    trainer.step(4)
    backward_all(weights)
    with raises(UserWarning, "copy of the optimizer was made at the first step"):
        trainer.step(8)
    assert trainer.optimizer.rescale_grad == 0.25
    trainer.step(4)


def test_a_changed_batch_size_is_followed_by_every_other_store() -> None:
    weights = two_parameters()
    trainer = make(weights, update_on_kvstore=True)
    backward_all(weights)
    trainer.step(1)
    trainer.zero_grad()
    backward_all(weights)
    trainer.step(2)
    assert_near(weights["b"], -1.0 - 0.2 - 0.1)


@pytest.mark.parametrize("size", [0, -1, float("nan")])
def test_a_batch_size_that_makes_no_sense_is_refused(size: float) -> None:
    with raises(ValueError, "batch size"):
        make(two_parameters()).step(size)


@pytest.mark.parametrize("on_store", [True, False])
def test_a_stale_gradient_is_a_raised_user_warning_and_changes_nothing(on_store: bool) -> None:
    weights = two_parameters()
    trainer = make(weights, update_on_kvstore=on_store)
    backward(weights, a=[[1.0, 2.0], [0.5, -1.0]])
    for _ in range(2):
        with raises(UserWarning, "1 parameters .* 'b'"):
            trainer.step(1)
        assert values(weights["a"]) == [[1.0, 2.0]] * 2
        assert [replica.grad.tolist() for replica in weights["a"]] == [[1.0, 2.0], [0.5, -1.0]]
    assert trainer.optimizer.num_update == 0
    trainer.step(1, ignore_stale_grad=True)
    assert_near(weights["a"], 0.85, 1.9)
    assert values(weights["b"]) == [[-1.0]] * 2


def test_update_raises_for_stale_gradients_too() -> None:
    weights = two_parameters()
    trainer = make(weights, update_on_kvstore=False)
    backward(weights, a=[[1.0, 2.0], [0.5, -1.0]])
    trainer.allreduce_grads()
    with raises(UserWarning, "'b'"):
        trainer.update(1)
    assert values(weights["a"]) == [[1.0, 2.0]] * 2


@pytest.mark.parametrize("call", ["allreduce_grads", "update"])
def test_the_split_step_is_an_assertion_error_where_the_store_updates(call: str) -> None:
    trainer = make(two_parameters(), update_on_kvstore=True)
    with raises(AssertionError, call):
        getattr(trainer, call)(*([1] if call == "update" else []))


def test_update_refuses_gradients_that_were_not_added_up() -> None:
    weights = two_parameters()
    trainer = make(weights, update_on_kvstore=False)
    backward_all(weights)
    with raises(RuntimeError, "not added up"):
        trainer.update(1)
    trainer.allreduce_grads()
    backward(weights, a=[[1.0, 1.0], None])
    with raises(RuntimeError, "'a'"):
        trainer.update(1)


# --- rates, states, stores -------------------------------------------------------------------------------------------


def test_a_rate_cannot_be_set_beside_a_schedule() -> None:
    trainer = make(two_parameters(), optimizer_params={"lr_scheduler": FactorSchedule(step=2, factor=0.5)})
    with raises(UserWarning, "schedule"):
        trainer.set_learning_rate(0.5)


def test_rate_and_optimizer_are_there_from_the_start() -> None:
    trainer = make(two_parameters())
    assert trainer.learning_rate == 0.1
    assert isinstance(trainer.optimizer, SGD)


def test_states_of_a_store_cannot_be_saved_while_a_shape_is_missing(tmp_path: Any) -> None:
    lazy = [nn.LazyLinear(2, bias=False) for _ in range(2)]
    trainer = make({"weight": [module.weight for module in lazy]}, update_on_kvstore=True)
    with raises(AssertionError, "'weight' has no shape yet"):
        trainer.save_states(tmp_path / "x.states")
    assert not list(tmp_path.iterdir())


def test_a_distributed_store_is_not_made_anew() -> None:
    trainer = make(two_parameters(1), kvstore=FrozenStore())
    trainer.open()
    with raises(RuntimeError, "shared with other processes"):
        trainer.reset_store()


def test_a_store_with_a_table_is_not_made_anew() -> None:
    trainer = make([TableParameter("table", torch.zeros(4, 2))], kvstore="local")
    trainer.open()
    with raises(RuntimeError, "would be lost"):
        trainer.reset_store()


def test_a_float16_weight_without_a_master_copy_is_warned_about_once() -> None:
    weights = {"a": [Parameter(torch.ones(2, dtype=torch.float16))]}
    trainer = make(weights)
    backward_all(weights)
    with pytest.warns(UserWarning, match="multi_precision"):
        trainer.step(1)


def test_a_multiplier_for_a_name_that_is_not_there_is_a_value_error_with_the_nearest_one() -> None:
    handles = [ParameterHandle("encoder.weight", [Parameter(torch.ones(2))])]
    trainer = make(handles)
    with raises(ValueError, "Did you mean 'encoder.weight'"):
        trainer.set_multipliers(lr_mult={"encoder.weigth": 0.0})
    with raises(ValueError, "bias"):
        trainer.set_multipliers(lr_mult={"encoder.weight": 0.0}, wd_mult={"bias": 0.0})
    assert handles[0].lr_mult == 1.0


@pytest.mark.parametrize(("factor", "kind"), [("a", TypeError), (None, TypeError), (float("nan"), ValueError)])
def test_a_multiplier_that_is_no_finite_number_is_refused(factor: Any, kind: type[Exception]) -> None:
    model = nn.Linear(2, 2)
    trainer = make(dict(model.named_parameters()))
    with raises(kind, "multiplier of 'weight'"):
        trainer.set_multipliers(lr_mult={"bias": 0.5, "weight": factor})
    with raises(kind, "wd_mult of 'weight'"):
        trainer.parameters["weight"].wd_mult = factor
    assert [(one.lr_mult, one.wd_mult) for one in trainer.parameters.values()] == [(1.0, 1.0)] * 2
    model.weight.lr_mult = factor
    model(torch.ones(1, 2)).sum().backward()
    with raises(kind, "lr_mult of 'weight'"):
        trainer.step(1)


@pytest.mark.parametrize("size", ["8", None, torch.ones(2)])
def test_a_batch_size_that_is_no_number_is_a_type_error(size: Any) -> None:
    with raises(TypeError, "batch_size is a number"):
        make(dict(nn.Linear(2, 2).named_parameters())).step(size)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer_params": "lr=1"}, "keyword arguments come as a mapping"),
        ({"compression_params": "2bit"}, "Compression parameters are a mapping"),
        ({"update_on_kvstore": "yes"}, "True, False or None"),
    ],
)
def test_options_of_another_kind_are_type_errors(options: dict[str, Any], said: str) -> None:
    with raises(TypeError, said):
        ParameterTrainer(dict(nn.Linear(2, 2).named_parameters()), "sgd", **options)


@pytest.mark.parametrize("part", ["optimizer", "states", "counts", "residuals", "loss_scaler"])
def test_a_state_with_a_part_of_another_kind_is_refused_and_changes_nothing(part: str) -> None:
    trainer = make(dict(nn.Linear(2, 2).named_parameters()))
    state = {**trainer.state_dict(), "optimizer": create("sgd", learning_rate=7.0).state_dict(), part: "junk"}
    before = trainer.learning_rate
    with raises(ValueError, f"The part '{part}'"):
        trainer.load_state_dict(state)
    assert trainer.learning_rate == before
    with raises(TypeError, "mapping"):
        trainer.load_state_dict(None)  # pyrefly: ignore


def test_residuals_of_another_compression_are_refused_before_anything_is_taken_over() -> None:
    def compressing(kind: str) -> ParameterTrainer:
        weight = nn.Parameter(torch.ones(3))
        trainer = make({"weight": weight}, "adam", kvstore="dist_sync", compression_params={"type": kind})
        weight.sum().backward()
        trainer.step(1)
        return trainer

    saved, trainer = compressing("2bit").state_dict(), compressing("1bit")
    saved["optimizer"]["arguments"]["learning_rate"] = 7.0
    before = trainer.learning_rate
    with raises(RuntimeError, "2bit compression, and this is 1bit"):
        trainer.load_state_dict(saved)
    assert trainer.learning_rate == before
