"""Of ranks that have the same to say, one is heard."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from ostinato.dist.placement import detect_placement
from ostinato.errors import BadInputError, OstinatoError, RankFailedError

_SECONDS_TO_BE_SAID = 10.0
_LOOK_EVERY = 0.05


class OneVoice:
    """Lets one of the ranks of a machine say what all of them have found, such as a folder that is not there.

    Ranks that one launcher has started meet at a file in the folder of temporary files, named after the launcher's
    process and the message: whoever makes it speaks. The others wait until that is done, so that a launcher that stops
    all ranks when the first one ends stops nobody in the middle of the word. A process alone always speaks.

    :param environ: the variables that say whether this is a rank; by default those of this process.
    :param folder: where the ranks meet; by default that of temporary files.
    :param patience: seconds after which a rank speaks itself, if nobody is heard.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
        patience: float = _SECONDS_TO_BE_SAID,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._folder = folder
        self._patience = patience
        self._taken: list[Path] = []

    def may_say(self, message: str, *, is_echo: bool = False) -> bool:
        """Whether this rank is to say it; if not, it has been said.

        :param message: what all would say, in the same words.
        :param is_echo: it is what another rank has found, which had better say it itself.
        """
        if not self._is_one_of_several():
            return True
        path = self._place_of(message)
        if is_echo and self._is_said(path):
            return False
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return not self._is_said(path)
        except OSError:
            return True
        self._taken.append(path)
        return True

    def done(self) -> None:
        """What this rank was to say has been said."""
        for path in self._taken:
            with contextlib.suppress(OSError):  # then the others speak, too
                path.write_text("said\n", encoding="ascii")
        self._taken.clear()

    def _is_one_of_several(self) -> bool:
        try:
            placement = detect_placement(self._environ)
        except BadInputError:
            return False
        return placement is not None and placement.size > 1

    def _place_of(self, message: str) -> Path:
        parent = os.getppid()
        life = self._environ.get("TORCHELASTIC_RESTART_COUNT", "")
        text = f"{parent} {_started(parent)} {life}\n{message}"
        digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:24]
        return (self._folder or Path(tempfile.gettempdir())) / f"ostinato-{os.getuid()}-said-{digest}"

    def _is_said(self, path: Path) -> bool:
        """Wait until it is said, for as long as the patience lasts."""
        end = time.monotonic() + self._patience
        while True:
            try:
                found = path.stat()
                if found.st_size and found.st_uid == os.getuid():
                    return True
            except OSError:  # not begun
                pass
            if time.monotonic() >= end:
                return False
            time.sleep(_LOOK_EVERY)


def said_by_all(error: OstinatoError) -> tuple[str, bool]:
    """What a rank that ends with this error has to say, as :meth:`OneVoice.may_say` takes it: the same words for the
    rank that has failed and for those that end because of it; and whether it is one of the latter."""
    said = error.fields.get("error")
    if isinstance(error, RankFailedError) and error.fields.get("rank") is not None and said:
        return str(said).partition(": ")[2], True
    return str(error), False


def _started(process: int) -> str:
    """When it was started: numbers of processes come again. Nothing where the system does not say."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        return fields.split()[19]
    except (OSError, IndexError):
        return ""
