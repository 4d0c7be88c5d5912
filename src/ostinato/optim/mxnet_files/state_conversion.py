"""MXNet's trainer states as an optimizer and its updater, and back.

MXNet keeps a state as a tuple whose order is part of the format; here every part has a name. Releases differ: in 1.9.1
all optimizers lie in one module, some put the master copy last instead of first, and some keywords had other names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ostinato.errors import ArgumentValueError, BadInputError
from ostinato.optim.mxnet_files.plain_pickle import ClassName, PlainObject
from ostinato.optim.mxnet_files.trainer_states import TrainerStates
from ostinato.optim.rate_schedules import (
    CosineSchedule,
    FactorSchedule,
    MultiFactorSchedule,
    PolySchedule,
    RateSchedule,
    create_schedule,
)
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Nadam, Optimizer, Updater, create, registered_names
from ostinato.optim.rules.optimizer import MASTER, State
from ostinato.optim.rules.settings import keywords_of

MODULE_OF_1_9 = "mxnet.optimizer.optimizer"

# Where an attribute of MXNet's goes by another name than the keyword here.
_COMMON = {"lr": "learning_rate", "idx2name": "param_idx2name"}
_RENAMED_IN_1_9: Mapping[str, Mapping[str, str]] = {
    "rmsprop": {"gamma1": "rho", "gamma2": "momentum"},
    "adagrad": {"float_stable_eps": "epsilon"},
    "groupadagrad": {"float_stable_eps": "epsilon"},
}
_MASTER_LAST_IN_1_9 = frozenset({"sgd", "nag", "lars", "lbsgd"})
_ORDER_IN_1_9 = {("rmsprop", 3): ("var", "mean", "momentum")}
_SAME_AS = {"ccsgd": "sgd"}


def optimizer_from_states(contents: TrainerStates, source: str = "the file") -> Optimizer:
    """Make the optimizer that a file describes: settings, multipliers, schedule and counts.

    The rules are those of MXNet's master branch, whatever release wrote the file.

    :param source: what errors call the file.
    :raises BadInputError: the file has no optimizer, or one that is not known here.
    """
    described = contents.optimizer
    if described is None:
        raise BadInputError(
            f"{source} holds states without their optimizer.",
            advice="Make the optimizer yourself, and hand the contents to load_states.",
            path=source,
        )
    name = _name_of(described)
    if name not in registered_names():
        raise BadInputError(
            f"{source} was written by {described.class_name.path}, which is not known here.",
            advice=f"Known are: {', '.join(registered_names())}.",
            path=source,
            optimizer=described.class_name.path,
        )
    attributes = dict(described.attributes)
    renamed = {**_COMMON, **(_RENAMED_IN_1_9.get(name, {}) if _is_1_9(described) else {})}
    example = create(name)
    keywords = keywords_of(type(example)) - {"param_dict", "aggregate_num", "use_fused_step", "lr_scheduler"}
    arguments = {renamed.get(attribute, attribute): value for attribute, value in attributes.items()}
    arguments = {keyword: value for keyword, value in arguments.items() if keyword in keywords and value is not None}
    if arguments.get("multi_precision"):
        arguments.pop("lazy_update", None)  # which 1.9.1 left on, and did not heed
    scheduler = attributes.get("lr_scheduler")
    try:
        if not arguments.get("clip_gradient", 0) > 0:
            arguments.pop("clip_gradient", None)  # 0 and -1 said none
        if isinstance(scheduler, PlainObject):
            arguments.pop("learning_rate", None)
            arguments["lr_scheduler"] = _schedule(scheduler)
        made = create(name, **arguments)
        for table in ("lr_mult", "wd_mult"):
            setattr(made, table, {key: float(value) for key, value in (attributes.get(table) or {}).items()})
        made.num_update = int(attributes.get("num_update", 0))
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise BadInputError(
            f"The optimizer in {source} has settings that cannot be used: {error}",
            advice="Make the optimizer yourself, and hand the contents to load_states.",
            path=source,
        ) from error
    return made


def load_states(updater: Updater, contents: TrainerStates, source: str = "the file") -> None:
    """Give an updater the states and counts of a file.

    Weights are looked at when their state is first used; the updater refuses then what does not fit.

    :param updater: of the optimizer that the states are for.
    :param source: what errors call the file.
    :raises BadInputError: the states are of another optimizer, or do not have its form. Nothing is changed then.
    """
    optimizer = updater.optimizer
    described = contents.optimizer
    if described is not None and _name_of(described) != optimizer.name:
        raise BadInputError(
            f"{source} holds states of {described.class_name.path}, and this optimizer is {optimizer.name}.",
            advice=f"Use {_name_of(described)}.",
            path=source,
        )
    is_1_9 = described is None or _is_1_9(described)
    attributes = {} if described is None else described.attributes
    counts = _counts(attributes, source)
    states = {
        index: _named(state, optimizer, is_1_9, f"{source}, index {index!r}")
        for index, state in contents.states.items()
    }
    if isinstance(optimizer, Nadam):
        # The file's product is shared by all weights. The weight's own follows from its count.
        for index, state in states.items():
            state["product"] = Nadam.product_after(
                counts.get(index, optimizer.num_update),
                optimizer.begin_num_update,
                optimizer.beta1,
                optimizer.schedule_decay,
            )
    updater.load_state_dict({"format": 1, "optimizer": optimizer.name, "states": states, "counts": counts})


def states_of(updater: Updater) -> TrainerStates:
    """Give states and optimizer of an updater in MXNet's form, as its release 1.9.1 writes them.

    :raises ArgumentValueError: MXNet has no such optimizer, or no such schedule.
    """
    optimizer = updater.optimizer
    name = _CLASS_NAMES.get(optimizer.name)
    if name is None:
        raise ArgumentValueError(
            f"MXNet 1.9.1 has no optimizer like {optimizer.name}.",
            advice=f"It has: {', '.join(_CLASS_NAMES)}.",
            optimizer=optimizer.name,
        )
    states = {index: _in_order(state, optimizer) for index, state in updater.states.items()}
    back = {ours: theirs for theirs, ours in {**_COMMON, **_RENAMED_IN_1_9.get(optimizer.name, {})}.items()}
    left_out = {"aggregate_num", "use_fused_step", "update"}
    arguments = {back.get(key, key): value for key, value in optimizer.arguments().items() if key not in left_out}
    if optimizer.name == "sgd":
        arguments["lazy_update"] = getattr(optimizer, "lazy_update", False)
    counts = dict(updater.counts)
    attributes = {
        **arguments,
        "num_update": optimizer.num_update,
        "_index_update_count": counts,
        "_all_index_update_counts": {0: counts},
        "lr_mult": dict(optimizer.lr_mult),
        "wd_mult": dict(optimizer.wd_mult),
        "aggregate_num": 0,
        "sym_info": (),
        "allow_np_array": False,
        "lr_scheduler": _described(optimizer),
    }
    return TrainerStates(states, PlainObject(ClassName(MODULE_OF_1_9, name), (), attributes))


# --- states ----------------------------------------------------------------------------------------------------------


def _named(state: Any, optimizer: Optimizer, is_1_9: bool, where: str) -> State:
    """Give the parts of a state their names."""
    names = optimizer.state_names
    order = _ORDER_IN_1_9.get((optimizer.name, len(names)), names) if is_1_9 else names
    master = None
    if (
        optimizer.multi_precision
        and isinstance(state, tuple)
        and len(state) == 2
        and (len(names) != 2 or any(isinstance(part, tuple) for part in state))
    ):
        last = is_1_9 and optimizer.name in _MASTER_LAST_IN_1_9
        master, state = (state[1], state[0]) if last else (state[0], state[1])
    parts: tuple[Any, ...] = state if isinstance(state, tuple) else (() if state is None else (state,))
    # A rule without momentum keeps a place for it in some releases.
    parts = tuple(part for part in parts if part is not None)
    if len(parts) != len(order) or not all(isinstance(part, (Tensor, RowSparse)) for part in parts):
        raise BadInputError(
            f"{where}: {optimizer.name} with these settings keeps {len(order)} arrays"
            f"{' (' + ', '.join(order) + ')' if order else ''}, and the file has {len(parts)} parts.",
            advice="Make the optimizer with the settings that the file was written with.",
        )
    named: State = dict(zip(order, parts, strict=True))
    if master is not None:
        named[MASTER] = master
    return named


def _in_order(state: State, optimizer: Optimizer) -> Any:
    names = _ORDER_IN_1_9.get((optimizer.name, len(optimizer.state_names)), optimizer.state_names)
    parts = tuple(state[name].detach() for name in names)
    inner: Any = parts[0] if len(parts) == 1 else (parts or None)
    if MASTER not in state:
        return inner
    master = state[MASTER].detach()
    return (inner, master) if optimizer.name in _MASTER_LAST_IN_1_9 else (master, inner)


def _counts(attributes: Mapping[str, Any], source: str) -> dict[Any, int]:
    counts = attributes.get("_index_update_count") or {}
    if not isinstance(counts, dict) or not all(type(count) is int and 0 <= count < 2**31 for count in counts.values()):
        raise BadInputError(f"{source} does not say how many updates each parameter has seen.", path=source)
    return dict(counts)


# --- optimizer and schedule ------------------------------------------------------------------------------------------

_CLASS_NAMES = {
    "adadelta": "AdaDelta",
    "adagrad": "AdaGrad",
    "adam": "Adam",
    "adamax": "Adamax",
    "dcasgd": "DCASGD",
    "ftml": "FTML",
    "ftrl": "Ftrl",
    "lamb": "LAMB",
    "lars": "LARS",
    "nadam": "Nadam",
    "nag": "NAG",
    "rmsprop": "RMSProp",
    "sgd": "SGD",
    "sgld": "SGLD",
    "signum": "Signum",
    "test": "Test",
}
_SCHEDULES = {
    FactorSchedule: "FactorScheduler",
    MultiFactorSchedule: "MultiFactorScheduler",
    PolySchedule: "PolyScheduler",
    CosineSchedule: "CosineScheduler",
}


def _name_of(described: PlainObject) -> str:
    name = described.class_name.name.lower()
    return _SAME_AS.get(name, name)


def _is_1_9(described: PlainObject) -> bool:
    return described.class_name.module in (MODULE_OF_1_9, "mxnet.optimizer.contrib")


def _schedule(described: PlainObject) -> RateSchedule:
    """Make a schedule anew. MXNet's keep the reduced rate, from which the one they began with is found again."""
    name = described.class_name.name.lower().removesuffix("scheduler")
    values = described.attributes
    common = {key: values[key] for key in ("warmup_steps", "warmup_begin_lr", "warmup_mode") if key in values}
    rate = values["base_lr"]
    if name == "factor":
        reductions = values["count"] // values["step"]
        own = {key: values[key] for key in ("step", "factor", "stop_factor_lr")}
    elif name == "multifactor":
        reductions = values["cur_step_ind"]
        own = {key: values[key] for key in ("step", "factor")}
    else:
        reductions = 0
        rate = values["base_lr_orig"]
        own = {"max_update": values["max_update"], "final_lr": values["final_lr"]}
        if name == "poly":
            own["pwr"] = values["power"]
    if reductions and values["factor"]:
        began = rate / values["factor"] ** reductions
        # At the floor the way back is lost; the constructor's rate is the best that is known.
        rate = values["warmup_final_lr"] if rate <= values.get("stop_factor_lr", 0) else began
    return create_schedule(name, base_lr=rate, **own, **common)


