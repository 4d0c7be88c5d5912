"""Putting a swap training together: from what the user asks to a trainer that is ready to run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ostinato.config import SwapOptions, loss_definition, option_records, render_yaml, to_record, value_at
from ostinato.data.count_of import count_of
from ostinato.data.file_names import shown_name
from ostinato.dist.devices import choose_device, computes_half_precision_fast
from ostinato.errors import BadInputError, ModelMismatchError, NonFiniteError
from ostinato.extensions import MetricsWriter, NanGuard, TensorBoardWriter
from ostinato.extensions.save import Snapshot
from ostinato.faces.loader import SwapLoader
from ostinato.faces.sample import CropSettings
from ostinato.loop import Trainer
from ostinato.optim import build_optimizer
from ostinato.runs.content import LoadedGeneration
from ostinato.runs.folder import RunFolder
from ostinato.runs.recipe_folder import RecipeFolder, refuse_other_content
from ostinato.runs.retention import RetentionPolicy
from ostinato.runs.sessions import Session, next_number
from ostinato.runs.store import RunStore
from ostinato.runs.verification import read_weights
from ostinato.runs.writer import SaveResult
from ostinato.swap.base_rate import BaseRate
from ostinato.swap.face_folders import (
    FaceFolders,
    FolderMemory,
    Tell,
    check_folders,
    compare_with_stored,
    crop_settings,
    scan_folders,
    scan_timelapse,
    with_centering,
)
from ostinato.swap.loss_names import explain_loss_names
from ostinato.swap.losses import SwapLoss, function_weights, read_lpips_weights
from ostinato.swap.memory import memory_advice
from ostinato.swap.models import SwapModel, build_model
from ostinato.swap.rate_finding import RateSearch
from ostinato.swap.recovery import (
    RecoveredRate,
    RecoveryPlan,
    carry_out,
    note_failure,
    pending_failure,
    plan_recovery,
    saved_rate,
    stored_rate,
)
from ostinato.swap.request import TrainingRequest
from ostinato.swap.run_options import asked_options, merged_options, new_run_options, resumed_options
from ostinato.swap.saved_start import SavedStart
from ostinato.swap.updater import GRADIENT_NORM, LOSS_SCALE, SwapUpdater
from ostinato.swap.watching import PREVIEW_FOLDER, Preview

RECIPE = "swap"

_NAN_REMEDIES = (
    "A run continues exactly, so it will meet the same faces in the same state: change something first. `--recover` "
    "with the same command goes back to the last good state and lowers the learning rate; --set "
    "recovery.nan_recovery=true does so whenever it happens. Or look at these files, limit the gradients with --set "
    "optimizer.gradient_clipping=norm, or leave network.mixed_precision off. `ostinato runs restore` goes back to an "
    "older state."
)

BEST_NEEDS = 25
"""Iterations that an average loss must cover before it can make a state the best one; fewer where saves are closer."""


@dataclass
class SwapTraining:
    """A training that is ready to run; :attr:`trainer` takes further extensions until then."""

    model: SwapModel
    updater: SwapUpdater
    trainer: Trainer
    snapshot: Snapshot
    preview: Preview
    device: torch.device
    recovers: bool
    """Whether the options say that a run whose numbers were not finite goes on by itself."""


@contextlib.contextmanager
def open_training(
    request: TrainingRequest, *, tell: Tell, on_save: Callable[[SaveResult], None] | None = None
) -> Generator[SwapTraining | None]:
    """Check everything that was asked for, and build the training in its run folder.

    Nothing is written before all checks that need no run folder have passed. The run folder stays locked inside the
    block.

    :param tell: given each sentence that the user should read.
    :param on_save: called in the trainer's thread with the result of every save.
    :returns: the training; None when the run has reached its iterations already.
    :raises OstinatoError: of the kind that fits what is wrong.
    """
    device = choose_device(request.device)
    read = asked_options(request, tell)
    run = RecipeFolder(request.run_folder, policy=RetentionPolicy(snapshots=request.max_snapshots), recipe=RECIPE)
    refuse_other_content(run, models=(".keras", ".h5"))
    folders = scan_folders(request.folders, skip_bad=request.skip_bad_faces, tell=tell)
    timelapse = scan_timelapse(request.timelapse, folders)
    prepared: _Prepared | None = None
    if not run.names():
        if request.iterations == 0:
            tell("-i 0 asks for no iterations, so nothing was trained and nothing was saved.")
            yield None
            return
        prepared = _prepare(request, new_run_options(read, tell, run.path), folders, device, tell, is_new=True)
    with run.open(), contextlib.ExitStack() as stack:
        loaded = run.load_newest()
        if loaded is not None and loaded.iteration >= request.iterations:
            tell(_finished(request, loaded.iteration))
            yield None
            return
        if loaded is not None:
            folders = FaceFolders({side: folders.scans[side] for side in _sides_of_run(loaded, request)})
            compare_with_stored(_stored_sketches(loaded), folders, tell)
            options = resumed_options(read, loaded, request, next_number(run.sessions), tell)
            prepared = _prepare(request, options, folders, device, tell, is_new=False)
        elif prepared is None:  # somebody took away what was there a moment ago
            prepared = _prepare(request, new_run_options(read, tell, run.path), folders, device, tell, is_new=True)
        if loaded is None:
            tell(
                f"new run {shown_name(request.run_folder)}: model {prepared.options.model.name}, sides "
                f"{', '.join(request.folders)}, seed {prepared.options.seed}"
            )
        elif request.load_weights is not None:
            tell("-l/--load-weights is for new runs and has no effect on this one.")
        rate = saved_rate(loaded, prepared.options.optimizer.learning_rate)
        recovered = _recover(request, prepared.options, run, loaded, tell)
        if recovered is not None:
            loaded, rate = recovered.loaded, recovered.rate
        else:
            _tell_rate(stored_rate(loaded), rate, tell, is_asked_for="optimizer.learning_rate" in read.explicitly_set)
        training = _build(request, prepared, folders, run, loaded, device, on_save, stack, rate)
        start = SavedStart(training.snapshot)
        training.trainer.extend(start)
        if recovered is not None:
            training.trainer.extend(RecoveredRate(training.updater, rate))
            start.is_wanted = True
        if _wants_search(request, rate, loaded, tell):
            training.trainer.extend(_rate_search(request, prepared.options, run, training.updater, start, tell))
        else:
            _tell_of_idle_search_options(prepared.options, loaded, rate, tell)
        # As large as the model and its optimizer, and not needed again once it is restored.
        del loaded, recovered, prepared
        if timelapse:
            output = request.timelapse_output or run.path / PREVIEW_FOLDER / "timelapse"
            training.trainer.extend(
                training.preview.timelapse(timelapse, output), trigger=(request.save_interval, "iteration")
            )
        try:
            yield training
        except NonFiniteError as error:
            note_failure(run, error)
            raise


def _recover(
    request: TrainingRequest, options: SwapOptions, run: RunFolder, loaded: LoadedGeneration | None, tell: Tell
) -> RecoveryPlan | None:
    """Go back where that is wanted and needed; None where it is not."""
    failure = pending_failure(run)
    if failure is None:
        if request.recover:
            tell(
                "--recover has nothing to do: since the newest save, no number of this run was not finite. Training "
                "goes on as it would without it."
            )
        return None
    if not request.recover and not options.recovery.nan_recovery:
        return None
    plan = plan_recovery(run, loaded, failure, options.recovery, options.optimizer.learning_rate)
    carry_out(run, plan, failure, options.recovery, tell)
    if plan.loaded is not None:
        run.take_over(plan.loaded)
    return plan


def _tell_rate(stored: BaseRate | None, rate: BaseRate, tell: Tell, *, is_asked_for: bool) -> None:
    """Say which rate is in force where the options do not say it all."""
    if rate.describe():
        # The same command has to go on with it, so it cannot mean that somebody wants the old rate back.
        again = (
            f"; optimizer.learning_rate={rate.configured:g} is what was asked for before, and changes nothing (another "
            "value does)"
            if is_asked_for
            else ""
        )
        tell(f"learning rate {rate.value:.3g}: {rate.describe()}{again}")
    elif stored is not None and stored.describe():
        tell(
            f"learning rate {rate.value:.3g}, as asked for now; before, this run had {stored.value:.3g}, "
            f"{stored.describe()}"
        )


def _wants_search(request: TrainingRequest, rate: BaseRate, loaded: LoadedGeneration | None, tell: Tell) -> bool:
    """Whether the learning rate is to be searched for; says why not where somebody might wonder."""
    if request.find_rate == "never":
        return False
    stored, iteration = stored_rate(loaded), 0 if loaded is None else loaded.iteration
    # Who has looked at the result of a search and asks for a rate of his own shall have it.
    was_found = rate.found is not None or (stored is not None and stored.found is not None)
    if request.find_rate == "again" or (iteration == 0 and not was_found):
        return True
    if not was_found:
        tell(
            f"-r/--use-lr-finder is for new runs, and this one has {iteration:,} iterations: it goes on with its own "
            "rate. --find-lr-again searches all the same."
        )
    return False


def _tell_of_idle_search_options(
    options: SwapOptions, loaded: LoadedGeneration | None, rate: BaseRate, tell: Tell
) -> None:
    """Say that changed options of the search change no rate that was found before."""
    if loaded is None or rate.found is None:
        return
    before = loaded.options.get("values", {})
    changed = [
        record.path
        for record in option_records(options)
        if record.section == "rate_finder" and before.get(record.path) != value_at(options, record.path)
    ]
    if changed:
        tell(
            f"{', '.join(changed)}: acts in the next search, and this run keeps the rate it has found. --find-lr-again "
            "searches anew."
        )


def _rate_search(
    request: TrainingRequest, options: SwapOptions, run: RunFolder, updater: SwapUpdater, start: SavedStart, tell: Tell
) -> RateSearch:
    def found() -> None:
        _begin_session(request, options, run, updater.state.iteration, updater.rate)
        start.is_wanted = True

    return RateSearch(updater, options.rate_finder, run.path, tell=tell, found=found)


def _begin_session(
    request: TrainingRequest, options: SwapOptions, run: RunFolder, iteration: int, rate: BaseRate
) -> Session:
    """Begin the session, or describe it anew: with the learning rate that is really used."""
    updatable = {r.path: value_at(options, r.path) for r in option_records(options) if not r.fixed}
    return run.begin_session(
        start_iteration=iteration,
        batch_size=request.batch_size,
        options={**updatable, "optimizer.learning_rate": rate.value},
        config=to_record(options),
    )


@dataclass(frozen=True)
class _Prepared:
    """What can be made and checked before the run folder is touched."""

    options: SwapOptions
    model: SwapModel
    crop: CropSettings


def _prepare(
    request: TrainingRequest,
    options: SwapOptions,
    folders: FaceFolders,
    device: torch.device,
    tell: Tell,
    *,
    is_new: bool,
) -> _Prepared:
    options = with_centering(folders, options, is_new=is_new, tell=tell)
    if options.network.mixed_precision and not computes_half_precision_fast(device):
        tell(
            "network.mixed_precision is on, and this processor has no fast half precision: training will be many times "
            "slower than without it. Turn it off with --set network.mixed_precision=false."
        )
    with memory_advice(options.model.name, request.batch_size, options.network.mixed_precision):
        model = build_swap_model(options, tuple(folders.scans))
        model.to(device)
    crop = crop_settings(options, max(model.input_size, *model.output_sizes))
    check_folders(
        folders,
        crop,
        batch_size=request.batch_size,
        warp_to_landmarks=request.warp and request.warp_to_landmarks,
        tell=tell,
    )
    if is_new and request.load_weights is not None:
        _take_encoder(model, request.load_weights, tell)
    return _Prepared(options, model, crop)


def build_swap_model(options: SwapOptions, sides: tuple[str, ...]) -> SwapModel:
    """The model that options describe, with its first weights."""
    assert options.seed is not None
    return build_model(
        options.model.name,
        sides=sides,
        model=options.model,
        initialization=options.initialization,
        network=options.network,
        learn_mask=options.mask.learn_mask,
        seed=options.seed,
    )


def _build(
    request: TrainingRequest,
    prepared: _Prepared,
    folders: FaceFolders,
    run: RunFolder,
    loaded: LoadedGeneration | None,
    device: torch.device,
    on_save: Callable[[SaveResult], None] | None,
    stack: contextlib.ExitStack,
    rate: BaseRate,
) -> SwapTraining:
    options, model, crop = prepared.options, prepared.model, prepared.crop
    assert options.seed is not None
    if request.freeze_encoder:
        model.encoder.requires_grad_(False)
    lpips_weights = read_lpips_weights(function_weights(options.loss), options.loss.lpips_files)
    loss = SwapLoss(options.loss, options.mask.learn_mask, model.output_sizes, lpips_weights).to(device)
    optimizer = build_optimizer(model.named_parameters(), options.optimizer)
    loader = SwapLoader(
        {side: scan.paths for side, scan in folders.scans.items()},
        crop=crop,
        input_size=model.input_size,
        output_sizes=model.output_sizes,
        batch_size=request.batch_size,
        seed=options.seed,
        augmentation=options.augmentation,
        loader=options.loader,
        flip=request.flip,
        color=request.augment_color,
        warp=request.warp,
        warp_to_landmarks=request.warp_to_landmarks,
        cache_dir=_cache_folder(request),
        cache_bytes=int(request.cache_gib * 2**30),
    )
    loader.open()
    stack.callback(loader.close)
    updater = SwapUpdater(
        model, loss, optimizer, loader, options=options.optimizer, network=options.network, warm_up=request.warm_up
    )
    session = _begin_session(request, options, run, loaded.iteration if loaded else 0, rate)
    run.write_config(render_yaml(options))
    save_every = (request.save_interval, "iteration")
    snapshot = Snapshot(
        max_size=request.max_snapshots,
        every=save_every,
        snapshot_every=(request.snapshot_interval, "iteration") if request.snapshot_interval else None,
        monitor="loss/total",
        save_optimizer=options.optimizer.save_optimizer,
        loss_definition=loss_definition(options),
        minimum_iterations=min(BEST_NEEDS, request.save_interval),
        store=RunStore(run, loaded),
        on_result=on_save,
    )
    preview = Preview(
        model,
        folders.scans,
        crop,
        options.augmentation,
        run.path / PREVIEW_FOLDER,
        every=save_every,
        seed=options.seed,
        keep=request.keep_previews,
        batch_size=request.batch_size,
    )
    logs = run.path / "logs" / f"session_{session.number:04d}"
    trainer = Trainer(updater, (request.iterations, "iteration"), out=run.path)
    trainer.extend(FolderMemory(folders))
    trainer.extend(
        NanGuard(
            check_trigger=(1 if device.type == "cpu" else 20, "iteration"),
            gradient=LOSS_SCALE if updater.has_loss_scaler else GRADIENT_NORM,
            protect=options.network.nan_protection,
            explain=lambda names: _explain(names, model.output_sizes),
            good_generation=lambda: _good_generation(run, snapshot),
            remedies=_NAN_REMEDIES,
            show_file=shown_name,
        )
    )
    trainer.extend(MetricsWriter(logs))
    if request.logs:
        trainer.extend(TensorBoardWriter(logs))
    trainer.extend(preview)
    trainer.extend(snapshot)
    return SwapTraining(model, updater, trainer, snapshot, preview, device, options.recovery.nan_recovery)


def _cache_folder(request: TrainingRequest) -> Path | None:
    if request.cache_gib == 0:
        return None
    return request.cache if request.cache is not None else default_cache_folder()


def default_cache_folder() -> Path:
    """Where prepared faces are kept unless the user says otherwise: ``$XDG_CACHE_HOME/ostinato/faces``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "ostinato" / "faces"


