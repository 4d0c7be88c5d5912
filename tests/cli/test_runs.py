from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ostinato.cli.main import run as command
from ostinato.runs import BestBar, GenerationContent, RetentionPolicy, RunFolder
from ostinato.runs.manifest import _own_checksum


def _make_run(path: Path, iterations: tuple[int, ...] = (10, 20, 30)) -> Path:
    with RunFolder(path, policy=RetentionPolicy(latest=-1)).open(recipe="swap/original") as run:
        for iteration in iterations:
            rate = 1e-4 if iteration < 30 else 5e-5
            run.begin_session(
                start_iteration=iteration - 10,
                batch_size=16,
                options={"optimizer.learning_rate": rate},
                config={"optimizer": {"learning_rate": rate}},
            )
            content = GenerationContent(
                iteration,
                {"layer.weight": torch.full((4,), float(iteration))},
                {"mean": torch.zeros(4)},
                {"position": iteration},
                average_loss=1 / iteration,
                average_count=10,
            )
            run.commit(run.pack(content))
            run._sessions = run.read(iteration).sessions
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return _make_run(tmp_path / "my_run")


def _lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [re.sub(r" +", " ", line).strip() for line in capsys.readouterr().out.splitlines()]


def test_list_finds_the_runs_below_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _make_run(folder.parent / "deep" / "er" / "other", (7,))
    assert command(["runs", "list", str(folder.parent)]) == 0
    lines = _lines(capsys)
    assert lines[0].startswith("run recipe iteration loss size last saved")
    assert lines[1].startswith("deep/er/other swap/original 7 0.14286 ")
    assert lines[2].startswith("my_run swap/original 30 0.03333 ")


def test_list_says_who_trains_and_what_is_damaged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunFolder(folder):
        command(["runs", "list", str(folder.parent)])
        assert _lines(capsys)[1].endswith("training")
    (folder / "generations" / "00000030" / "manifest.json").write_text("")
    command(["runs", "list", str(folder.parent)])
    assert _lines(capsys)[1].endswith("damaged")


def test_list_shows_the_others_beside_a_run_of_a_newer_program(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _make_run(folder.parent / "other", (7,))
    _rewrite(folder / "generations" / "00000030", "manifest.json", '"format": 1', '"format": 2')
    assert command(["runs", "list", str(folder.parent)]) == 0
    lines = _lines(capsys)
    assert lines[1].startswith("my_run")
    assert lines[1].endswith("made by a newer Ostinato")
    assert lines[2].startswith("other swap/original 7 ")
    assert command(["runs", "show", str(folder)]) == 3
    assert "has format 2; this program knows 1. Update Ostinato" in capsys.readouterr().err


def test_list_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["runs", "list", str(tmp_path)]) == 0
    assert "No runs" in capsys.readouterr().out
    assert command(["runs", "list", str(tmp_path / "absent")]) == 3


