"""Whether a folder may hold a run of a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from ostinato.errors import BadInputError, ModelMismatchError
from ostinato.runs.folder import RunFolder


@dataclass
class RecipeFolder(RunFolder):
    """The run folder of one recipe, whoever opens it: a store that ranks share, say.

    :param recipe: recorded when the run is new.
    """

    recipe: str = ""

    def open(self, *, recipe: str = "") -> RunFolder:
        """See :meth:`RunFolder.open`.

        :raises ModelMismatchError: another recipe has made the run.
        """
        super().open(recipe=recipe or self.recipe)
        found = self.identity.recipe
        if found.partition("/")[0] not in ("", self.recipe):
            self.close()
            raise ModelMismatchError(
                f"The run in {self.path} was made by the recipe {found}, not {self.recipe}.",
                advice="Give another folder with -m.",
                found=found,
                asked=self.recipe,
            )
        return self


def refuse_other_content(run: RunFolder, *, models: tuple[str, ...] = ()) -> None:
    """Refuse a folder that holds other things: it is no place for a run. Nothing is written.

    :param models: how the file names of other programs' models end; the user is told that it is one.
    :raises BadInputError: it is a file, or holds files and is no run folder.
    """
    path = run.path
    if path.exists() and not path.is_dir():
        raise BadInputError(
            f"{path} is a file, and a run lives in a folder.",
            advice="Give a new or an empty folder with -m.",
            folder=str(path),
        )
    if not path.is_dir() or (path / "run.json").exists() or run.generations_path.exists():
        return
    names = sorted(entry.name for entry in path.iterdir() if entry.name != "lock")
    model = next((name for name in names if name.endswith(models)), None)
    if model is not None:
        raise BadInputError(
            f"{path} holds a model of another program ({model!r}), which this version cannot continue.",
            advice="Give another folder with -m to start a new run.",
            folder=str(path),
        )
    if names:
        raise BadInputError(
            f"{path} is no run folder and holds other files ({names[0]!r}).",
            advice="Give a new or an empty folder with -m.",
            folder=str(path),
        )
