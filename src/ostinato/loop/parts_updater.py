"""The updater for several parts that train by turns: generators and discriminators, phases, warm-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.loop.losses import named_losses
from ostinato.loop.part import Clipper, Part
from ostinato.loop.reporter import report
from ostinato.loop.standard_updater import Schedule, StandardUpdater
from ostinato.loop.turn import SharedFunction, SharedOutputs, Turn

if TYPE_CHECKING:
    from torch.amp.grad_scaler import GradScaler
    from torch.optim import Optimizer

    from ostinato.loop.standard_updater import AnyOptimizer

STATE_FORMAT = 1


class PartsUpdater(StandardUpdater):
    """Trains several parts on each batch, one after another.

    ::

        def generator_loss(batch, turn):
            fake = turn["fake"]
            return {"adversarial": fool(discriminator(fake)), "mel": 45 * mel_distance(fake, batch["wave"])}

        def discriminator_loss(batch, turn):
            return tell_apart(discriminator(batch["wave"]), discriminator(turn.detached("fake")))

        PartsUpdater(
            {"generator": generator, "discriminator": discriminator},
            {"generator": torch.optim.Adam(...), "discriminator": torch.optim.Adam(...)},
            loader,
            [Part("generator", generator_loss), Part("discriminator", discriminator_loss, start=1000)],
            shared={"fake": lambda batch, turn: generator(batch["mel"])},
        )

    In an update the parts that are due take their turns in the order in which they are given. A turn clears the
    gradients of its optimizers, computes its loss, back-propagates into the parameters of these optimizers and no
    others, and steps them. Reported are ``<part>/loss``, what was back-propagated, and ``<part>/<name>`` for each entry
    of a loss function that returns several: its ``main`` is back-propagated, or the sum where it is missing.

    A part that has reached its ``stop`` is frozen: its parameters ask for no gradients, so that nothing is kept for
    them either, and their optimizer rests with all it has learned. Models are still in training mode; a frozen one
    whose dropout or running statistics must rest too is for the loss functions to switch.

    For a model that several processes train, wrap each one alone for data-parallel training, or all of them as one with
    ``find_unused_parameters=True``: the wrapper waits for the gradients of everything that it holds.

    :param models: modules by name, or one.
    :param optimizers: optimizers by name, or one; see :class:`~ostinato.loop.StandardUpdater`.
    :param loader: any iterable of batches that can be walked again and again.
    :param parts: what is trained, in this order.
    :param shared: outputs that turns share, by name, as functions of the batch and the turn. See
        :class:`~ostinato.loop.turn.Turn`.
    :param schedulers: learning-rate schedules by name with their unit: ``iteration``, ``epoch``, or ``part``: stepped
        after every update in which the optimizer that has the name of the schedule was stepped.
    :param scaler: scales losses for float16.
    :param device: where batches are moved to; by default they stay where the loader made them.
    :param allow_idle: accept updates in which no part is due. They consume a batch and train nothing, so they are
        refused unless they are wanted.
    :param count_tokens: see :class:`~ostinato.loop.StandardUpdater`; so is ``synchronize``.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: when a part names an optimizer that is not there, or two parts have one name.
    """

    schedule_units = ("iteration", "epoch", "part")

    def __init__(
        self,
        models: nn.Module | Mapping[str, nn.Module],
        optimizers: AnyOptimizer | Mapping[str, AnyOptimizer],
        loader: Any,
        parts: Sequence[Part],
        *,
        shared: Mapping[str, SharedFunction] | None = None,
        schedulers: Schedule | Mapping[str, Schedule] | None = None,
        scaler: GradScaler | None = None,
        device: torch.device | str | None = None,
        allow_idle: bool = False,
        count_tokens: Callable[[Any], int] | None = None,
        synchronize: bool = False,
    ) -> None:
        super().__init__(
            models,
            optimizers,
            loader,
            schedulers=schedulers,
            scaler=scaler,
            device=device,
            count_tokens=count_tokens,
            synchronize=synchronize,
        )
        self.parts = _checked_parts(parts)
        self.shared = _checked_shared(shared)
        self.turns: list[str] = []
        """The parts that took a turn in the last update, in order; with ``repeat`` one name several times."""
        self._allow_idle = allow_idle
        self._active_updates = {part.name: 0 for part in self.parts}  # completed ones between its start and its stop
        self._active: list[str] = []  # the parts for which the update under way is one of these
        self._finished: frozenset[str] = frozenset()  # parts whose parameters were frozen
        self._frozen: list[Parameter] = []
        self._wrappers = [
            module
            for model in self.models.values()
            for module in model.modules()
            if isinstance(module, nn.parallel.DistributedDataParallel)
        ]
        self._check_names()

    def due_parts(self) -> list[Part]:
        """The parts that the next update trains, in order."""
        return [
            part
            for part in self.parts
            if part.is_active(self.state) and self._active_updates[part.name] % part.every == 0
        ]

    def update(self) -> None:
        """One batch, one turn or several; the counters rise when all are done.

        :raises StateError: when no part is due and that is not allowed; no batch was read then.
        """
        if not self._allow_idle and not self.due_parts():
            raise StateError(
                f"Update {self.state.iteration + 1} would read a batch and train no part of it: "
                f"{'; '.join(_span(part) for part in self.parts) or 'there are no parts'}.",
                advice="Let the parts follow each other without a gap (stop=n and start=n do), let the run stop "
                "earlier, or pass allow_idle=True.",
                iteration=self.state.iteration,
            )
        super().update()

    def update_core(self, batch: Any) -> None:
        """The turns of all parts that are due."""
        self._freeze_what_is_finished()
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        self.turns = []
        self._active = [part.name for part in self.parts if part.is_active(self.state)]
        outputs = SharedOutputs(self.shared, batch)
        for part in self.due_parts():
            for number in range(part.repeat):
                self._take_turn(part, batch, Turn(part.name, number, self.state, outputs))
                self.turns.append(part.name)

    def _take_turn(self, part: Part, batch: Any, turn: Turn) -> None:
        optimizers = [self.optimizers[name] for name in part.optimizer_names]
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        losses = named_losses(
            part.loss(batch, turn),
            f"The loss function of the part {part.name!r}",
            advice="Return a tensor or a mapping of tensors.",
        )
        main = losses.pop("main")
        self._backward(main if self.scaler is None else self.scaler.scale(main), part)
        turn.outputs.end_turn()
        norm = self._clip(part, optimizers)
        for optimizer in optimizers:
            if self.scaler is None:
                optimizer.step()
            elif _has_gradients(optimizer):  # the scaler fails for one that this loss does not reach
                self.scaler.step(optimizer)
        if self.scaler is not None:
            self.scaler.update()
        for name, loss in losses.items():
            report(f"{part.name}/{name}", loss)
        report(f"{part.name}/loss", main)
        if norm is not None and part.report_norm:
            report(f"{part.name}/grad_norm", norm)

    def _backward(self, loss: Tensor, part: Part) -> None:
        mine = self._parameters(part)
        if not mine:
            raise StateError(
                f"The part {part.name!r} trains nothing: its optimizers hold no parameter that asks for a gradient.",
                advice="Set requires_grad for what it should train, or leave the part out.",
            )
        if not loss.requires_grad:
            raise self._reaches_nothing(part)
        others = self._wrapped_together_with(mine)
        before = [parameter.grad for parameter in others]
        for parameter in others:
            parameter.grad = None
        torch.autograd.backward(loss, inputs=[*mine, *others])
        for parameter, gradient in zip(others, before, strict=True):
            parameter.grad = gradient
        if all(parameter.grad is None for parameter in mine):
            raise self._reaches_nothing(part)

    @staticmethod
    def _reaches_nothing(part: Part) -> StateError:
        return StateError(
            f"The loss of the part {part.name!r} depends on no parameter of its optimizers "
            f"({', '.join(part.optimizer_names)}).",
            advice="Give the part the optimizers of what it should train, and use turn[...] where gradients have "
            "to pass, not turn.detached(...).",
        )

    def _parameters(self, part: Part) -> list[Parameter]:
        found = {
            id(parameter): parameter
            for name in part.optimizer_names
            for parameter in _parameters_of(self.optimizers[name])
            if parameter.requires_grad
        }
        return list(found.values())

    def _wrapped_together_with(self, parameters: list[Parameter]) -> list[Parameter]:
        """The parameters that others train and a data-parallel wrapper of these ones waits for nevertheless."""
        ids = {id(parameter) for parameter in parameters}
        found = {}
        for wrapper in self._wrappers:
            inside = {id(parameter): parameter for parameter in wrapper.parameters() if parameter.requires_grad}
            if not ids.isdisjoint(inside):
                found.update(inside)
        return [parameter for key, parameter in found.items() if key not in ids]

    def _clip(self, part: Part, optimizers: list[Optimizer]) -> Tensor | None:
        """Limit the gradients of a part; returns their norm before, if it is known or wanted."""
        if part.clip is None and not part.report_norm:
            return None
        if self.scaler is not None:
            for optimizer in filter(_has_gradients, optimizers):
                self.scaler.unscale_(optimizer)
        parameters = [parameter for parameter in self._parameters(part) if parameter.grad is not None]
        if isinstance(part.clip, int | float):
            return nn.utils.clip_grad_norm_(parameters, part.clip)
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]) if part.report_norm else None
        if part.clip is not None:
            part.clip.clip(parameters)
        return norm

    def _freeze_what_is_finished(self) -> None:
        finished = frozenset(part.name for part in self.parts if part.is_finished(self.state))
        if finished == self._finished:
            return
        self._finished = finished
        alive = {name for part in self.parts if part.name not in finished for name in part.optimizer_names}
        still_trained = {id(p) for name in alive for p in _parameters_of(self.optimizers[name])}
        for part in self.parts:
            if part.name in finished:
                resting = [p for p in self._parameters(part) if id(p) not in still_trained]
                for parameter in resting:
                    parameter.requires_grad_(False)
                    parameter.grad = None
                self._frozen += resting

    def _thaw(self) -> None:
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        self._frozen, self._finished = [], frozenset()

    def _finish_update(self, pass_complete: bool) -> None:
        super()._finish_update(pass_complete)
        for name in self._active:
            self._active_updates[name] += 1
        stepped = {name for part in self.parts if part.name in self.turns for name in part.optimizer_names}
        for name, (schedule, unit) in self.schedulers.items():
            if unit == "part" and name in stepped:
                schedule.step()

    def state_dict(self) -> dict[str, Any]:
        """What :class:`StandardUpdater` saves, and how far each part is."""
        return {
            **super().state_dict(),
            "parts": {
                "format": STATE_FORMAT,
                "active_updates": dict(self._active_updates),
                "clippers": {name: clipper.state_dict() for name, clipper in self._clippers().items()},
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state. Parts that it does not know start fresh.

        :raises StateError: when its models, optimizers or schedules have other names, or it has another format. Nothing
            is changed then.
        """
        saved = state.get("parts", {"format": STATE_FORMAT, "active_updates": {}, "clippers": {}})
        if saved.get("format") != STATE_FORMAT:
            raise StateError(
                f"The saved parts have format {saved.get('format')!r}; this version reads format {STATE_FORMAT}.",
                advice="Continue the run with the version of Ostinato that saved it, or a newer one.",
            )
        super().load_state_dict(state)
        self._thaw()
        for name in self._active_updates:
            self._active_updates[name] = int(saved["active_updates"].get(name, 0))
        for name, clipper in self._clippers().items():
            if name in saved["clippers"]:
                clipper.load_state_dict(saved["clippers"][name])

    def _clippers(self) -> dict[str, Clipper]:
        return {
            part.name: part.clip
            for part in self.parts
            if part.clip is not None and not isinstance(part.clip, int | float)
        }

    def _check_names(self) -> None:
        names = [part.name for part in self.parts]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ArgumentValueError(
                f"Several parts have the name {twice[0]!r}.", advice="Give each its own.", name=twice[0]
            )
        for part in self.parts:
            for name in part.optimizer_names:
                if name not in self.optimizers:
                    raise ArgumentValueError(
                        f"The part {part.name!r} steps the optimizer {name!r}, and there is none of that name.",
                        advice=f"There are: {', '.join(self.optimizers) or 'none'}.",
                        name=name,
                    )
        for name, (_, unit) in self.schedulers.items():
            if unit == "part" and name not in self.optimizers:
                raise ArgumentValueError(
                    f"The schedule {name!r} follows the steps of an optimizer, and there is none of that name.",
                    advice=f"Name it after one of: {', '.join(self.optimizers) or 'none'}.",
                    name=name,
                )