def _take_encoder(model: SwapModel, source: Path, tell: Tell) -> None:
    def read(folder: Path) -> LoadedGeneration:
        return read_weights(folder, lambda name: name.startswith("encoder."))

    loaded = RunFolder(source).load_newest(read) if source.is_dir() else None
    if loaded is None:
        raise BadInputError(
            f"-l/--load-weights: {shown_name(source)} holds no saved run.",
            advice="Give the run folder of a model of the same kind.",
            folder=str(source),
        )
    wanted = model.encoder.state_dict()
    found = {name: loaded.model[f"encoder.{name}"] for name in wanted if f"encoder.{name}" in loaded.model}
    wrong = [name for name, tensor in found.items() if tensor.shape != wanted[name].shape]
    if wrong or len(found) != len(wanted):
        raise ModelMismatchError(
            f"-l/--load-weights: the encoder in {shown_name(source)} is of another kind than that of {model.name}.",
            advice="Give a run of the same model with the same options, or start without -l.",
            found=str(source),
            asked=model.name,
        )
    model.encoder.load_state_dict(found)
    tell(f"the encoder starts with the weights of {shown_name(source)} at iteration {loaded.iteration:,}")


def _explain(names: Sequence[str], output_sizes: Sequence[int]) -> str:
    if LOSS_SCALE in names:
        return (
            "They do not fit into float16, however small the loss scaler makes them, so no step has been made of late. "
            "network.mixed_precision=false trains without float16."
        )
    return "" if GRADIENT_NORM in names else explain_loss_names(names, output_sizes)


