"""With which options a recognition run goes on: those asked for, those stored, and what the two make together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ostinato.config import (
    ReadOptions,
    RecognitionOptions,
    check_together,
    read_options,
    resume,
    to_record,
    value_at,
)
from ostinato.config.recognition_presets import recognition_preset
from ostinato.config.run_seed import with_seed
from ostinato.data.file_names import shown_name
from ostinato.dist import Group
from ostinato.errors import ModelMismatchError, UsageError
from ostinato.recognition.request import RecognitionRequest
from ostinato.runs.content import LoadedGeneration
from ostinato.runs.folder import CONFIG_FILE

Tell = Callable[[str], None]


def asked_options(request: RecognitionRequest, tell: Tell) -> ReadOptions[RecognitionOptions]:
    """The options that the preset, the file over it, and the command line over both ask for.

    :raises ConfigError: with every mistake.
    :raises UsageError: there is no such preset.
    """
    read = read_options(RecognitionOptions, request.config, request.overrides)
    if request.preset is not None:
        named = read.explicitly_set
        preset = [t for t in recognition_preset(request.preset).overrides() if t.partition("=")[0] not in named]
        read = read_options(RecognitionOptions, request.config, [*preset, *request.overrides])
    read.tell_remarks(tell)
    return read


def new_run_options(
    read: ReadOptions[RecognitionOptions], tell: Tell, folder: Path | None = None
) -> RecognitionOptions:
    """The options of a new run; a seed is drawn where none was given.

    :param folder: where the run will live. A run that was cut off there before its first save keeps the seed it had
        drawn, so that it comes out the same.
    :raises ConfigError: options make no sense together.
    """
    check_together(read.options)
    read.tell_idle(read.options, tell)
    return with_seed(read.options, None if folder is None else folder / CONFIG_FILE)


def resumed_options(
    read: ReadOptions[RecognitionOptions],
    loaded: LoadedGeneration,
    request: RecognitionRequest,
    session: int,
    tell: Tell,
) -> RecognitionOptions:
    """The options a stored run goes on with; the differences are told.

    :raises ModelMismatchError: another network was asked for.
    :raises ConfigError: the effective options make no sense together.
    """
    result = resume(loaded.options, read.options, read.explicitly_set)
    path = "model.backbone"
    stored, asked = value_at(result.effective, path), value_at(read.options, path)
    if path in read.explicitly_set and asked != stored:
        raise ModelMismatchError(
            f"The run in {shown_name(request.run_folder)} trains the network {stored}, and {asked} was asked for.",
            advice=f"Continue it with {stored} (or without naming one), or give a new folder with -m to train {asked}.",
            found=stored,
            asked=asked,
        )
    tell(result.describe(shown_name(request.run_folder.name or request.run_folder), loaded.iteration, session))
    read.tell_idle(result.effective, tell)
    return result.effective


def require_same_options(options: RecognitionOptions, group: Group) -> None:
    """Refuse ranks that were started with different options. A collective.

    :raises UsageError: naming the first option that differs; on all ranks.
    """
    values = to_record(options)["values"]
    first, *others = group.gather(values)
    for rank, other in enumerate(others, start=1):
        path = next((path for path in first if first[path] != other.get(path)), None)
        if path is not None:
            raise UsageError(
                f"The ranks have different options: {path} is {first[path]} on rank 0, {other[path]} on rank {rank}.",
                advice="Start all ranks with the same command line and the same config file.",
                option=path,
                rank=rank,
            )