def _checked_parts(parts: Any) -> tuple[Part, ...]:
    listed = parts if isinstance(parts, Sequence) and not isinstance(parts, str | bytes) else [parts]
    for part in listed:
        if not isinstance(part, Part):
            raise ArgumentTypeError(
                f"The parts must be a list of Part, and {part!r} is none.",
                advice="Write [Part('generator', generator_loss), ...]; the name of a part stands in it.",
                value=part,
            )
    return tuple(listed)


def _checked_shared(shared: Any) -> dict[str, SharedFunction]:
    if shared is None:
        return {}
    if not isinstance(shared, Mapping) or not all(callable(function) for function in shared.values()):
        raise ArgumentTypeError(
            f"The shared outputs must be functions of the batch and the turn by name, not {shared!r}.",
            advice="Write shared={'fake': lambda batch, turn: generator(batch)}.",
            value=shared,
        )
    return dict(shared)


def _has_gradients(optimizer: Optimizer) -> bool:
    return any(parameter.grad is not None for parameter in _parameters_of(optimizer))


def _parameters_of(optimizer: Optimizer) -> Iterator[Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _span(part: Part) -> str:
    """When a part is trained, for a message."""
    words = [f"start={_show(part.start)}"]
    if part.stop is not None:
        words.append(f"stop={_show(part.stop)}")
    if part.every > 1:
        words.append(f"every={part.every}")
    return f"{part.name} has {', '.join(words)}"


def _show(threshold: Any) -> str:
    number, unit = threshold
    return str(number) if unit == "iteration" else f"'{number}ep'"
