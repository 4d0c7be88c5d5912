"""Every public call answers wrong types and values by an error that says what to do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato import gluon, kvstore
from ostinato.errors import OstinatoError
from ostinato.kvstore import compression
from ostinato.optim import rate_schedules, rules
from ostinato.optim.row_sparse_gradient import RowSparse

WRONG: dict[str, Any] = {
    "nothing": None,
    "a number": 5,
    "below 0": -1,
    "not a number": float("nan"),
    "text": "no such thing",
    "an empty list": [],
    "a list of texts": ["a"],
    "an empty mapping": {},
    "an object": object(),
    "integers": torch.tensor([1, 2]),
    "a class": int,
}


def net() -> nn.Module:
    return nn.Linear(3, 2)


def trainer() -> kvstore.ParameterTrainer:
    model = net()
    made = kvstore.ParameterTrainer(dict(model.named_parameters()), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    made.loss_scaler = kvstore.LossScaler()
    model(torch.ones(1, 3)).sum().backward()
    made.allreduce_grads()
    return made


def filled(store: Any) -> Any:
    if not isinstance(store, kvstore.LocalStore):
        store.set_optimizer(rules.create("sgd"))
    store.init("w", torch.zeros(2, 2))
    store.init("t", RowSparse(torch.arange(3), torch.ones(3, 2), (3, 2)))
    return store


def table() -> kvstore.TableParameter:
    made = kvstore.TableParameter("t", torch.ones(4, 2))
    owner = kvstore.ParameterTrainer({"t": made}, "sgd", kvstore="local")
    owner.open()
    made.owner = owner  # type: ignore[attr-defined]  # kept alive
    return made


def setter(thing: Any, name: str) -> Callable[[Any], None]:
    return lambda value: setattr(thing, name, value)


Case = tuple[Callable[[], Callable[..., Any]], dict[str, Any]]


def cases() -> dict[str, Case]:
    square, rows = torch.zeros(2, 2), torch.tensor([1])
    found: dict[str, Case] = {}

    def of(name: str, make: Callable[[], Any], calls: dict[str, dict[str, Any]]) -> None:
        for call, valid in calls.items():
            found[f"{name}.{call}"] = (lambda make=make, call=call: getattr(make(), call)), valid

    arguments = {"params": dict(net().named_parameters()), "optimizer": "sgd", "optimizer_params": {}}
    more = {"compression_params": None, "update_on_kvstore": None}
    found["ParameterTrainer"] = (lambda: kvstore.ParameterTrainer), {**arguments, **more}
    found["gluon.Trainer"] = (lambda: gluon.Trainer), {**arguments, **more}
    saved = trainer().state_dict()
    of(
        "trainer",
        trainer,
        {
            "step": {"batch_size": 1, "ignore_stale_grad": False},
            "update": {"batch_size": 1, "ignore_stale_grad": False},
            "set_learning_rate": {"rate": 0.1},
            "set_multipliers": {"lr_mult": {}, "wd_mult": {}},
            "set_data": {"name": "weight", "value": torch.zeros(2, 3)},
            "catch_up": {"name": "weight", "rows": None},
            "load_state_dict": {"state": saved},
            "load_states": {"path": "there is no such file"},
            "scale_loss": {"loss": torch.ones(1)},
            "zero_grad": {"set_to_none": True},
        },
    )
    stores: dict[str, Callable[[], Any]] = {
        "local": kvstore.LocalStore,
        "device": lambda: kvstore.LocalStore("device"),
        "sync": kvstore.CollectiveStore,
        "async": kvstore.AsyncStore,
    }
    for name, make in stores.items():
        of(
            name,
            lambda make=make: filled(make()),
            {
                "init": {"key": "n", "value": torch.zeros(2)},
                "push": {"key": "w", "value": square},
                "pull": {"key": "w", "out": square},
                "pushpull": {"key": "w", "value": square, "out": square},
                "broadcast": {"key": "b", "value": torch.zeros(2), "out": torch.zeros(2)},
                "row_sparse_pull": {"key": "t", "row_ids": rows},
                "set_value": {"key": "w", "value": square},
                "set_optimizer": {"optimizer": rules.create("sgd")},
                "set_updater": {"updater": lambda key, total, stored: None},
                "set_gradient_compression": {"parameters": {"type": "2bit"}},
                "load_residuals": {"residuals": []},
                "load_optimizer_states": {"states": {"format": 1, "optimizer": "sgd", "states": {}, "counts": {}}},
                "is_capable": {"capability": "optimizer"},
                "agree": {"flags": [True]},
                "rows_in_parts": {"key": "t"},
                "load_rows": {"key": "t", "rows": torch.zeros(3, 2)},
                "name_keys": {"names": {}},
            },
        )
    of("sync", lambda: filled(kvstore.CollectiveStore()), {"watch": {"parameters": {}}})
    found["LocalStore"] = (lambda: kvstore.LocalStore), {"type": "local"}
    found["CollectiveStore"] = (
        (lambda: kvstore.CollectiveStore),
        {"type": "dist_sync", "group": None, "bucket_bytes": 100, "route": None},
    )
    found["AsyncStore"] = (
        (lambda: kvstore.AsyncStore),
        {"type": "dist_async", "group": None, "transport": None, "staleness": None},
    )
    found["create"] = (lambda: kvstore.create), {"name": "local"}
    found["register"] = (lambda: kvstore.register), {"store": kvstore.LocalStore}
    initial = {"name": "t", "initial": torch.zeros(2, 2), "devices": ["cpu"]}
    found["TableParameter"] = (lambda: kvstore.TableParameter), initial
    of(
        "table",
        table,
        {
            "row_sparse_data": {"row_ids": rows},
            "list_row_sparse_data": {"row_ids": rows},
            "set_data": {"value": torch.zeros(4, 2)},
        },
    )

    def handle() -> kvstore.ParameterHandle:
        return kvstore.ParameterHandle("w", [nn.Parameter(torch.zeros(2))])

    found["ParameterHandle"] = (
        (lambda: kvstore.ParameterHandle),
        {"name": "w", "replicas": [nn.Parameter(torch.zeros(2))]},
    )
    of("handle", handle, {"set_data": {"value": torch.zeros(2)}})
    for name, value in (("lr_mult", 1.0), ("wd_mult", 1.0), ("grad_req", "add")):
        found[f"handle.{name}"] = (lambda name=name: setter(handle(), name)), {"value": value}
    found["LoopOptimizer"] = (
        (lambda: kvstore.LoopOptimizer),
        {"trainer": trainer(), "models": [net()], "batch_size": None, "ignore_stale_grad": False},
    )
    of("LossScaler", kvstore.LossScaler, {"load_state_dict": {"state": kvstore.LossScaler().state_dict()}})
    found["replicate"] = (lambda: kvstore.replicate), {"module": net(), "devices": ["cpu"]}
    found["replica_parameters"] = (lambda: kvstore.replica_parameters), {"replicas": [net()]}
    batch = {"data": torch.zeros(4, 2), "batch_axis": 0, "even_split": True}
    found["split_data"] = (lambda: kvstore.split_data), {**batch, "num_slice": 2}
    found["split_and_load"] = (lambda: kvstore.split_and_load), {**batch, "devices": ["cpu", "cpu"]}
    found["collect_params"] = (lambda: gluon.collect_params), {"net": net(), "select": None}
    found["clip_global_norm"] = (lambda: gluon.clip_global_norm), {"arrays": [torch.ones(2)], "max_norm": 1.0}
    # --- rules
    found["rules.create"] = (lambda: rules.create), {"name": "sgd"}
    found["rules.register"] = (lambda: rules.register), {"cls": rules.SGD}
    for name in rules.registered_names():
        rule = rules.create(name)
        given = {key: value for key, value in rule.arguments().items() if value is not None}
        found[f"rules.{name}"] = (lambda rule=rule: type(rule)), {**given, "lr_scheduler": None, "param_dict": None}
    found["TorchOptimizer"] = (lambda: rules.TorchOptimizer), {"optimizer": torch.optim.AdamW}
    adam = rules.create("adam")
    state, weight = adam.create_state(0, torch.zeros(2)), torch.zeros(2)
    of(
        "adam",
        lambda: rules.create("adam"),
        {
            "set_learning_rate": {"rate": 0.1},
            "set_lr_mult": {"multipliers": {}},
            "set_wd_mult": {"multipliers": {}},
            "load_state_dict": {"state": adam.state_dict()},
            "create_state": {"index": 0, "weight": weight},
            "adopt_state": {"index": 0, "weight": weight, "state": state},
            "update": {"indices": [0], "weights": [weight], "gradients": [weight], "states": [state]},
        },
    )
    found["Updater"] = (lambda: rules.Updater), {"optimizer": adam}
    of(
        "updater",
        lambda: rules.Updater(rules.create("adam")),
        {
            "__call__": {"indices": [0], "gradients": [weight], "weights": [weight]},
            "load_state_dict": {"state": rules.Updater(adam).state_dict()},
            "catch_up": {"indices": [0], "weights": [weight], "rows": None},
            "state_of": {"index": 0, "weight": weight},
        },
    )
    found["unpack_state"] = (lambda: rules.unpack_state), {"packed": {}}
    # --- schedules
    own: dict[type[Any], dict[str, Any]] = {
        rate_schedules.FactorSchedule: {"step": 2, "factor": 0.5},
        rate_schedules.MultiFactorSchedule: {"step": [2, 3], "factor": 0.5},
        rate_schedules.PolySchedule: {"max_update": 10},
        rate_schedules.CosineSchedule: {"max_update": 10},
    }
    for cls, needed in own.items():
        defaults = {
            name: each.default for name, each in inspect.signature(cls).parameters.items() if name not in needed
        }
        found[cls.__name__] = (lambda cls=cls: cls), {**defaults, **needed}
        found[f"{cls.__name__}()"] = (lambda cls=cls, needed=needed: cls(**needed)), {"num_update": 1}
        of(
            cls.__name__,
            lambda cls=cls, needed=needed: cls(**needed),
            {"load_state_dict": {"state": cls(**needed).state_dict()}},
        )
    found["create_schedule"] = (lambda: rate_schedules.create_schedule), {"name": "factor", "step": 2}
    schedule = rate_schedules.FactorSchedule(step=2)
    found["schedule_from_state"] = (lambda: rate_schedules.schedule_from_state), {"state": schedule.state_dict()}
    sparse = {"indices": torch.tensor([0]), "values": torch.zeros(1, 2), "shape": (3, 2)}
    found["RowSparse"] = (lambda: lambda **given: RowSparse(**given).checked()), sparse
    found["RowSparse.from_rows"] = (lambda: RowSparse.from_rows), sparse
    found["RowSparse.from_coo"] = (lambda: RowSparse.from_coo), {"tensor": torch.zeros(2, 2).to_sparse(1)}
    found["CompressionScheme"] = (lambda: compression.CompressionScheme), {"type": "2bit", "threshold": 0.5}
    return found


CASES = cases()


def raised_by(call: Callable[..., Any], arguments: dict[str, Any]) -> Exception | None:
    try:
        call(**arguments)
    except Exception as error:
        return error
    return None


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_wrong_arguments_are_answered_by_what_to_do(name: str) -> None:
    make, valid = CASES[name]
    for argument in valid:
        for kind, value in WRONG.items():
            error = raised_by(make(), {**valid, argument: value})
            assert error is None or isinstance(error, OstinatoError), f"{argument} is {kind}: {error!r}"
            assert error is None or error.advice, f"{argument} is {kind}: {error}"


def test_messages_about_a_parameter_name_it() -> None:
    model = net()
    made = kvstore.ParameterTrainer(dict(model.named_parameters()), "sgd", kvstore="dist_sync", update_on_kvstore=True)
    made.open()
    with pytest.raises(OstinatoError, match="'weight' holds"):
        made.kvstore.push(made.parameters["weight"].index, torch.zeros(1))  # type: ignore[union-attr]
    words = table()
    with pytest.raises(OstinatoError, match="Row 9 was asked for, and 't' has the rows 0 to 3"):
        words.row_sparse_data(torch.tensor([9]))
    with pytest.raises(OstinatoError, match="weight 'weight' has shape"):
        made.optimizer.update([made.parameters["weight"].index], [torch.zeros(3)], [torch.zeros(2)], [{}])


def test_a_class_of_torch_is_no_name_of_a_rule() -> None:
    with pytest.raises(OstinatoError, match="TorchOptimizer"):
        rules.create(torch.optim.AdamW)  # type: ignore[arg-type]


def test_a_store_takes_an_optimizer_by_its_name() -> None:
    store = kvstore.LocalStore()
    store.set_optimizer("sgd")  # type: ignore[arg-type]
    store.init("w", torch.zeros(2))
    store.push("w", torch.ones(2))
    out = torch.zeros(2)
    store.pull("w", out)
    assert out.tolist() == pytest.approx([-0.1, -0.1])


@pytest.mark.parametrize("name", ["adam", "adamw", "lars", "nag"])
def test_rules_that_cannot_catch_up_say_which_can(name: str) -> None:
    for make in (lambda: rules.create(name, update="dense_lazy"), lambda: type(rules.create(name))(update="x")):
        with pytest.raises(OstinatoError, match="'dense_lazy' with sgd alone"):
            make()


def test_states_are_saved_to_a_file(tmp_path: Path) -> None:
    for wrong in (5, None, [], b"name"):
        with pytest.raises(OstinatoError, match="path of a file"):
            trainer().save_states(wrong)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
