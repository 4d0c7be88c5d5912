"""With which options a swap run goes on: those asked for, those stored, and what the two make together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ostinato.config import (
    Change,
    ReadOptions,
    ResumeResult,
    SwapOptions,
    check_together,
    read_options,
    resume,
)
from ostinato.config.run_seed import with_seed
from ostinato.data.file_names import shown_name
from ostinato.errors import ModelMismatchError
from ostinato.runs.content import LoadedGeneration
from ostinato.runs.folder import CONFIG_FILE
from ostinato.swap.face_folders import Tell
from ostinato.swap.request import TrainingRequest


def asked_options(request: TrainingRequest, tell: Tell) -> ReadOptions[SwapOptions]:
    """The options that the file and the command line ask for.

    :raises ConfigError: with every mistake.
    """
    overrides = list(request.overrides)
    if request.model is not None:
        overrides.append(f"model.name={request.model.strip().lower().replace('-', '_')}")
    read = read_options(SwapOptions, request.config, overrides, request.overrides_of)
    read.tell_remarks(tell)
    return read


def new_run_options(read: ReadOptions[SwapOptions], tell: Tell, folder: Path | None = None) -> SwapOptions:
    """The options of a new run; a seed is drawn where none was given.

    :param folder: where the run will live. A run that was cut off there before its first save keeps the seed it had
        drawn, so that it comes out the same.
    :raises ConfigError: options make no sense together.
    """
    check_together(read.options)
    read.tell_idle(read.options, tell)
    return with_seed(read.options, None if folder is None else folder / CONFIG_FILE)


def resumed_options(
    read: ReadOptions[SwapOptions], loaded: LoadedGeneration, request: TrainingRequest, session: int, tell: Tell
) -> SwapOptions:
    """The options a stored run goes on with; the differences are told.

    :raises ModelMismatchError: another model was asked for by name.
    :raises ConfigError: the effective options make no sense together.
    """
    result = merged_options(read, loaded, request)
    tell(
        result.describe(
            shown_name(request.run_folder.name or request.run_folder),
            loaded.iteration,
            session,
            _other_changes(loaded, request),
        )
    )
    read.tell_idle(result.effective, tell)
    return result.effective


def merged_options(
    read: ReadOptions[SwapOptions], loaded: LoadedGeneration, request: TrainingRequest
) -> ResumeResult[SwapOptions]:
    """The options of a stored run and those asked for, put together.

    :raises ModelMismatchError: another model was asked for by name.
    :raises ConfigError: the effective options make no sense together.
    """
    result = resume(loaded.options, read.options, read.explicitly_set)
    stored, asked = result.effective.model.name, read.options.model.name
    if "model.name" in read.explicitly_set and asked != stored:
        raise ModelMismatchError(
            f"The run in {shown_name(request.run_folder)} is a model of the kind {stored}, and {asked} was asked for.",
            advice=(
                f"Continue it with -t {stored} (or without -t), or give a new folder with -m to start a model of "
                f"the kind {asked}."
            ),
            found=stored,
            asked=asked,
        )
    return result


def _other_changes(loaded: LoadedGeneration, request: TrainingRequest) -> Sequence[Change]:
    before = loaded.sessions[-1].batch_size if loaded.sessions else request.batch_size
    if before == request.batch_size:
        return ()
    return (Change("batch_size", "applied", before, request.batch_size, request.batch_size, "of this session"),)
