"""Putting a recognition training together: from what the user asks to a trainer that is ready to run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from ostinato.config import RecognitionOptions, option_records, render_yaml, to_record, value_at
from ostinato.data.file_names import shown_name
from ostinato.dist import Alone, Group, batch_size_for_devices
from ostinato.dist.devices import choose_device, computes_half_precision_fast
from ostinato.errors import BadInputError, ModelMismatchError
from ostinato.extensions import MetricsWriter, NanGuard, RankLog, TensorBoardWriter
from ostinato.extensions.save import Snapshot
from ostinato.loop import Trainer, seed_random_state
from ostinato.recognition.backbones import Backbone
from ostinato.recognition.building import (
    build_head,
    build_margin,
    build_network,
    build_updater,
    open_images,
    open_loader,
    place_network,
)
from ostinato.recognition.data import Source
from ostinato.recognition.data.opening import SYNTHETIC
from ostinato.recognition.identities import IdentityMemory, as_known, names_in_order, names_of, unpack_names
from ostinato.recognition.memory import memory_advice
from ostinato.recognition.partial_fc import PartialFC
from ostinato.recognition.rate_schedule import RateSchedule, schedule_from
from ostinato.recognition.request import USUAL_SAVE_INTERVAL, RecognitionRequest
from ostinato.recognition.run_options import Tell, asked_options, new_run_options, require_same_options, resumed_options
from ostinato.recognition.starting_weights import take_centres, take_weights
from ostinato.recognition.trained_run import RECIPE
from ostinato.recognition.updater import RecognitionUpdater
from ostinato.recognition.verification_due import VerificationDue
from ostinato.recognition.verification_extension import PairVerifier, find_pair_files
from ostinato.runs.content import LoadedGeneration
from ostinato.runs.ranked_store import RankedStore
from ostinato.runs.recipe_folder import RecipeFolder, refuse_other_content
from ostinato.runs.retention import RetentionPolicy
from ostinato.runs.sessions import next_number
from ostinato.runs.store import RunStore
from ostinato.runs.writer import SaveResult

BEST_NEEDS = 25
"""Updates that an average loss must cover before it can make a state the best one; fewer where saves are closer."""

_NAN_REMEDIES = (
    "A run continues exactly, so it will meet the same images in the same state: change something first. Halve "
    "optimizer.learning_rate, give the run a warm-up (optimizer.warmup_epochs), take model.mixed_precision bf16 or no, "
    "or a smaller margin. `ostinato runs restore` goes back to an older state."
)


class BuildNetwork(Protocol):
    """Makes the network that options describe, with its first weights, on the processor."""

    def __call__(self, options: RecognitionOptions) -> Backbone: ...


@dataclass
class RecognitionTraining:
    """A training that is ready to run; :attr:`trainer` takes further extensions until then."""

    backbone: Backbone
    head: PartialFC
    updater: RecognitionUpdater
    trainer: Trainer
    snapshot: Snapshot
    options: RecognitionOptions
    device: torch.device
    total: int
    """Updates of the whole run."""
    epoch_length: int
    """Images in a pass."""


@dataclass(frozen=True)
class _Prepared:
    """What can be made and checked before the run folder is touched."""

    options: RecognitionOptions
    backbone: Backbone
    source: Source
    names: tuple[str, ...] | None
    """The run's people by class number; None where the data has no names."""
    known: int
    """Classes that the run had; those of the data for a new run."""
    schedule: RateSchedule
    total: int
    pairs: Mapping[str, Path]


