"""Measures while training how well faces of unseen people are told apart."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ostinato.dist import Alone, Group, RefusingGroup
from ostinato.errors import BadInputError, NonFiniteError
from ostinato.extensions.resting import buffers_of_rank_0, evaluation_mode, kept_random_state
from ostinato.extensions.saved_format import check_format
from ostinato.loop import PRIORITY_WRITER, Extension, TrainerView, report
from ostinato.loop.unwrapping import unwrapped
from ostinato.recognition.verification.embedding import BATCH_SIZE
from ostinato.recognition.verification.pair_embedding import PairShare
from ostinato.recognition.verification.pair_set import PairSet
from ostinato.recognition.verification.pair_sources import open_pairs
from ostinato.recognition.verification.result import VerificationResult

_log = logging.getLogger(__name__)

STATE_FORMAT = 1
FAR_TARGETS = (1e-3,)


class PairVerifier(Extension):
    """Verifies sets of pairs and reports what comes out, under the name of each set::

        verification/lfw/accuracy           a mean over the folds, 0 to 1
        verification/lfw/accuracy_std       their standard deviation
        verification/lfw/tar_at_far_0.001   true accepts, 0 to 1; only where the set can tell it
        verification/lfw/xnorm              mean length of the embeddings
        verification/lfw/highest_accuracy   the highest accuracy so far, which is saved with the run

    Pairs are cut over the ranks, and all of them report the same numbers; so nobody waits long for the others.
    Training does not notice: modules keep their modes, and random generators their states. With several ranks the
    running statistics of rank 0 are used, which are those that are saved.

    Embeddings that are not finite, and pictures that have become unreadable, end no training: there is a warning that
    names them, ``not_finite`` is reported in the first case, and no accuracy; the highest one stays.

    :param model: the backbone; wrappers of data-parallel training and compilation are taken off.
    :param pairs: by name, a path for :func:`~ostinato.recognition.verification.pair_sources.open_pairs`, or a set that
        is open already. Files are read when the training begins; each rank keeps the pictures of its own share.
    :param batch_size: pictures in a batch.
    :param far_targets: rates of false accepts to tell true accepts at.
    :param group: the ranks that verify together, where there is no trainer to ask.
    """

    trigger = (2000, "iteration")
    priority = PRIORITY_WRITER
    name = "verification"

    def __init__(
        self,
        model: nn.Module,
        pairs: Mapping[str, str | os.PathLike[str] | PairSet],
        *,
        batch_size: int = BATCH_SIZE,
        far_targets: Sequence[float] = FAR_TARGETS,
        group: Group | None = None,
    ) -> None:
        self.model = unwrapped(model)
        self.highest: dict[str, tuple[float, int]] = {}
        """By name the highest accuracy so far, and the iteration it was measured at."""
        self._pairs = dict(pairs)
        self._batch_size = batch_size
        self._far_targets = tuple(far_targets)
        self._group = group
        self._shares: dict[str, PairShare] | None = None

    def initialize(self, trainer: TrainerView | None = None) -> None:
        """Read the pairs.

        :raises BadInputError: a file cannot be used, or a fold of its pairs lacks same or different ones.
        """
        group = self._group or _group_of(trainer)
        self._shares = {
            name: PairShare.of(given if isinstance(given, PairSet) else open_pairs(given), group, self._batch_size)
            for name, given in self._pairs.items()
        }

    def __call__(self, trainer: TrainerView | None = None) -> dict[str, VerificationResult]:
        """Verify all sets and report. A collective where there are several ranks.

        :return: the results by name; without those that could not be had.
        """
        if self._shares is None:
            self.initialize(trainer)
        group = self._group or _group_of(trainer)
        iteration = 0 if trainer is None else trainer.updater.state.iteration
        results = {}
        with (
            kept_random_state(),
            evaluation_mode([self.model]),
            buffers_of_rank_0({"main": self.model}, group),
        ):
            for name, share in (self._shares or {}).items():
                result = self._verify(name, share)
                if result is not None:
                    results[name] = result
                    self._report(name, result, iteration)
        return results

    def _verify(self, name: str, share: PairShare) -> VerificationResult | None:
        device = next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))
        try:
            return share.verify(self.model, device=device, far_targets=self._far_targets).result
        except NonFiniteError as error:
            _log.warning("verification of %s: %s", name, error)
            report(f"verification/{name}/not_finite", float(len(error.fields["names"])))
        except BadInputError as error:
            _log.warning("verification of %s was left out this time: %s", name, error)
        return None

    def _report(self, name: str, result: VerificationResult, iteration: int) -> None:
        accuracy = result.accuracy.mean
        if name not in self.highest or accuracy > self.highest[name][0]:
            self.highest[name] = (accuracy, iteration)
        numbers = {
            "accuracy": accuracy,
            "accuracy_std": result.accuracy.std,
            **{
                f"tar_at_far_{found.target:g}": found.tar
                for found in result.acceptances
                if found.is_supported and found.holds
            },
            "xnorm": result.xnorm,
            "highest_accuracy": self.highest[name][0],
        }
        for key, value in numbers.items():
            report(f"verification/{name}/{key}", value)
        if result.zero_embeddings:
            _log.warning("verification of %s: %d embeddings are zero.", name, result.zero_embeddings)

    def state_dict(self) -> dict[str, Any]:
        """The highest accuracies so far."""
        highest = {name: {"accuracy": best, "iteration": when} for name, (best, when) in self.highest.items()}
        return {"format": STATE_FORMAT, "highest": highest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with them; those of sets that are no longer verified are kept, in case they come back.

        :raises ArgumentValueError: for a state of another format.
        """
        check_format(state, STATE_FORMAT, self.name or type(self).__name__)
        self.highest = {
            str(name): (float(entry["accuracy"]), int(entry["iteration"])) for name, entry in state["highest"].items()
        }


def find_pair_files(targets: Sequence[str], training_set: Path | None = None) -> tuple[dict[str, Path], list[str]]:
    """Find the pairs that a training is asked to verify.

    :param targets: a path of pairs of any kind, or a name such as ``lfw``, which stands for ``lfw.bin`` in the folder
        of the training set.
    :param training_set: a folder, or a file in it; None where there is none.
    :returns: by name the paths of those that are there, and the targets for which there is nothing.
    """
    found: dict[str, Path] = {}
    missing: list[str] = []
    folder = None if training_set is None else training_set if training_set.is_dir() else training_set.parent
    for target in targets:
        named = None if folder is None else folder / f"{target}.bin"
        path = named if named is not None and named.is_file() else Path(target)
        if path.exists():
            name = path.resolve().name if path.is_dir() else path.stem
            number = 2
            while name in found:  # two files of the same name in different folders
                name, number = f"{path.stem}_{number}", number + 1
            found[name] = path
        else:
            missing.append(target)
    return found, missing


def _group_of(trainer: Any) -> Group:
    group = getattr(trainer, "group", None)
    return Alone() if group is None or isinstance(group, RefusingGroup) else group
