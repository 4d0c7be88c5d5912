from __future__ import annotations

from pathlib import Path

import pytest

from ostinato.errors import BadInputError, ModelMismatchError
from ostinato.runs import RunFolder
from ostinato.runs.recipe_folder import RecipeFolder, refuse_other_content


def test_whoever_opens_it_the_recipe_is_recorded(tmp_path: Path) -> None:
    run = RecipeFolder(tmp_path / "run", recipe="recognition")
    run.open()
    run.close()
    with RunFolder(tmp_path / "run") as opened:
        assert opened.identity.recipe == "recognition"


def test_a_run_of_another_recipe_is_refused_and_not_kept_locked(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run").open(recipe="swap").close()
    run = RecipeFolder(tmp_path / "run", recipe="recognition")
    with pytest.raises(ModelMismatchError, match="made by the recipe swap, not recognition"):
        run.open()
    assert not run.is_open
    RunFolder(tmp_path / "run").open().close()


def test_a_folder_of_other_things_is_no_place_for_a_run(tmp_path: Path) -> None:
    refuse_other_content(RunFolder(tmp_path / "new"))
    refuse_other_content(RunFolder(tmp_path))  # empty
    (tmp_path / "lock").touch()
    refuse_other_content(RunFolder(tmp_path))
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadInputError, match=r"holds other files \('thesis.tex'\)"):
        refuse_other_content(RunFolder(tmp_path))
    (tmp_path / "original.keras").touch()
    with pytest.raises(BadInputError, match=r"holds a model of another program \('original.keras'\)"):
        refuse_other_content(RunFolder(tmp_path), models=(".keras", ".h5"))
    with pytest.raises(BadInputError, match="is a file"):
        refuse_other_content(RunFolder(tmp_path / "thesis.tex"))
    RunFolder(tmp_path / "run").open().close()
    refuse_other_content(RunFolder(tmp_path / "run"))
