"""How long to train, when to evaluate and save: from the keys that text-to-speech recipes use."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.config import Conflict, Options, Place, Problem, option
from ostinato.config.givens import Given, Source
from ostinato.config.names import Names
from ostinato.config.text_file import read_text
from ostinato.config.values import ValueRefused, quote, to_value
from ostinato.config.yaml_file import read_yaml
from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.extensions.save import Snapshot
from ostinato.loop import Part, Trainer, adversarial_parts
from ostinato.loop.part import LossFunction
from ostinato.loop.protocols import ExtensionFunction

_PAIRS = (
    ("train_max_steps", "max_epoch", "how long to train"),
    ("eval_interval_steps", "eval_interval_epochs", "how often to evaluate"),
    ("save_interval_steps", "save_interval_epochs", "how often to save"),
)


class LoopOptions(Options):
    """The keys. Of each of the three pairs exactly one has a value."""

    train_max_steps: int | None = option(
        None, ge=1, group="length", help="Train for so many updates. Leave it out to count in passes with max_epoch."
    )
    max_epoch: int | None = option(
        None, ge=1, group="length", help="Train for so many passes. Leave it out to count in updates."
    )
    eval_interval_steps: int | None = option(
        None, ge=1, group="length", help="Evaluate after every so many updates. Leave it out to count in passes."
    )
    eval_interval_epochs: int | None = option(
        None, ge=1, group="length", help="Evaluate after every so many passes. Leave it out to count in updates."
    )
    save_interval_steps: int | None = option(
        None, ge=1, group="length", help="Save after every so many updates. Leave it out to count in passes."
    )
    save_interval_epochs: int | None = option(
        None, ge=1, group="length", help="Save after every so many passes. Leave it out to count in updates."
    )
    num_snapshots: int = option(
        5, ge=-1, group="length", help="Keep so many saved states, the newest ones; -1 keeps all."
    )
    seed: int | None = option(
        None, ge=0, le=2**32 - 1, group="length", help="Where random numbers start. Leave it out for others each time."
    )
    generator_first: bool = option(
        True, group="turns", help="Whether the generator learns before the discriminator on each batch."
    )
    generator_train_start_steps: int = option(
        0, ge=0, group="turns", help="Completed updates before the generator learns: 0 for the first update on."
    )
    discriminator_train_start_steps: int = option(
        0, ge=0, group="turns", help="Completed updates before the discriminator learns: 0 for the first update on."
    )

    def conflicts(self) -> list[Conflict]:
        """Pairs of which both or none are given, and a number of states that keeps nothing."""
        found = []
        for steps, epochs, what in _PAIRS:
            given = [name for name in (steps, epochs) if getattr(self, name) is not None]
            if len(given) != 1:
                how_many = "both are given" if given else "neither is given"
                found.append(Conflict((steps, epochs), f"{what}: {how_many}; give exactly one of {steps} and {epochs}"))
        if self.num_snapshots == 0:
            found.append(
                Conflict(("num_snapshots",), "num_snapshots = 0 would keep nothing; give 1 or more, or -1 for all")
            )
        return found


@dataclass(frozen=True)
class LoopPreset:
    """What a trainer is to do and when.

    ::

        preset = read_preset("conf/default.yaml")
        trainer = Trainer(updater, preset.stop, "exp/default")
        preset.extend(trainer, evaluator=StandardEvaluator(...), writer=TensorBoardWriter(...))
    """

    stop: tuple[int, str]
    """The end of the run, as a stop trigger: ``(350000, "iteration")`` or ``(1000, "epoch")``."""
    evaluation: tuple[int, str]
    """When to evaluate, as a trigger."""
    save: tuple[int, str]
    """When to save, as a trigger."""
    num_snapshots: int = 5
    """How many saved states are kept, the newest ones; -1: all."""
    seed: int | None = None
    """For :func:`~ostinato.loop.seed_random_state`, before models and loaders are made; ``None``: no seed."""
    generator_first: bool = True
    """Whether the generator's turn comes first."""
    generator_start: int = 0
    """Completed updates before the generator is trained: with 0 it is in the first one."""
    discriminator_start: int = 0
    """The same for the discriminator."""

    writer = (1, "iteration")
    """When to write numbers, as a trigger."""

    def extend(
        self,
        trainer: Trainer,
        *,
        evaluator: ExtensionFunction | None = None,
        writer: ExtensionFunction | None = None,
        snapshot: Mapping[str, Any] | None = None,
    ) -> None:
        """Register evaluator, writer and snapshot with their triggers.

        The evaluator runs on every rank; a writer only writes, and runs on rank 0.

        :param evaluator: such as a :class:`~ostinato.extensions.StandardEvaluator`.
        :param writer: such as a :class:`~ostinato.extensions.TensorBoardWriter`.
        :param snapshot: further settings of :class:`~ostinato.extensions.Snapshot`.
        """
        if evaluator is not None:
            trainer.extend(evaluator, trigger=self.evaluation)
        if writer is not None:
            trainer.extend(writer, trigger=self.writer, ranks=0)
        settings: dict[str, Any] = {"max_size": self.num_snapshots, "every": self.save, **(snapshot or {})}
        trainer.extend(Snapshot(**settings))

    def parts(self, generator_loss: LossFunction, discriminator_loss: LossFunction) -> list[Part]:
        """A generator and a discriminator in this order and from these updates on, for a ``PartsUpdater``."""
        return adversarial_parts(
            generator_loss,
            discriminator_loss,
            generator_first=self.generator_first,
            generator_start=self.generator_start,
            discriminator_start=self.discriminator_start,
        )


