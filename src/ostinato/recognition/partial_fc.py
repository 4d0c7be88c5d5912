"""The classifier whose classes are cut over the ranks, and of which each step touches only some."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ostinato.dist import Alone, Group
from ostinato.errors import ArgumentValueError, StateError
from ostinato.kvstore.collective_calls import Collectives, Timing
from ostinato.recognition.centre_rule import CentreOptimizer, CentreRule, CentreUpdate, MomentumForm
from ostinato.recognition.class_centres import ClassCentres
from ostinato.recognition.class_partition import class_range
from ostinato.recognition.growing import grown
from ostinato.recognition.head_state import load_state, state_of
from ostinato.recognition.label_check import agree_on_batch, problem_of
from ostinato.recognition.margin_softmax import Pass, Step, gather_rows, margin_softmax_loss
from ostinato.recognition.margins import Margin
from ostinato.recognition.negative_sampling import NegativeSampler, number_sampled, positions_of, positives_of


class PartialFC(nn.Module):
    """A margin softmax over any number of classes (An et al., "Partial FC: Training 10 Million Identities on a Single
    Machine", ICCV workshops 2021).

    Classes are cut over the ranks without padding. In a step take part all classes that have a sample in it and, on
    each rank, as many randomly chosen others as make up ``sampling_rate`` of the rank's classes; only they are read and
    updated. One step::

        loss = head(backbone(images), labels)
        loss.backward()
        # reduce and apply the backbone's gradients: they are summed over the ranks, not averaged
        head.step(learning_rate)

    The centres are no parameters: ``parameters()`` is empty, and no optimizer or data-parallel wrapper may see them.
    Every method marked as a collective has to be called on all ranks, in the same order; so has ``backward()``.

    :param classes: of the whole run.
    :param embedding_size: d.
    :param margin: see :mod:`~ostinato.recognition.margins`.
    :param sampling_rate: 0 (only the classes of the step's samples) to 1 (all classes).
    :param group: the ranks; by default this process alone.
    :param optimizer: of the centres: ``"sgd"`` or ``"adamw"``. AdamW counts the steps of each class for itself.
    :param update: what happens to classes that take no part: ``"frozen"`` or ``"dense_lazy"``; see
        :class:`~ostinato.recognition.centre_rule.CentreRule`, also for the following.
    :param momentum: of SGD.
    :param weight_decay: of the rows that take part (``"dense_lazy"``: of all).
    :param sub_centres: rows of each class, 1 to 255; the nearest counts. 3 is usual for noisy sets.
    :param seed: of the first centres and of the choice of classes.
    :param device: of the centres; labels are best left on the host, where the classes are chosen.
    :param dtype: of the centres and of all that is computed, float32 or float64; autocast changes nothing here.
    :param momentum_form: of SGD, ``"plain"`` or ``"rate_inside"``.
    :param betas: of AdamW.
    :param epsilon: of AdamW.
    :raises ArgumentValueError: a value is not allowed.
    """

    def __init__(
        self,
        classes: int,
        embedding_size: int,
        margin: Margin,
        *,
        sampling_rate: float = 1.0,
        group: Group | None = None,
        optimizer: CentreOptimizer = "sgd",
        update: CentreUpdate = "frozen",
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        sub_centres: int = 1,
        seed: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        momentum_form: MomentumForm = "plain",
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__()
        for name, value, most in (
            ("classes", classes, 2**40),
            ("embedding_size", embedding_size, 2**20),
            ("sub_centres", sub_centres, 255),
        ):
            if not isinstance(value, int) or not 1 <= value <= most:
                raise ArgumentValueError(
                    f"{name} is {value!r}.", advice=f"Give a whole number from 1 to {most}.", name=name, value=value
                )
        if dtype not in (torch.float32, torch.float64):
            raise ArgumentValueError(
                f"The centres' dtype is {str(dtype).removeprefix('torch.')}.",
                advice="Use float32; small updates are lost in 16 bits.",
                dtype=dtype,
            )
        number_sampled(sampling_rate, classes)
        self.margin = margin
        self.sampling_rate = sampling_rate
        self.group: Group = Alone() if group is None else group
        self.total_classes = classes
        self.seed = seed
        self.draws = 0
        """How often classes have been chosen for training."""
        self.steps = 0
        """How many updates there were."""
        rule = CentreRule(optimizer, update, momentum, weight_decay, momentum_form, betas, epsilon)
        first, last = class_range(classes, self.group.rank, self.group.size)
        self.centres = ClassCentres(
            first,
            last,
            embedding_size,
            rule,
            sub_centres=sub_centres,
            seed=seed,
            device=torch.device("cpu" if device is None else device),
            dtype=dtype,
        )
        self._sampler = NegativeSampler(last - first, seed, self.group.rank)
        self._passes: list[Pass] = []
        self._collectives: Collectives | None = None

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def classes(self) -> int:
        """Classes of the whole run."""
        return self.total_classes

    @property
    def embedding_size(self) -> int:
        """Numbers in an embedding."""
        return self.centres.embedding_size

    @property
    def sub_centres(self) -> int:
        """Rows of each class."""
        return self.centres.sub_centres

    @property
    def first_class(self) -> int:
        """The first class of this rank."""
        return self.centres.first_class

    @property
    def last_class(self) -> int:
        """One past the last class of this rank."""
        return self.centres.last_class

    @property
    def weight(self) -> Tensor:
        """This rank's centres, brought up to date: ((last_class - first_class) * sub_centres, d), row ``class *
        sub_centres + sub``. The table itself, not a copy."""
        self.bring_up_to_date()
        return self.centres.weight

    @property
    def handed_over(self) -> int:
        """Bytes that this rank has handed to tensor collectives so far; 0 for a rank alone."""
        alone = self._collectives is None or self.group.size == 1
        return 0 if alone else sum(self._collectives.handed_over.values())  # pyrefly: ignore

    def time_collectives(self, timing: Timing) -> None:
        """Enter a context around each collective of the head from now on, and around each wait for one."""
        if self.group.size > 1:
            self._opened().timing = timing

    def extra_repr(self) -> str:
        """See :class:`torch.nn.Module`."""
        rule = self.centres.rule
        return (
            f"classes={self.classes} (here {self.first_class} to {self.last_class}), "
            f"embedding_size={self.embedding_size}, sub_centres={self.sub_centres}, "
            f"sampling_rate={self.sampling_rate}, {rule.optimizer} {rule.update}, {self.margin}"
        )

    # --- one step -----------------------------------------------------------------------------------------------------

    def forward(self, embeddings: Tensor, labels: Tensor, *, sampling_rate: float | None = None) -> Tensor:
        """The mean loss of all ranks' samples, the same on every rank. A collective.

        The gradient of ``embeddings`` is that of this mean. The centres' gradients are collected by ``backward()``
        until :meth:`step` or :meth:`zero_grad`. Without gradients (``torch.no_grad``), classes are chosen as they will
        be for the next training step.

        :param embeddings: (B, d), floating, as the backbone gives them, on the device of the centres. B may be 0 and
            may differ between ranks and steps.
        :param labels: (B,), integers in 0..classes-1. On an accelerator, they make the host wait.
        :param sampling_rate: of this step, instead of that of the constructor.
        :return: (), of the centres' dtype; not finite where embeddings or centres are not. 0 if there are no samples.
        :raises ArgumentValueError: something is wrong with the arguments of a rank, which is named; on all ranks. On
            that rank it may be an ArgumentTypeError.
        """
        rate = self.sampling_rate if sampling_rate is None else sampling_rate
        centres = self.centres
        here = labels.detach().cpu() if isinstance(labels, Tensor) else labels
        problem = problem_of(embeddings, here, self.classes, self.embedding_size, centres.weight.device)
        try:
            count = number_sampled(rate, centres.classes)
        except ArgumentValueError as error:
            problem, count = error, 0
        collectives = self._opened()
        with collectives.timed():
            sizes = agree_on_batch(problem, 0 if problem is not None else len(here), self.group)
        # The host has the labels of all ranks before the device has done anything.
        where = self._label_device()
        everyone = gather_rows(here.long().to(where), sizes, collectives).cpu().numpy()

        chosen = None
        if count < centres.classes:
            positives = positives_of(everyone, self.first_class, self.last_class)
            chosen = self._sampler.sample(positives, count, self.draws)
        places = positions_of(everyone, self.first_class, chosen, centres.classes)
        (samples,) = (places >= 0).nonzero()
        device = centres.weight.device
        step = Step(
            sizes,
            None if chosen is None else torch.from_numpy(chosen).to(device),
            torch.from_numpy(samples).to(device),
            torch.from_numpy(places[samples]).to(device),
        )
        if torch.is_grad_enabled():
            self.draws += 1
        centres.bring_up_to_date(step.classes)
        return margin_softmax_loss(embeddings, centres, self.margin, step, collectives, self._collect)

    def _collect(self, made: Pass) -> None:
        if made not in self._passes:
            self._passes.append(made)

    def _opened(self) -> Collectives:
        if self._collectives is None:
            self._collectives = Collectives(dist.group.WORLD if self.group.size > 1 else None)
        return self._collectives

    def _label_device(self) -> torch.device:
        """Where labels travel: over the host, unless torch.distributed was set up for accelerators alone."""
        if self.group.size == 1 or "cpu:" in dist.get_backend_config(dist.group.WORLD):
            return torch.device("cpu")
        return self.centres.weight.device

    def gradients_are_finite(self) -> bool:
        """Whether the gradients that are collected on this rank are finite numbers. Waits for the device.

        No collective: the ranks differ, and have to agree before one of them skips a step.
        """
        checks = [made.is_finite & torch.isfinite(made.gradient.factor) for made in self._passes]
        return bool(torch.stack(checks).all()) if checks else True

    def step(self, learning_rate: float, scale: float = 1.0) -> None:
        """Update the classes that took part since the last step, and forget their gradients. No collective.

        :param learning_rate: at least 0.
        :param scale: divides the gradients: the loss scale, or the number of batches whose gradients were accumulated.
        """
        if not 0 <= learning_rate < math.inf or not 0 < scale < math.inf:
            raise ArgumentValueError(
                f"The learning rate is {learning_rate!r}, the scale {scale!r}.",
                advice="Give a finite rate of at least 0 and a finite scale above 0.",
                learning_rate=learning_rate,
                scale=scale,
            )
        with torch.no_grad():
            self.centres.step([made.gradient for made in self._passes], learning_rate, scale)
        self.steps += 1
        for made in self._passes:
            made.release()
        self._passes.clear()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients that were collected."""
        for made in self._passes:
            made.gradient.factor = torch.zeros_like(made.gradient.factor)
        self._passes.clear()

    # --- more classes, and state --------------------------------------------------------------------------------------

    def grow(self, classes: int) -> None:
        """Add classes behind the last one. A collective.

        What is known of the classes before stays the same to the bit, also where they move to another rank. A new class
        begins as it would have from the start. Needs memory for the old and the new tables at once.

        :param classes: of the whole run from now on, at least as many as before.
        :raises ArgumentValueError: fewer.
        :raises StateError: gradients are collected that no step has applied.
        """
        if classes < self.total_classes:
            raise ArgumentValueError(
                f"The head has {self.total_classes} classes and is to have {classes}.",
                advice="Classes can be added, not taken away.",
                classes=classes,
            )
        if self._passes:
            raise StateError(
                "The head is to get more classes between backward() and step().",
                advice="Call step() or zero_grad() first.",
            )
        self.bring_up_to_date()
        self.centres = grown(self.centres, self.total_classes, classes, self.group)
        self.total_classes = classes
        self._sampler = NegativeSampler(self.centres.classes, self.seed, self.group.rank)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """This rank's share of the state, to be saved with those of the other ranks. No collective.

        Rows are :class:`~ostinato.runs.row_cut.RowCut` leaves, numbered by class of the whole run, and are the tables
        themselves, not copies. Brings classes up to date, which changes no later result beyond rounding: steps that are
        made up for at once are rounded once. So runs that are to be equal to the bit ask after the same steps;
        :class:`~ostinato.extensions.save.Snapshot` does.

        :raises StateError: it was called for a module that holds the head as one of its own: nothing in a head belongs
            among a model's weights.
        """
        if args or kwargs:
            raise StateError(
                "A PartialFC is part of another module, whose state_dict() was called.",
                advice="Keep the head beside the backbone: its rows are saved apart, cut over the ranks.",
            )
        self.bring_up_to_date()
        return {**state_of(self.centres, self.total_classes), "draws": self.draws, "steps": self.steps}

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:  # pyrefly: ignore
        """Take over a state, whatever the number of ranks that saved it. No collective.

        :param state_dict: with the tables as :class:`~ostinato.runs.row_cut.RowCutTable`, as tensors of all rows, or as
            the ``RowCut`` that this rank gave. ``format``, ``classes``, ``embedding_size``, ``sub_centres`` and
            ``weight`` are enough; without ``tables``, momentum starts at zero.
        :raises ArgumentValueError: it is of another format, or of a head of another size; nothing has changed then.
        """
        load_state(self.centres, self.total_classes, state_dict)
        self.draws = int(state_dict.get("draws", 0))
        self.steps = int(state_dict.get("steps", 0))
        self._passes.clear()

    def bring_up_to_date(self) -> None:
        """Make up for the steps that classes have missed (``update="dense_lazy"``). No collective."""
        with torch.no_grad():
            self.centres.bring_up_to_date()