@contextlib.contextmanager
def open_training(
    request: RecognitionRequest,
    *,
    tell: Tell,
    group: Group | None = None,
    on_save: Callable[[SaveResult], None] | None = None,
    build: BuildNetwork | None = None,
) -> Generator[RecognitionTraining | None]:
    """Check everything that was asked for, and build the training in its run folder. A collective.

    Nothing is written before all checks that need no run folder have passed. The run folder stays locked inside the
    block.

    :param tell: given each sentence that the user should read; of several ranks, by rank 0 alone.
    :param group: the ranks, which all ask for the same; by default this process alone.
    :param on_save: called in the trainer's thread with the result of every save.
    :param build: makes another network than the options name.
    :returns: the training; None when the run has reached its length already.
    :raises OstinatoError: of the kind that fits what is wrong.
    """
    group = Alone() if group is None else group
    if group.rank != 0:
        tell = _silent
    build = build_network if build is None else build
    device = choose_device(request.device, group)
    read = asked_options(request, tell)
    run = RecipeFolder(request.run_folder, policy=RetentionPolicy(snapshots=request.max_snapshots), recipe=RECIPE)
    refuse_other_content(run)
    with contextlib.ExitStack() as stack:
        source = open_images(request, read.options, stack)
        prepared: _Prepared | None = None
        if group.broadcast(not run.names()):
            options = group.broadcast(new_run_options(read, tell, run.path))
            require_same_options(read.options.model_copy(update={"seed": options.seed}), group)
            prepared = _prepare(request, options, source, None, group, device, build, tell)
        store, loaded = _open_store(run, group, stack)
        number = next_number(loaded.sessions if loaded is not None else ())
        if loaded is not None:
            options = resumed_options(read, loaded, request, number, tell)
            require_same_options(options, group)
            prepared = _prepare(request, options, source, loaded, group, device, build, tell)
        elif prepared is None:  # somebody took away what was there a moment ago
            options = group.broadcast(new_run_options(read, tell, run.path))
            prepared = _prepare(request, options, source, None, group, device, build, tell)
        if loaded is not None and loaded.iteration >= prepared.total:
            tell(_finished(loaded.iteration, prepared.total))
            yield None
            return
        if loaded is None:
            tell(_new_run(request, prepared, group))
        elif request.load_weights is not None or request.load_centres:
            tell("--load-weights and --load-centres are for new runs and have no effect on this one.")
        training = _build(request, prepared, run, store, loaded, number, group, device, on_save, tell, stack)
        del loaded, prepared  # as large as the model, and not needed again once it is restored
        yield training


# --- checks ---------------------------------------------------------------------------------------------------------


def _prepare(
    request: RecognitionRequest,
    options: RecognitionOptions,
    source: Source,
    loaded: LoadedGeneration | None,
    group: Group,
    device: torch.device,
    build: BuildNetwork,
    tell: Tell,
) -> _Prepared:
    options = fit_batch(options, len(source), group.size, tell)
    source.bad.limit = options.data.max_bad_records  # a continued run has its own
    names, known, known_names = names_of(source), source.classes, None
    if loaded is not None:
        known, known_names = _identities_of(loaded)
        source = as_known(source, names, known, known_names)
        if source.classes > known:
            tell(
                f"the data has {source.classes - known:,} new people: {known:,} -> {source.classes:,} classes; those "
                "that were there keep what was learned about them"
            )
    if options.model.mixed_precision != "no" and not computes_half_precision_fast(device):
        tell(
            f"model.mixed_precision is {options.model.mixed_precision}, and this processor has no fast half precision: "
            "training will be many times slower than without it. Turn it off with --set model.mixed_precision=no."
        )
    schedule, total = schedule_from(options, len(source))
    pairs = _find_pairs(request, options, tell)
    with memory_advice(options, source.classes, group):
        backbone = build(options)
        if loaded is None and request.load_weights is not None:
            take_weights(backbone, request.load_weights, tell)
        place_network(backbone, options, group, device)
    people = names_in_order(names, known_names)
    return _Prepared(options, backbone, source, people, known, schedule, total, pairs)