def _good_generation(run: RunFolder, snapshot: Snapshot) -> str:
    snapshot.settle()  # the newest one may be on its way to the disk
    regular = [name for name in run.names() if not name.error]
    if not regular:
        return "Nothing of this run has been saved yet; the same command starts it anew."
    return f"The newest good state is generation {regular[-1]}, and the same command goes on from it."


def _finished(request: TrainingRequest, iteration: int) -> str:
    done = count_of(iteration, "iteration")
    if iteration == request.iterations:
        return f"The run is finished: it has its {done}. A larger -i goes on with it."
    return f"The run has {done} already, more than the {request.iterations:,} asked for. A larger -i goes on with it."


def summary_options(request: TrainingRequest, tell: Tell) -> tuple[SwapOptions, tuple[str, ...]]:
    """The options and sides of the model that a training as requested would have. Nothing is written.

    :raises ModelMismatchError: the run that is there has another model than the one asked for.
    """
    read = asked_options(request, tell)
    run = RunFolder(request.run_folder)
    loaded = run.load_newest() if run.names() else None
    if loaded is None:
        return new_run_options(read, tell), tuple(request.folders) or ("a", "b")
    return merged_options(read, loaded, request).effective, stored_sides(loaded)


def stored_sides(loaded: LoadedGeneration) -> tuple[str, ...]:
    """The sides a saved run was trained with, in the model's order."""
    return tuple(_stored_sketches(loaded))


def _stored_sketches(loaded: LoadedGeneration) -> Mapping[str, list[str]]:
    state: Mapping = loaded.state  # type: ignore[assignment]
    try:
        sketches = state["trainer"]["extensions"][FolderMemory.name]["sketches"]
        return {str(side): [str(name) for name in sketch] for side, sketch in sketches.items()}
    except (KeyError, TypeError, AttributeError) as error:
        recipe = loaded.manifest.run.get("recipe", "")
        raise ModelMismatchError(
            f"The state of iteration {loaded.iteration:,} was not saved by a swap training"
            + (f", but by {shown_name(recipe)}." if recipe not in ("", RECIPE) else "."),
            advice="Give the run folder of a swap training.",
            found=recipe,
            asked=RECIPE,
        ) from error


def _sides_of_run(loaded: LoadedGeneration, request: TrainingRequest) -> tuple[str, ...]:
    stored, given = stored_sides(loaded), tuple(request.folders)
    if set(stored) != set(given):
        raise BadInputError(
            f"The run has the sides {', '.join(stored)}, and folders were given for {', '.join(given)}.",
            advice="Give a folder for each side of the run, or start a new run with another -m.",
            stored=stored,
            given=given,
        )
    return stored