def _rewrite(generation: Path, name: str, old: str, new: str) -> None:
    """Change a file as somebody would who also puts the checksums right."""
    path = generation / name
    content = path.read_text().replace(old, new)
    path.write_text(content)
    manifest = json.loads((generation / "manifest.json").read_text())
    manifest.pop("sha256")
    if name == "manifest.json":
        manifest = json.loads(content)
        manifest.pop("sha256")
    else:
        data = content.encode()
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["sha256"] = _own_checksum(manifest)
    (generation / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("old", "new"),
    [('"sessions"', '"session"'), ('"iterations": 10', '"iterations": "x"'), ('"options": {', '"options": 5, "o": {')],
)
def test_show_calls_sessions_that_make_no_sense_damage(
    folder: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    generation = folder / "generations" / "00000030"
    text = (generation / "state.json").read_text()
    old, new = (old, new) if old in text else (old.replace(": ", ":"), new.replace(": ", ":"))
    assert old in text
    _rewrite(generation, "state.json", old, new)
    assert command(["runs", "show", str(folder)]) == 0
    lines = _lines(capsys)
    assert any(line.startswith("damaged: generations/00000030/state.json cannot be used") for line in lines)
    assert lines[-1].startswith("2 ")  # the sessions of the generation before


def test_nothing_that_a_terminal_obeys_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _rewrite(folder / "generations" / "00000030", "manifest.json", "swap/original", "\\u001b]0;x\\u0007")
    for arguments in (["list", str(folder.parent)], ["show", str(folder)]):
        assert command(["runs", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\\x1b]0;x\\x07" in shown


def test_show_tells_generations_reasons_and_sessions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["runs", "show", str(folder)]) == 0
    lines = _lines(capsys)
    assert any(re.match(r"00000030 .* 0\.03333 .* latest latest$", line) for line in lines)
    assert any(re.match(r"3 .* 20 10 16 optimizer\.learning_rate 0\.0001 -> 5e-05$", line) for line in lines)


def test_show_tells_no_default_of_a_newer_program_as_a_change(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A session of an older program says nothing of an option that came later."""
    generation = folder / "generations" / "00000030"
    state = json.loads((generation / "state.json").read_text())
    old = json.dumps(state)
    state["options"] = {"defaults": {"new.kept": 3, "new.changed": True}}
    state["sessions"][-1]["options"] |= {"new.kept": 3, "new.changed": False}
    (generation / "state.json").write_text(old)
    _rewrite(generation, "state.json", old, json.dumps(state))
    assert command(["runs", "show", str(folder)]) == 0
    assert _lines(capsys)[-1].endswith("optimizer.learning_rate 0.0001 -> 5e-05, new.changed True -> False")


def test_verify_names_what_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["runs", "verify", str(folder)]) == 0
    assert capsys.readouterr().out.count("whole") == 3
    path = folder / "generations" / "00000020" / "optimizer.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    assert command(["runs", "verify", str(folder)]) == 4
    captured = capsys.readouterr()
    assert "00000020  damaged" in captured.out
    assert "optimizer.safetensors holds only zero bytes" in captured.out
    assert "1 of 3" in captured.err
    assert command(["runs", "verify", str(folder), "30"]) == 0
    assert command(["runs", "verify", str(folder), "20"]) == 4
    assert command(["runs", "verify", str(folder), "25"]) == 3


def test_a_run_that_lost_its_generations_is_called_damaged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(folder / "generations")
    assert command(["runs", "list", str(folder.parent)]) == 0
    assert re.search(r"none left .* damaged$", _lines(capsys)[1])
    assert command(["runs", "show", str(folder)]) == 0
    assert "has been saved before, but no usable generation is left" in capsys.readouterr().out
    assert command(["runs", "verify", str(folder)]) == 4
    assert "has been saved before, but no usable generation is left" in capsys.readouterr().err


def test_show_of_a_run_without_a_whole_manifest_names_the_damage(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (folder / "generations").glob("*/manifest.json"):
        path.write_text("{}")
    assert command(["runs", "show", str(folder)]) == 0
    text = capsys.readouterr().out
    assert text.count("damaged: ") == 3
    assert "no generation" not in text


def test_a_run_that_was_never_saved_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunFolder(tmp_path / "new").open(recipe="swap").close()
    assert command(["runs", "list", str(tmp_path)]) == 0
    assert "not saved yet" in _lines(capsys)[1]
    for verb in ("show", "verify"):
        assert command(["runs", verb, str(tmp_path / "new")]) == 0
        assert "no generation yet" in capsys.readouterr().out


@pytest.mark.parametrize("file", ["run.json", "journal.jsonl"])
def test_verify_says_when_nothing_is_lost(folder: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / file
    path.write_bytes(bytes(path.stat().st_size))
    assert command(["runs", "verify", str(folder)]) == 0
    assert file in capsys.readouterr().out


def test_restore_and_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["runs", "restore", str(folder), "10"]) == 0
    out = capsys.readouterr().out
    assert "00000020, 00000030" in out
    assert "iteration 10" in out
    assert [n.iteration for n in RunFolder(folder).names()] == [10]
    assert command(["runs", "restore", str(folder), "10"]) == 0
    assert "nothing was changed" in capsys.readouterr().out
    assert command(["runs", "restore", str(folder), "--undo"]) == 0
    assert [n.iteration for n in RunFolder(folder).names()] == [10, 20, 30]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ([], 2, "which generation"),
        (["10", "--undo"], 2, "which generation"),
        (["25"], 3, "no generation 25"),
        (["--undo"], 1, "Nothing is set aside"),
    ],
)
def test_restore_refuses_and_says_why(
    folder: Path, arguments: list[str], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["runs", "restore", str(folder), *arguments]) == status
    assert says in capsys.readouterr().err
    assert [n.iteration for n in RunFolder(folder).names()] == [10, 20, 30]


def test_restore_refuses_what_is_damaged_and_what_is_trained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunFolder(folder):
        assert command(["runs", "restore", str(folder), "10"]) == 3
    assert "in use by process" in capsys.readouterr().err
    (folder / "generations" / "00000010" / "model.safetensors").unlink()
    assert command(["runs", "restore", str(folder), "10"]) == 4
    assert "model.safetensors is missing" in capsys.readouterr().err


def test_diff_compares_generations_and_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["runs", "diff", f"{folder}@20", str(folder)]) == 0
    lines = _lines(capsys)
    assert lines[:2] == [f"first {folder}@20, iteration 20", f"second {folder}, iteration 30"]
    assert "iteration 20 30" in lines
    assert "optimizer.learning_rate 0.0001 5e-05" in lines
    assert "layer.weight 40 60 50 %" in lines
    other = _make_run(folder.parent / "other")
    assert command(["runs", "diff", str(folder), str(other)]) == 0
    assert "0 differ, 1 are equal bit for bit" in capsys.readouterr().out
    assert command(["runs", "diff", str(folder), f"{other}@11"]) == 3


def test_diff_fits_into_80_columns_whatever_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states = []
    for number in (1, 2):
        run = RunFolder(tmp_path / f"a_run_with_a_rather_long_name_{number}").open(recipe="recognition")
        targets = [f"set_{number}_{index}" for index in range(20)]
        config = {"format": 1, "values": {"verification.targets": targets}, "defaults": {"seed": number}}
        run.begin_session(start_iteration=0, config=config)
        weight = torch.full((4,), number / 3)
        model = {"layers.0.blocks.11.attention.projection_of_queries.weight": weight, "bias": weight - 1 / 3}
        bar = BestBar(0.5, f"a definition of losses that is rather long, as those with margins are, {number} classes")
        run.commit(run.pack(GenerationContent(7, model, average_loss=1 / 3, average_count=5, bar=bar)))
        run.close()
        states.append(str(run.path))
    assert command(["runs", "diff", *states]) == 0
    text = capsys.readouterr().out
    assert "options: 1 difference\n" in text  # not what the defaults of the program were
    assert re.search(r"verification\.targets +\['set_1_0', .*\['set_2_0'", text, re.DOTALL)
    assert "values." not in text
    assert "losses are of different kinds and cannot be compared" in text
    assert re.search(r"^bias +0 +0\.6667 *$", text, re.MULTILINE)
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
    assert all(f"set_2_{index}'" in re.sub(r"\s+", " ", text) for index in range(20))


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("show", "verify"):
        assert command(["runs", verb, str(tmp_path)]) == 3
        assert "not a run folder" in capsys.readouterr().err
    assert command(["runs", "restore", str(tmp_path), "1"]) == 3
    assert list(tmp_path.iterdir()) == []


def test_looking_does_not_import_torch(folder: Path) -> None:
    program = (
        "import sys; from ostinato.cli.main import run; "
        "run(['runs', 'list', sys.argv[1]]); run(['runs', 'show', sys.argv[1]]); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "00000030" in done.stdout