def fit_batch(options: RecognitionOptions, images: int, ranks: int, tell: Tell) -> RecognitionOptions:
    """The options with the batch size that is really used, by loader, session and screen alike.

    One that is smaller than the number of ranks is raised to it; ranks that share a batch unevenly are told of.

    :param images: in the data.
    :raises BadInputError: ranks or data are too few or too many for it.
    """
    # A batch norm cannot find the spread of a single image; synchronised ones look at those of all ranks.
    if options.model.batch_norm != "synchronised" and options.batch_size < 2 * ranks:
        raise BadInputError(
            f"A batch of {options.batch_size:,} images (-b) is too small for {ranks:,} ranks: each needs 2 or more.",
            advice=f"Give a larger batch, such as -b {16 * ranks}, or train with fewer ranks.",
            batch_size=options.batch_size,
            ranks=ranks,
        )
    batch = batch_size_for_devices(options.batch_size, ranks)
    if batch.size > images:
        raise BadInputError(
            f"A batch has {batch.size:,} images (-b), and the data has {images:,}: some would be in it twice.",
            advice=f"Give a smaller batch, such as -b {max(2, images // 4)}.",
            batch_size=batch.size,
            images=images,
        )
    if batch.message:
        tell(batch.message)
    return options.model_copy(update={"batch_size": batch.size})


def _identities_of(loaded: LoadedGeneration) -> tuple[int, tuple[str, ...] | None]:
    """Classes of a saved run, and their names."""
    state: Any = loaded.state
    try:
        found: Mapping[str, Any] = state["trainer"]["extensions"][IdentityMemory.name]
        return int(found["classes"]), unpack_names(found["names"])
    except (KeyError, TypeError, ValueError) as error:
        recipe = loaded.manifest.run.get("recipe", "")
        raise ModelMismatchError(
            f"The state of iteration {loaded.iteration:,} was not saved by a recognition training.",
            advice="Give the run folder of a recognition training.",
            found=recipe,
            asked=RECIPE,
        ) from error


def _find_pairs(request: RecognitionRequest, options: RecognitionOptions, tell: Tell) -> dict[str, Path]:
    """The pairs to verify while training, by name; what the options name and is not there is told and passed over."""
    folder = None if request.data == SYNTHETIC else Path(request.data)
    targets = [*options.verification.targets, *(str(path) for path in request.pairs)]
    found, missing = find_pair_files(targets, folder)
    for target in missing:
        if Path(target) in request.pairs:
            raise BadInputError(
                f"--pairs: there is no {shown_name(target)}.",
                advice="Give a .bin file, a list that `ostinato recognition pairs` has made, or a folder of people.",
                path=target,
            )
        tell(f"verification.targets: there is no {shown_name(target)} beside the data; it is passed over")
    return found


# --- the run folder --------------------------------------------------------------------------------------------------


class _OpenedStore(RankedStore):
    """A store whose state was loaded before the trainer runs: the options, and with them the model, depend on it."""

    loaded: LoadedGeneration | None = None

    def open(self) -> None:
        """Nothing: it is open."""

    def load(self, which: int | str | Path | None = None) -> LoadedGeneration | None:
        """What was loaded; the first time, for it is as large as the state."""
        loaded, self.loaded = self.loaded, None
        return loaded


def _open_store(
    run: RecipeFolder, group: Group, stack: contextlib.ExitStack
) -> tuple[RunStore | RankedStore, LoadedGeneration | None]:
    if group.size == 1:
        run.open()
        stack.callback(run.close)
        loaded = run.load_newest()
        return RunStore(run, loaded), loaded
    store = _OpenedStore(run, group)
    RankedStore.open(store)
    stack.callback(store.close)
    store.loaded = RankedStore.load(store)
    return store, store.loaded


# --- building --------------------------------------------------------------------------------------------------------