def read_preset(given: Mapping[str, Any] | str | os.PathLike[str], *, others: Collection[str] = ()) -> LoopPreset:
    """A preset from a mapping, or from a YAML file, with the keys of :class:`LoopOptions`.

    :param given: the mapping, or the path of the file.
    :param others: names of further keys, which belong to somebody else and are passed over.
    :raises ArgumentValueError: with every mistake: a key that is unknown or given twice, a value that is not allowed,
        both or none of a pair. Field ``problems`` is a list of ``Problem``.
    :raises ArgumentTypeError: when it is neither a mapping nor a path.
    :raises ConfigError: when the file cannot be read.
    """
    names = Names(LoopOptions)
    source, label = _source(given, names)
    problems = [problem for problem in source.problems if problem.path not in others]
    values: dict[str, Any] = {}
    for one in source.givens:
        try:
            values[one.path] = to_value(names.records[one.path], one.raw)
        except ValueRefused as refused:
            problems.append(Problem(one.where, f"{one.shown} = {quote(one.raw)} {refused}", one.path))
    options = LoopOptions(**values)
    refused_names = {problem.path for problem in problems}
    # A key whose value was refused is there all the same.
    problems += [
        Problem(Place(label), conflict.message, conflict.paths[0])
        for conflict in options.conflicts()
        if refused_names.isdisjoint(conflict.paths)
    ]
    if problems:
        raise _error(problems)
    return _preset(options)


def _source(given: Any, names: Names) -> tuple[Source, str]:
    if isinstance(given, Mapping):
        source = Source()
        where = Place("the preset")
        for name, raw in given.items():
            if name in names.records:
                source.givens.append(Given(name, raw, where, name))
            else:
                meant = names.suggest(str(name))
                source.problems.append(Problem(where, f"{quote(name)} is not a key{meant}", str(name)))
        return source, where.source
    if not isinstance(given, str | os.PathLike):
        raise ArgumentTypeError(
            f"A preset is read from a mapping or a file, not from {given!r}.",
            advice="Give the keys in a dictionary, or the path of a YAML file that holds them.",
            value=given,
        )
    path = Path(given)
    return read_yaml(read_text(path), str(path), names), str(path)


def _preset(options: LoopOptions) -> LoopPreset:
    stop, evaluation, save = (
        (getattr(options, steps), "iteration")
        if getattr(options, steps) is not None
        else (getattr(options, epochs), "epoch")
        for steps, epochs, _ in _PAIRS
    )
    return LoopPreset(
        stop,
        evaluation,
        save,
        options.num_snapshots,
        options.seed,
        options.generator_first,
        options.generator_train_start_steps,
        options.discriminator_train_start_steps,
    )


def _error(problems: list[Problem]) -> ArgumentValueError:
    if len(problems) == 1:
        return ArgumentValueError(f"{problems[0]}.", problems=problems)
    advice = "".join(f"  {problem}\n" for problem in problems) + "Correct them and start again."
    return ArgumentValueError(f"There are {len(problems)} mistakes in the preset:", advice=advice, problems=problems)