def _described(optimizer: Optimizer) -> PlainObject | None:
    schedule = optimizer.lr_scheduler
    if schedule is None:
        return None
    name = _SCHEDULES.get(type(schedule))  # type: ignore[arg-type]
    if name is None or not isinstance(schedule, RateSchedule):
        raise ArgumentValueError(
            "MXNet has no rate schedule like this optimizer's.",
            advice="Use one of factor, multifactor, poly and cosine.",
        )
    values = schedule.arguments()
    values["warmup_final_lr"] = schedule.base_lr
    count = optimizer.num_update
    if isinstance(schedule, FactorSchedule):
        values["count"] = max(0, (count - 1) // schedule.step) * schedule.step
        values["base_lr"] = schedule(max(count, schedule.warmup_steps)) if values["count"] else schedule.base_lr
    elif isinstance(schedule, MultiFactorSchedule):
        values["cur_step_ind"] = sum(step < count for step in schedule.step)
        values["base_lr"] = schedule.base_lr * schedule.factor ** values["cur_step_ind"]
    else:
        values["base_lr_orig"] = schedule.base_lr
        values["max_steps"] = values["max_update"] - schedule.warmup_steps
        values["base_lr"] = schedule(count)
        if isinstance(schedule, PolySchedule):
            values["power"] = values.pop("pwr")
    return PlainObject(ClassName("mxnet.lr_scheduler", name), (), values)
