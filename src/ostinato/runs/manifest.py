"""The manifest of a generation: what belongs together, and proof that it is whole.

It is written last. It names every file with size and checksum, and itself carries a checksum over everything else it
says, so that a flipped bit in a number is found as surely as one in the weights.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ostinato.errors import RunError
from ostinato.runs.atomic import ChecksumMismatchError, FileRecord, read_bounded

MANIFEST_FILE = "manifest.json"
FORMAT = 1
"""The version of the format that this code writes; newer ones are refused with advice to update.

The checksum over the rest of the manifest is the same in all of them, so that a newer one is told from a damaged one.
"""

MAX_MANIFEST_BYTES = 16 * 1024 * 1024
MAX_FILES = 10_000
REASONS = ("latest", "snapshot", "best", "session_end", "signal", "error")
"""Why a generation was made, and with that why it is kept."""

_NAME = re.compile(r"(?P<iteration>\d{8,19})(?:-(?P<version>[1-9]\d{0,5}))?(?P<error>-error)?", re.ASCII)
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)


@dataclass(frozen=True, order=True)
class GenerationName:
    """The folder name of a generation, taken apart. Sorting is by age: older first.

    ``00001000`` is the state after 1,000 updates, ``00001000-2`` a second one after the same number (it takes the place
    of the first), ``00001000-error`` the state in which an error ended the run.
    """

    iteration: int
    version: int = 1
    error: bool = False

    def __str__(self) -> str:
        version = f"-{self.version}" if self.version > 1 else ""
        return f"{self.iteration:08d}{version}{'-error' if self.error else ''}"

    @classmethod
    def parse(cls, text: str) -> GenerationName | None:
        """The parts of a folder name, or None when it is not the name of a generation."""
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        name = cls(int(match["iteration"]), int(match["version"] or 1), match["error"] is not None)
        return name if str(name) == text else None


@dataclass(frozen=True)
class Manifest:
    """One generation, as its manifest describes it; also all that a retention policy sees.

    :param generation: name of the folder.
    :param iteration: number of completed updates of the weights inside.
    :param reasons: out of :data:`REASONS`.
    :param epoch: number of completed passes, where the recipe counts them.
    :param time: ISO 8601, UTC.
    :param run: identity of the run: ``id``, ``recipe``, ``created``.
    :param parent: the generation before it, if any.
    :param average_loss: mean of the watched loss since the save before; None when there was none or it was not finite.
    :param average_count: number of iterations in that mean.
    :param loss_definition: text that is equal exactly when losses may be compared.
    :param lowest_average: the lowest such mean so far, of this definition.
    :param optimizer_iteration: the iteration that the optimizer state belongs to; None when there is none.
    :param world_size: number of ranks that wrote it.
    :param versions: program versions by name.
    :param policy: the retention policy it was saved under, so that others can tell what will be kept.
    :param files: by plain file name.
    """

    generation: str
    iteration: int
    reasons: tuple[str, ...]
    epoch: int = 0
    time: str = ""
    run: Mapping[str, str] = field(default_factory=dict)
    parent: str | None = None
    average_loss: float | None = None
    average_count: int = 0
    loss_definition: str = ""
    lowest_average: float | None = None
    optimizer_iteration: int | None = None
    world_size: int = 1
    versions: Mapping[str, str] = field(default_factory=dict)
    policy: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, FileRecord] = field(default_factory=dict)

    @property
    def name(self) -> GenerationName:
        """The folder name, taken apart."""
        name = GenerationName.parse(self.generation)
        if name is None:
            raise ValueError(f"{self.generation!r} is not the name of a generation")
        return name

    @property
    def total_bytes(self) -> int:
        """Size of all its files, without the manifest."""
        return sum(record.bytes for record in self.files.values())

    def with_reasons(self, *reasons: str) -> Manifest:
        """The same with more reasons to keep it."""
        return replace(self, reasons=merge_reasons(self.reasons, reasons))

    def to_bytes(self) -> bytes:
        """The content of ``manifest.json``."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "generation": self.generation,
            "iteration": self.iteration,
            "epoch": self.epoch,
            "time": self.time,
            "reasons": list(self.reasons),
            "run": dict(self.run),
            "parent": self.parent,
            "average_loss": self.average_loss,
            "average_count": self.average_count,
            "loss_definition": self.loss_definition,
            "lowest_average": self.lowest_average,
            "optimizer_iteration": self.optimizer_iteration,
            "world_size": self.world_size,
            "versions": dict(self.versions),
            "policy": dict(self.policy),
            "files": {name: {"bytes": r.bytes, "sha256": r.sha256} for name, r in sorted(self.files.items())},
        }
        content["sha256"] = _own_checksum(content)
        return json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"


