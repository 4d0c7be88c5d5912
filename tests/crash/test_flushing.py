"""What a power cut needs: everything is really flushed to the disk before the rename that makes it count."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import torch

from ostinato.runs import GenerationContent, RunFolder


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to name what is flushed")
def test_files_and_folders_are_flushed_before_and_after_the_rename_of_a_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        done.append((kind, Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def note_replace(source: Path, target: Path) -> None:
        done.append(("rename", Path(target).name))
        replace(source, target)

    with RunFolder(tmp_path / "run") as run:
        weight = torch.ones(3)
        content = GenerationContent(
            iteration=7, model={"weight": weight}, optimizer={"mean": weight}, state={"x": weight}
        )
        monkeypatch.setattr(os, "fsync", note_fsync)
        monkeypatch.setattr(os, "replace", note_replace)
        run.commit(run.pack(content))
        monkeypatch.undo()
        written = sorted(path.name for path in (run.generations_path / "00000007").iterdir())
    commit = done.index(("rename", "00000007"))
    before = done[:commit]
    assert sorted(name for kind, name in before if kind == "file") == written
    assert [name for kind, name in before if kind == "file"][-1] == "manifest.json"
    assert before[-1] == ("folder", ".tmp-00000007")
    assert done[commit + 1] == ("folder", "generations")
    assert ("file", "journal.jsonl") in done[commit:]
