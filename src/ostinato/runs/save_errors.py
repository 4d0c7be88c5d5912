"""What goes wrong in a save, in words for people."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Generator
from pathlib import Path

from ostinato.errors import SaveError
from ostinato.runs.generation_files import DamagedGenerationError

_ADVICE = {
    errno.ENOSPC: "Free some space; the next save tries again.",
    errno.EDQUOT: "Your disk quota is used up: free some space; the next save tries again.",
    errno.EFBIG: "A file may not become so large here (file size limit or file system).",
    errno.EROFS: "The file system has become read-only; a failing disk may be the cause.",
}


@contextlib.contextmanager
def explained(folder: Path, iteration: int) -> Generator[None, None, None]:
    """Turn what a save raises inside the block into :class:`~ostinato.errors.SaveError`, with advice.

    :param folder: the run folder.
    :param iteration: of the state that is saved.
    """
    try:
        yield
    except DamagedGenerationError as error:
        raise _save_error(folder, iteration, str(error), "The generation before is untouched.") from error
    except OSError as error:
        what = error.strerror or str(error)
        if error.filename:
            what += f" ({Path(str(error.filename)).name})"
        advice = _ADVICE.get(error.errno or 0, "The next save tries again.")
        raise _save_error(folder, iteration, what, advice) from error
    except (MemoryError, RuntimeError) as error:
        # Torch tells "no memory" by a sentence in a RuntimeError.
        if isinstance(error, RuntimeError) and "memory" not in str(error).lower():
            raise
        what = "there is not enough memory"
        advice = "Training goes on. Close other programs, lower the batch size, or turn save_optimizer to 'exit'."
        raise _save_error(folder, iteration, what, advice) from error


def _save_error(folder: Path, iteration: int, what: str, advice: str) -> SaveError:
    return SaveError(
        f"The state at iteration {iteration:,} could not be saved in {folder}: {what}.",
        advice=f"{advice} The generations before are untouched.",
        folder=folder,
        iteration=iteration,
    )