def merge_reasons(*groups: tuple[str, ...]) -> tuple[str, ...]:
    """All reasons once, in the order of :data:`REASONS`."""
    given = {reason for group in groups for reason in group}
    unknown = given - set(REASONS)
    if unknown:
        raise ValueError(f"unknown reason {sorted(unknown)[0]!r}; known are {', '.join(REASONS)}")
    return tuple(reason for reason in REASONS if reason in given)


def _own_checksum(content: Mapping[str, Any]) -> str:
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(plain.encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a generation's folder, checked against itself and against the folder's name.

    :raises ChecksumMismatchError: missing, unreadable, changed, or of another generation; the text continues
        "manifest.json ...".
    :raises RunError: a newer program has written it.
    """
    content = read_bounded(folder / MANIFEST_FILE, MAX_MANIFEST_BYTES)
    if content and not content.strip(b"\0"):
        raise ChecksumMismatchError("holds only zero bytes")
    try:
        manifest = parse_manifest(content)
    except ChecksumMismatchError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ChecksumMismatchError(f"cannot be read: {type(error).__name__}: {error}") from error
    if manifest.generation != folder.name:
        raise ChecksumMismatchError(f"is that of generation {manifest.generation}")
    return manifest


def parse_manifest(content: bytes) -> Manifest:
    """A manifest from the bytes of its file.

    :raises ChecksumMismatchError: its own checksum does not fit.
    :raises RunError: its format is newer than this program.
    :raises ValueError: it is no JSON, or a value is not what it must be. Also KeyError, TypeError.
    """
    raw = json.loads(content.decode(), parse_constant=_refuse_constant)
    if not isinstance(raw, dict):
        raise ValueError("it is no JSON object")
    stated = raw.pop("sha256", None)
    if stated != _own_checksum(raw):
        raise ChecksumMismatchError("was changed after it was written (checksum)")
    if _whole(raw["format"]) > FORMAT:
        raise RunError(
            f"The generation {raw.get('generation')} has format {raw['format']}; this program knows {FORMAT}.",
            advice="Update Ostinato to use this run. Nothing was changed.",
            format=raw["format"],
        )
    files = {}
    if len(raw["files"]) > MAX_FILES:
        raise ValueError(f"it lists more than {MAX_FILES:,} files")
    for name, entry in raw["files"].items():
        if not _FILE.fullmatch(name) or name == MANIFEST_FILE:
            raise ValueError(f"{name!r} is not a plain file name")
        files[name] = FileRecord(_whole(entry["bytes"]), str(entry["sha256"]))
    parent = raw["parent"]
    return Manifest(
        generation=str(raw["generation"]),
        iteration=_whole(raw["iteration"]),
        reasons=merge_reasons(tuple(raw["reasons"])),
        epoch=_whole(raw["epoch"]),
        time=str(raw["time"]),
        run={str(k): str(v) for k, v in raw["run"].items()},
        parent=None if parent is None else str(parent),
        average_loss=_number(raw["average_loss"]),
        average_count=_whole(raw["average_count"]),
        loss_definition=str(raw["loss_definition"]),
        lowest_average=_number(raw["lowest_average"]),
        optimizer_iteration=None if raw["optimizer_iteration"] is None else _whole(raw["optimizer_iteration"]),
        world_size=_whole(raw["world_size"]),
        versions={str(k): str(v) for k, v in raw["versions"].items()},
        policy={str(k): int(v) for k, v in raw["policy"].items()},
        files=files,
    )


def _refuse_constant(text: str) -> float:
    raise ValueError(f"it holds {text}, which is no JSON number")


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a whole number of at least 0")
    return value


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)
