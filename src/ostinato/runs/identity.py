"""What a run folder is: ``run.json``, written once, and rebuilt from the generations when it is damaged."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from ostinato.errors import RunError
from ostinato.runs.atomic import ChecksumMismatchError, Files, read_bounded

RUN_FILE = "run.json"
FORMAT = 1
_MAX_BYTES = 1024 * 1024


def now() -> str:
    """The time, ISO 8601, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class RunIdentity:
    """What never changes about a run.

    :param id: a random text; copies of a run share it.
    :param recipe: what is trained, ``swap/original`` for example; empty where nobody said.
    :param created: ISO 8601, UTC.
    """

    id: str
    recipe: str
    created: str

    @classmethod
    def new(cls, recipe: str) -> RunIdentity:
        """The identity of a run that starts now."""
        return cls(uuid.uuid4().hex, recipe, now())

    @classmethod
    def from_manifest(cls, run: Mapping[str, str]) -> RunIdentity:
        """As every generation records it."""
        return cls(run.get("id", ""), run.get("recipe", ""), run.get("created", ""))

    def to_dict(self) -> dict[str, str]:
        """For a manifest."""
        return {"id": self.id, "recipe": self.recipe, "created": self.created}

    def write(self, folder: Path, files: Files) -> None:
        """Write ``run.json``."""
        content = {"format": FORMAT, **self.to_dict()}
        files.replace(
            folder / RUN_FILE, json.dumps({**content, "sha256": _checksum(content)}, indent=2).encode() + b"\n"
        )


def _checksum(content: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_identity(folder: Path) -> RunIdentity:
    """What ``run.json`` says.

    :raises ChecksumMismatchError: missing or damaged.
    :raises RunError: it is of a newer format.
    """
    content = read_bounded(folder / RUN_FILE, _MAX_BYTES)
    if content and not content.strip(b"\0"):
        raise ChecksumMismatchError("holds only zero bytes")
    try:
        raw = json.loads(content.decode())
        stated = raw.pop("sha256")
        if stated != _checksum(raw):
            raise ChecksumMismatchError("was changed after it was written (checksum)")
        version = int(raw["format"])
        identity = RunIdentity(str(raw["id"]), str(raw["recipe"]), str(raw["created"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ChecksumMismatchError(f"cannot be read: {type(error).__name__}: {error}") from error
    if version > FORMAT:
        raise RunError(
            f"The run folder {folder} has format {version}; this program knows {FORMAT}.",
            advice="Update Ostinato to open it.",
            folder=folder,
        )
    return identity
