from __future__ import annotations

import sys

import pytest

from ostinato.errors import MissingPackageError
from ostinato.extensions.optional_package import import_optional


def test_a_package_that_is_there_is_returned() -> None:
    assert import_optional("json.decoder", "The test").JSONDecoder


def test_one_that_is_missing_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    with pytest.raises(
        MissingPackageError, match=r"PlotReport needs the package matplotlib.*pip install matplotlib"
    ) as e:
        import_optional("matplotlib.figure", "PlotReport")
    assert isinstance(e.value, ImportError)
    assert e.value.fields == {"package": "matplotlib", "needed_for": "PlotReport"}


def test_a_package_that_lacks_something_itself_says_so(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import package_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="package_that_nobody_has") as error:
        import_optional("half_installed", "The test")
    assert not isinstance(error.value, MissingPackageError)
