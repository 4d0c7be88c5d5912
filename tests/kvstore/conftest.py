"""What the tests of this room share; their stand-ins are in ``tests/helpers/kvstore_stand_ins.py``."""

from __future__ import annotations

import pytest

from ostinato.kvstore import registry


@pytest.fixture
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plug-ins that a test registers are forgotten afterwards."""
    monkeypatch.setattr(registry, "_plug_ins", dict(registry._plug_ins))
