"""What every optimizer is told: rate, decay, clipping, multipliers and schedule; also as data."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

from ostinato.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ContractError,
    DeprecatedArgumentError,
    UpdateRefusedError,
)
from ostinato.optim.argument_checks import require_finite, require_flag, require_mapping, require_number
from ostinato.optim.nearest_names import did_you_mean
from ostinato.optim.rate_schedules import RateSchedule, schedule_from_state

log = logging.getLogger(__name__)

FORMAT = 1

Index: TypeAlias = int | str
"""What a weight is known by: its position in the trainer, or a store's key."""

Schedule: TypeAlias = Callable[[int], float]


class OptimizerSettings:
    """The settings that all optimizers share, and how far updating has come.

    :param learning_rate: the rate. With a schedule it overwrites the schedule's base rate; without both, the class'
        own default holds. Not given together with a schedule, the schedule's base rate stays.
    :param wd: weight decay.
    :param rescale_grad: gradients are multiplied by this first; a trainer sets it at every step. Finite and not 0.
    :param clip_gradient: after rescaling, elements are cut to plus or minus this; None for no cut. Above 0.
    :param lr_scheduler: a function from the number of updates to the rate, see :mod:`ostinato.optim.rate_schedules`.
    :param begin_num_update: the count to start from; the first update of a weight counts this + 1.
    :param multi_precision: keep a float32 master copy of every float16 and bfloat16 weight.
    :param aggregate_num: how many weights at most an updater hands over in one call; ``math.inf`` for no limit. It
        changes speed, not results. None, the default, leaves it to the updater; :attr:`aggregate_num` then reads the
        number on which the trainer's choice of where to update rests.
    :param use_fused_step: False runs the equations tensor by tensor, as they are written. True, the default, gives the
        same results to rounding, faster.
    :param param_idx2name: names by index, for rules and multipliers that go by name.
    :param param_dict: parameters by index, held by reference: ``lr_mult`` and ``wd_mult`` attributes are read at every
        update.
    :raises ArgumentTypeError: a keyword is unknown, a value is no number, or the schedule cannot be called.
    :raises DeprecatedArgumentError: a keyword has another name today.
    :raises ArgumentValueError: a value is out of range.
    :raises ContractError: arguments exclude each other.
    """

    name: str = ""
    """The name by which :func:`~ostinato.optim.rules.registry.create` knows the class."""
    default_learning_rate: ClassVar[float] = 0.01
    default_aggregate_num: ClassVar[int] = 1
    max_aggregate_num: ClassVar[float] = math.inf
    settings: ClassVar[tuple[str, ...]] = ()
    """The class' own arguments, as far as they are attributes of the same names."""
    deprecated_keywords: ClassVar[Mapping[str, str]] = {}
    """Keywords of old releases, and what they are called today."""

    def __init__(
        self,
        *,
        learning_rate: float | None = None,
        wd: float = 0.0,
        rescale_grad: float = 1.0,
        clip_gradient: float | None = None,
        lr_scheduler: Schedule | None = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
        aggregate_num: float | None = None,
        use_fused_step: bool = True,
        param_idx2name: Mapping[Index, str] | None = None,
        param_dict: Mapping[Index, Any] | None = None,
        **unknown: Any,
    ) -> None:
        for keyword in unknown:
            raise _unknown_argument(type(self), keyword)
        if aggregate_num is not None and require_number("aggregate_num", aggregate_num) > self.max_aggregate_num:
            raise ContractError(
                f"{self.name} aggregates at most {self.max_aggregate_num:g} weights, and aggregate_num is "
                f"{aggregate_num:g}.",
                advice=f"Give at most {self.max_aggregate_num:g}, or leave it out.",
            )
        if lr_scheduler is not None and not callable(lr_scheduler):
            raise ArgumentTypeError(
                f"lr_scheduler is {lr_scheduler!r}, which cannot be called with the number of updates.",
                advice="Give a schedule of ostinato.optim.rate_schedules, or a function; a torch schedule acts on an "
                "optimizer of torch.",
            )
        if not isinstance(begin_num_update, int) or begin_num_update < 0:
            raise ArgumentValueError(
                f"begin_num_update is {begin_num_update!r}.", advice="Give a whole number of at least 0."
            )
        rate = None if learning_rate is None else require_finite("learning_rate", learning_rate)
        self.lr_scheduler = lr_scheduler
        if lr_scheduler is not None and rate is not None:
            _overwrite_base_rate(lr_scheduler, rate)
        self.lr = self.default_learning_rate if rate is None else rate
        self.wd = require_finite("wd", wd)
        self.rescale_grad = require_number("rescale_grad", rescale_grad)
        self.clip_gradient = clip_gradient
        self.begin_num_update = begin_num_update
        self.num_update = self.begin_num_update
        self.multi_precision = require_flag("multi_precision", multi_precision)
        self.explicit_aggregate_num = aggregate_num
        self.use_fused_step = require_flag("use_fused_step", use_fused_step)
        names = {} if param_idx2name is None else param_idx2name
        self.idx2name: dict[Index, str] = dict(require_mapping("param_idx2name", names, "Write {0: 'weight'}."))
        if param_dict is not None:
            require_mapping("param_dict", param_dict, "Give parameters by index.")
        self.param_dict: Mapping[Index, Any] = {} if param_dict is None else param_dict
        self.lr_mult: dict[Index, float] = {}
        self.wd_mult: dict[Index, float] = {}
        self._counts: dict[str, dict[Index, int]] = {}

    @property
    def clip_gradient(self) -> float | None:
        """Rescaled gradients are cut to plus or minus this; None for no cut."""
        return self._clip_gradient

    @clip_gradient.setter
    def clip_gradient(self, value: float | None) -> None:
        if value is not None and not require_number("clip_gradient", value) > 0:
            raise ArgumentValueError(
                f"clip_gradient is {value}, which would leave nothing of a gradient.",
                advice="Give a value above 0, or None for no cut.",
            )
        self._clip_gradient = None if value is None else float(value)

    @property
    def aggregate_num(self) -> float:
        """How many weights are updated in one call, as far as the place of the update depends on it."""
        return self.default_aggregate_num if self.explicit_aggregate_num is None else self.explicit_aggregate_num

    @property
    def learning_rate(self) -> float:
        """The rate of the last update, before multipliers: the schedule's at :attr:`num_update`, or the fixed one."""
        return self.lr if self.lr_scheduler is None else float(self.lr_scheduler(self.num_update))

    def set_learning_rate(self, rate: float) -> None:
        """Replace the fixed rate, from the next update on.

        :raises UpdateRefusedError: a schedule decides the rate. It is a UserWarning too.
        :raises ArgumentTypeError: the rate is no number.
        :raises ArgumentValueError: it is not finite.
        """
        if self.lr_scheduler is not None:
            raise UpdateRefusedError(
                f"The learning rate cannot be set to {rate}, because a schedule decides it.",
                advice="Assign the schedule's base_lr, or build the optimizer without lr_scheduler.",
            )
        self.lr = require_finite("learning_rate", rate)

    def set_lr_mult(self, multipliers: Mapping[Index, float]) -> None:
        """Multiply the rate of single weights, known by index or by name. Replaces what was set before.

        A multiplier of 0 freezes the weight: neither it nor its state changes. An ``lr_mult`` other than 1 on the
        parameter itself wins.

        :raises ArgumentValueError: no weight has this index or name.
        """
        self.lr_mult = self._known(multipliers)

    def set_wd_mult(self, multipliers: Mapping[Index, float]) -> None:
        """Multiply the decay of single weights; otherwise as :meth:`set_lr_mult`."""
        self.wd_mult = self._known(multipliers)

    def _known(self, multipliers: Mapping[Index, float]) -> dict[Index, float]:
        require_mapping("The multipliers", multipliers, "Write {'bias': 2.0}.")
        names = set(self.idx2name.values())
        indices = set(self.param_dict) | set(self.idx2name)
        for key in multipliers:
            if key in names or key in indices or (isinstance(key, int) and not indices):
                continue
            raise ArgumentValueError(
                f"No weight is called {key!r}.",
                advice=did_you_mean(str(key), [*names, *map(str, indices)])
                if names or indices
                else "Names come from param_idx2name, or from the trainer.",
                key=key,
            )
        return {key: require_finite(f"The multiplier of {key!r}", value) for key, value in multipliers.items()}

    def label(self, index: Index) -> str:
        """How a message calls a weight: by its name, where it is known."""
        is_index = isinstance(index, (int, str))  # whatever else is given as one is what the message is about
        return repr(self.idx2name.get(index, index) if is_index else index)

    def _multiplier(self, index: Index, attribute: str, table: Mapping[Index, float]) -> float:
        own = getattr(self.param_dict.get(index), attribute, 1.0)
        if own != 1.0:
            return float(own)
        if index in table:
            return table[index]
        return table.get(self.idx2name.get(index, ""), 1.0)

    # --- as data ------------------------------------------------------------------------------------------------

    def arguments(self) -> dict[str, Any]:
        """Give the constructor's arguments that make an equal optimizer, as plain values; a schedule is left out."""
        common = {
            "learning_rate": self.lr,
            "wd": self.wd,
            "rescale_grad": self.rescale_grad,
            "clip_gradient": self.clip_gradient,
            "begin_num_update": self.begin_num_update,
            "multi_precision": self.multi_precision,
            "aggregate_num": self.explicit_aggregate_num,
            "use_fused_step": self.use_fused_step,
            "param_idx2name": dict(self.idx2name),
        }
        return {**{name: getattr(self, name) for name in self.settings}, **common}

    def state_dict(self) -> dict[str, Any]:
        """Give everything but weights' states and the parameter table, as a plain tree.

        ``{"format": 1, "optimizer": name, "arguments": {…}, "schedule": tree or None, "num_update": n, "lr_mult":
        {…}, "wd_mult": {…}, "counts": {device: {index: n}}}``. Of a schedule that has no ``state_dict``, such as a
        plain function, nothing is kept.
        """
        schedule = self.lr_scheduler
        state_of = getattr(schedule, "state_dict", None)
        return {
            "format": FORMAT,
            "optimizer": self.name,
            "arguments": self.arguments(),
            "schedule": None if state_of is None else state_of(),
            "num_update": self.num_update,
            "lr_mult": dict(self.lr_mult),
            "wd_mult": dict(self.wd_mult),
            "counts": {device: dict(table) for device, table in self._counts.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the optimizer that was saved: settings, rate, schedule and counts. The parameter table stays.

        A saved schedule replaces this one's, except by a kind that keeps no state.

        :raises ArgumentValueError: the state is of another optimizer or of an unknown format. Nothing is changed then.
        """
        require_mapping("The state of an optimizer", state, "Give what its state_dict() gave.")
        if state.get("format") != FORMAT:
            raise ArgumentValueError(
                f"This optimizer state has format {state.get('format')!r}, and {FORMAT} is the one that is known.",
                advice="It may come from a newer version of Ostinato.",
            )
        if state["optimizer"] != self.name:
            raise ArgumentValueError(
                f"The state was saved by {state['optimizer']}, and this optimizer is {self.name}.",
                advice=f"Go on with {state['optimizer']}, or start {self.name} without loading.",
                saved=state["optimizer"],
                found=self.name,
            )
        arguments = {name: value for name, value in state["arguments"].items() if value is not None}
        schedule = self.lr_scheduler
        saved = state["schedule"]
        if saved is not None:
            if schedule is None or isinstance(schedule, RateSchedule):
                schedule = schedule_from_state(saved)
            else:
                schedule.load_state_dict(saved)  # type: ignore[attr-defined]
        elif isinstance(schedule, RateSchedule):
            schedule = None  # the run that was saved had a fixed rate
        made = self._made_of(arguments)
        kept = ("lr_scheduler", "param_dict", "idx2name", "num_update", "lr_mult", "wd_mult", "_counts")
        self.__dict__.update({name: value for name, value in vars(made).items() if name not in kept})
        self.lr_scheduler = schedule
        self.idx2name = {**state["arguments"].get("param_idx2name", {}), **self.idx2name}
        self.num_update = int(state["num_update"])
        self.lr_mult, self.wd_mult = dict(state["lr_mult"]), dict(state["wd_mult"])
        self._counts = {device: dict(table) for device, table in state["counts"].items()}

    def _made_of(self, arguments: Mapping[str, Any]) -> OptimizerSettings:
        return type(self)(**arguments)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.settings)
        return f"{type(self).__name__}(learning_rate={self.learning_rate}, wd={self.wd}{inside and ', '}{inside})"


def keywords_of(cls: type[OptimizerSettings]) -> set[str]:
    """The keywords that a class' constructor and its bases' take."""
    found: set[str] = set()
    for each in cls.__mro__:
        if "__init__" in vars(each) and issubclass(each, OptimizerSettings):
            found |= {
                name
                for name, parameter in inspect.signature(each.__init__).parameters.items()
                if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD) and name != "self"
            }
    return found


def _overwrite_base_rate(schedule: Schedule, rate: float) -> None:
    if not hasattr(schedule, "base_lr"):
        raise ContractError(
            f"learning_rate is {rate}, and the schedule has no base rate that it could replace.",
            advice="Leave learning_rate out, or use a schedule of ostinato.optim.rate_schedules.",
        )
    if getattr(schedule, "base_lr") != rate:  # noqa: B009
        log.info("The schedule starts from the learning rate %s, not from its own %s", rate, schedule.base_lr)
    setattr(schedule, "base_lr", rate)  # noqa: B010 - the type of a plain function has no attributes


def _unknown_argument(cls: type[OptimizerSettings], keyword: str) -> ArgumentTypeError:
    name = vars(cls).get("name") or cls.__name__.lower()
    if keyword in cls.deprecated_keywords:
        return DeprecatedArgumentError(
            f"{name} no longer has an argument {keyword!r}.",
            advice=f"It is called {cls.deprecated_keywords[keyword]} now.",
            argument=keyword,
            replacement=cls.deprecated_keywords[keyword],
        )
    known = keywords_of(cls)
    advice = did_you_mean(keyword, known)
    if keyword == "update":
        has = "has lazy_update=True for it" if "lazy_update" in known else "updates every row"
        advice = (
            f"What happens to rows without a gradient is chosen by update='dense', 'frozen' or 'dense_lazy' with sgd "
            f"alone; {name} {has}."
        )
    return ArgumentTypeError(f"{name} has no argument {keyword!r}.", advice=advice, argument=keyword)
