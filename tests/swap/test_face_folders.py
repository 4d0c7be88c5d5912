from __future__ import annotations

from pathlib import Path

import pytest

from ostinato.errors import FaceFolderError
from ostinato.faces.drawn import DEMO_IDENTITIES, write_drawn_folder
from ostinato.swap import face_folders
from ostinato.swap.face_folders import scan_folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("faces")
    write_drawn_folder(target, DEMO_IDENTITIES["a"], 26, size=32)
    return target


def test_a_look_that_takes_long_says_how_far_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    scan_folders({"a": folder}, skip_bad=False, tell=told.append)
    assert not any("looking at" in line for line in told)
    monkeypatch.setattr(face_folders, "_TELL_EVERY", 0.0)
    scan_folders({"a": folder}, skip_bad=False, tell=told.append)
    assert "looking at the faces of side a: 0 of 26" in told


def test_a_bad_file_stops_it_and_can_be_left_out_by_name(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "broken.png").write_bytes(b"no picture")
    with pytest.raises(FaceFolderError, match=r"broken.png: [\s\S]*use --skip-bad-faces"):
        scan_folders({"a": tmp_path}, skip_bad=False, tell=lambda line: None)
    told: list[str] = []
    scans = scan_folders({"a": tmp_path}, skip_bad=True, tell=told.append).scans
    assert len(scans["a"].files) == 26
    assert any("broken.png is left out: " in line for line in told)