def _build(
    request: RecognitionRequest,
    prepared: _Prepared,
    run: RecipeFolder,
    store: RunStore | RankedStore,
    loaded: LoadedGeneration | None,
    number: int,
    group: Group,
    device: torch.device,
    on_save: Callable[[SaveResult], None] | None,
    tell: Tell,
    stack: contextlib.ExitStack,
) -> RecognitionTraining:
    options, backbone, source = prepared.options, prepared.backbone, prepared.source
    assert options.seed is not None
    # Each rank draws other numbers (what dropout leaves out, say); a continued run restores them.
    seed_random_state((options.seed * 1_000_003 + group.rank) % 2**32)
    with memory_advice(options, source.classes, group):
        head = build_head(options, prepared.known, group, device)
    if loaded is None and request.load_centres:
        take_centres(head, request.load_centres, tell)
    loader = open_loader(source, options, group, stack)
    updater = build_updater(options, backbone, head, loader, prepared.schedule, classes=source.classes, group=group)
    if group.rank == 0:
        run.begin_session(
            start_iteration=loaded.iteration if loaded else 0,
            batch_size=options.batch_size * options.optimizer.accumulation,
            options={r.path: value_at(options, r.path) for r in option_records(options) if not r.fixed},
            config=to_record(options),
        )
        run.write_config(render_yaml(options))
    every = request.save_interval or max(1, min(USUAL_SAVE_INTERVAL, prepared.total // 10))
    save_every = (every, "iteration")
    snapshot = Snapshot(
        max_size=request.max_snapshots,
        every=save_every,
        snapshot_every=(request.snapshot_interval, "iteration") if request.snapshot_interval else None,
        monitor="loss",
        loss_definition=f"{build_margin(options)}, {source.classes} classes",
        minimum_iterations=min(BEST_NEEDS, every),
        store=store,
        on_result=on_save,
    )
    logs = run.path / "logs" / f"session_{number:04d}"
    trainer = Trainer(updater, (prepared.total, "iteration"), out=run.path, group=group)
    trainer.extend(RankLog(logs, logger="ostinato", console=False))
    trainer.extend(IdentityMemory(source.classes, prepared.names))
    trainer.extend(
        NanGuard(
            "loss",
            prefix="loss",
            check_trigger=(1 if device.type == "cpu" else 20, "iteration"),
            good_generation=lambda: f"{updater.describe_last()} {_good_generation(run, snapshot)}",
            remedies=_NAN_REMEDIES,
        )
    )
    trainer.extend(MetricsWriter(logs))
    if request.logs:
        trainer.extend(TensorBoardWriter(logs))
    if prepared.pairs:
        due = VerificationDue(options.verification.every, prepared.total)
        trainer.extend(PairVerifier(backbone, prepared.pairs), trigger=due)
    trainer.extend(snapshot)
    return RecognitionTraining(backbone, head, updater, trainer, snapshot, options, device, prepared.total, len(source))


def _silent(_: str) -> None:
    """Another rank says it."""


def _good_generation(run: RecipeFolder, snapshot: Snapshot) -> str:
    snapshot.settle()  # the newest one may be on its way to the disk
    regular = [name for name in run.names() if not name.error]
    if not regular:
        return "Nothing of this run has been saved yet; the same command starts it anew."
    return f"The newest good state is generation {regular[-1]}, and the same command goes on from it."


def _finished(iteration: int, total: int) -> str:
    if iteration == total:
        return f"The run is finished: it has its {iteration:,} updates. A larger -e or -i goes on with it."
    return f"The run has {iteration:,} updates already, more than the {total:,} asked for. A larger -e or -i goes on."


def _new_run(request: RecognitionRequest, prepared: _Prepared, group: Group) -> str:
    options, source = prepared.options, prepared.source
    ranks = "" if group.size == 1 else f", {group.size} ranks"
    images = options.batch_size * options.optimizer.accumulation
    return (
        f"new run {shown_name(request.run_folder)}: network {options.model.backbone}, {source.classes:,} people, "
        f"{len(source):,} images, {prepared.total:,} update{'' if prepared.total == 1 else 's'} of {images:,} images"
        f"{ranks}, seed {options.seed}"
    )
