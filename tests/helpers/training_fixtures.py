"""Fixtures for tests that train: drawn faces, and ways to run the command line with a tiny model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny_model
from command_client import CommandServer

from ostinato.faces.drawn import DrawnIdentity, write_drawn_folder

FACES = 30

QUICK = ("--set", "augmentation.preview_images=2")
"""Options that make a test quicker and change nothing that is trained."""


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the folders ``a``, ``b`` and ``c`` of drawn faces. Not to be changed."""
    root = tmp_path_factory.mktemp("people")
    for number, side in enumerate("abc"):
        write_drawn_folder(root / side, DrawnIdentity.from_seed(number), FACES, size=96)
    return root


@pytest.fixture(scope="session")
def face_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stands for the user's cache folder."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory, face_cache: Path) -> Iterator[CommandServer]:
    """Starts the command line as processes of their own, with the tiny model."""
    folder = tmp_path_factory.mktemp("output")
    with CommandServer(folder, {"XDG_CACHE_HOME": str(face_cache)}) as server:
        yield server


@pytest.fixture
def ostinato(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], face_cache: Path
) -> Callable[..., tuple[int, str]]:
    """Runs the command line in this process, with the tiny model: exit status, and all that was printed."""
    from ostinato.cli.main import run

    monkeypatch.setenv("XDG_CACHE_HOME", str(face_cache))
    for place in tiny_model.PLACES:
        monkeypatch.setattr(place, tiny_model.build_tiny_model)

    def call(*words: str | Path) -> tuple[int, str]:
        capfd.readouterr()
        status = run([str(word) for word in words])
        captured = capfd.readouterr()
        return status, captured.out + captured.err

    return call
