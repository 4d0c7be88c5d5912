from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ostinato.errors import (
    ArgumentValueError,
    BadInputError,
    DamagedRunError,
    RunError,
    SaveError,
    StateError,
)
from ostinato.runs import KEEP_OPTIMIZER, GenerationContent, LoadedGeneration, RetentionPolicy, RunFolder
from ostinato.runs.atomic import ChecksumMismatchError, Files, set_hook
from ostinato.runs.view import RunView

MakeContent = Callable[..., GenerationContent]


def _save(run: RunFolder, content: GenerationContent) -> str:
    return run.commit(run.pack(content)).manifest.generation


def _assert_holds(loaded: LoadedGeneration | None, content: GenerationContent) -> None:
    assert loaded is not None
    assert loaded.iteration == content.iteration
    assert loaded.model.keys() == content.model.keys()
    assert all(torch.equal(loaded.model[name], tensor) for name, tensor in content.model.items())
    entry, stored = content.optimizer["state"]["encoder.weight"], loaded.optimizer["state"]["encoder.weight"]
    assert torch.equal(stored["mean"], entry["mean"])
    assert stored["step"] == entry["step"]
    assert loaded.state["position"] == content.state["position"]
    assert loaded.state["lists"] == content.state["lists"]


def _reopen(run: RunFolder) -> RunFolder:
    run.close()
    return RunFolder(run.path, files=run.files).open()


# --- the ordinary life -----------------------------------------------------------------------------------------------


def test_an_empty_folder_is_a_new_run(run: RunFolder) -> None:
    assert run.load_newest() is None
    assert run.notices == []


def test_the_folders_above_a_new_run_are_flushed(tmp_path: Path) -> None:
    flushed: list[Path] = []
    set_hook(lambda moment, done, path: flushed.append(path) if (moment, done) == ("after", "flush_folder") else None)
    with RunFolder(tmp_path / "runs" / "new"):
        assert {tmp_path, tmp_path / "runs", tmp_path / "runs" / "new"} <= set(flushed)


def test_constructing_and_looking_touch_no_disk(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "none")
    assert run.scan().manifests == ()
    assert run.verify() == {}
    assert not (tmp_path / "none").exists()


def test_what_was_saved_comes_back(run: RunFolder, make_content: MakeContent) -> None:
    content = make_content(10, epoch=3)
    _save(run, content)
    again = _reopen(run)
    loaded = again.load_newest()
    _assert_holds(loaded, content)
    assert loaded is not None
    assert loaded.manifest.epoch == 3
    assert loaded.options == {"optimizer": {"rate": 1e-4}}
    assert again.identity.recipe == "test"
    again.close()


def test_a_moved_run_is_the_same_run(run: RunFolder, make_content: MakeContent, tmp_path: Path) -> None:
    _save(run, make_content(10))
    run.close()
    shutil.move(run.path, tmp_path / "elsewhere")
    _assert_holds(RunFolder(tmp_path / "elsewhere").load_newest(), make_content(10))


def test_old_generations_go_and_the_journal_tells(run: RunFolder, make_content: MakeContent) -> None:
    for iteration in (10, 20, 30):
        _save(run, make_content(iteration))
    assert [str(name) for name in run.names()] == ["00000020", "00000030"]
    entries, broken = run.journal.read()
    assert broken == 0
    assert [e["event"] for e in entries] == ["begin", "commit", "commit", "commit", "evict"]
    assert {"time", "path", "iteration", "epoch", "kind", "bytes"} <= entries[1].keys()
    assert not Path(entries[1]["path"]).is_absolute()


def test_parents_form_a_chain(run: RunFolder, make_content: MakeContent) -> None:
    for iteration in (10, 20):
        _save(run, make_content(iteration))
    assert [m.parent for m in run.scan().manifests] == [None, "00000010"]


def test_a_second_state_of_one_iteration_takes_its_place_and_its_reasons(
    run: RunFolder, make_content: MakeContent
) -> None:
    _save(run, make_content(10, optimizer=None, reasons=("latest", "snapshot")))
    name = _save(run, make_content(10, reasons=("session_end",), average_loss=None))
    assert name == "00000010-2"
    (manifest,) = run.scan().manifests
    assert manifest.reasons == ("latest", "snapshot", "session_end")
    assert manifest.average_loss == pytest.approx(1 / 11)


def test_a_third_state_of_one_iteration_takes_the_place_of_the_second(
    run: RunFolder, make_content: MakeContent
) -> None:
    names = [_save(run, make_content(10, average_loss=float(number))) for number in range(3)]
    assert names == ["00000010", "00000010-2", "00000010-3"]
    assert [str(name) for name in run.names()] == names[-1:]
    assert run.scan().manifests[0].average_loss == 2


def test_an_error_state_is_kept_apart_and_never_chosen(run: RunFolder, make_content: MakeContent) -> None:
    _save(run, make_content(10))
    assert _save(run, make_content(12, reasons=("error",))) == "00000012-error"
    _assert_holds(run.load_newest(), make_content(10))
    _assert_holds(run.read("00000012-error"), make_content(12))


def test_an_unchanged_optimizer_is_carried_on(run: RunFolder, make_content: MakeContent) -> None:
    _save(run, make_content(10))
    _save(run, make_content(20, optimizer=KEEP_OPTIMIZER))
    _save(run, make_content(30, optimizer=KEEP_OPTIMIZER))
    loaded = run.load_newest()
    assert loaded is not None
    assert loaded.manifest.optimizer_iteration == 10
    assert loaded.optimizer["state"]["encoder.weight"]["step"] == 10
    assert run.verify() == {"00000020": [], "00000030": []}


def test_without_hard_links_the_optimizer_is_copied(
    run: RunFolder, make_content: MakeContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr("os.link", refuse)
    _save(run, make_content(10))
    _save(run, make_content(20, optimizer=KEEP_OPTIMIZER))
    assert run.verify()["00000020"] == []


def test_sessions_without_training_are_dropped(run: RunFolder, make_content: MakeContent) -> None:
    _save(run, make_content(10))
    for _ in range(2):
        run = _reopen(run)
        run.load_newest()
        run.begin_session(start_iteration=10, batch_size=4)
    _save(run, make_content(25))
    loaded = run.load_newest()
    assert loaded is not None
    assert [(s.number, s.start_iteration, s.iterations, s.batch_size) for s in loaded.sessions] == [
        (1, 0, 10, 8),
        (2, 10, 15, 4),
    ]
    run.close()


def test_writing_needs_an_open_folder(tmp_path: Path, make_content: MakeContent) -> None:
    run = RunFolder(tmp_path / "run")
    with pytest.raises(StateError):
        run.commit(run.pack(make_content(1)))
    with pytest.raises(StateError):
        run.restore(1)


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be used"):
        RunFolder(tmp_path / "file" / "run", files=Files(attempts=1)).open()


# --- weights that are no numbers -------------------------------------------------------------------------------------


def test_a_number_too_large_for_a_float_is_finite_in_a_double(run: RunFolder, make_content: MakeContent) -> None:
    content = make_content(10)
    content.model["scale"] = torch.tensor(1e300, dtype=torch.float64)
    _save(run, content)
    assert run.read(10).model["scale"] == 1e300


def test_an_optimizer_state_that_cannot_be_carried_on_is_named(run: RunFolder, make_content: MakeContent) -> None:
    name = _save(run, make_content(10))
    (run.generations_path / name / "optimizer.safetensors").unlink()
    with pytest.raises(SaveError, match=rf"iteration 20 .*: generations/{name}/optimizer\.safetensors is missing"):
        _save(run, make_content(20, optimizer=KEEP_OPTIMIZER))
    assert [str(found) for found in run.names()] == [name]


def test_a_damaged_generation_gets_no_further_reasons(run: RunFolder, make_content: MakeContent) -> None:
    name = _save(run, make_content(10))
    (run.generations_path / name / "manifest.json").write_text("{}")
    with pytest.raises(SaveError, match=r"manifest\.json"):
        run.add_reasons(name, "session_end")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_not_saved(run: RunFolder, make_content: MakeContent, value: float) -> None:
    _save(run, make_content(10))
    content = make_content(20)
    content.model["encoder.weight"][2, 3, 1, 1] = value
    with pytest.raises(SaveError, match=r"encoder\.weight.*00000010 is good"):
        _save(run, content)
    assert [str(name) for name in run.names()] == ["00000010"]


def test_the_state_of_an_error_may_hold_them(run: RunFolder, make_content: MakeContent) -> None:
    content = make_content(20, reasons=("error",))
    content.model["encoder.bias"][0] = float("nan")
    assert _save(run, content) == "00000020-error"


def test_an_average_that_is_no_number_is_stored_as_none(run: RunFolder, make_content: MakeContent) -> None:
    _save(run, make_content(10, average_loss=float("nan")))
    assert run.scan().manifests[0].average_loss is None
    assert "NaN" not in (run.path / "journal.jsonl").read_text()


# --- damage ----------------------------------------------------------------------------------------------------------

FILES = (
    "manifest.json",
    "model.safetensors",
    "optimizer.safetensors",
    "optimizer.json",
    "state.json",
    "state.safetensors",
)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def _flip(path: Path, place: float = 0.5) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 1
    path.write_bytes(content)


def _remove(path: Path) -> None:
    path.unlink()


def _replace_by_that_of_the_one_before(path: Path) -> None:
    path.write_bytes((path.parent.parent / "00000010" / path.name).read_bytes())


def _make_link(path: Path) -> None:
    aside = path.parent.parent.parent / path.name
    path.rename(aside)
    path.symlink_to(aside)


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _empty,
        _halve,
        _zero,
        _lengthen,
        _flip,
        lambda path: _flip(path, 0.0),
        lambda path: _flip(path, 1.0),
        _remove,
        _replace_by_that_of_the_one_before,
        _make_link,
        _make_folder,
    ],
)
@pytest.mark.parametrize("file", FILES)
def test_every_damage_of_every_file_is_found_and_the_generation_before_used(
    run: RunFolder, make_content: MakeContent, file: str, damage: Callable[[Path], None]
) -> None:
    for iteration in (10, 20):
        content = make_content(iteration)
        content.state["random"] += iteration
        _save(run, content)
    path = run.generations_path / "00000020" / file
    damage(path)
    found = run.verify()
    assert [d.file for d in found["00000020"]][:1] == [file]
    assert found["00000010"] == []

    again = _reopen(run)
    loaded = again.load_newest()
    assert loaded is not None
    assert loaded.iteration == 10
    assert len(again.notices) == 1
    assert file in again.notices[0]
    assert (run.path / "generations/damaged/00000020").is_dir()
    assert [str(name) for name in again.names()] == ["00000010"]

    # Training reaches the same iteration again; the damaged one stays where it is.
    _save(again, make_content(20))
    _assert_holds(again.load_newest(), make_content(20))
    assert (run.path / "generations/damaged/00000020").is_dir()
    again.close()


def test_two_generations_that_changed_places_are_found(run: RunFolder, make_content: MakeContent) -> None:
    for iteration in (10, 20):
        _save(run, make_content(iteration))
    folder = run.generations_path
    (folder / "00000010").rename(folder / "x")
    (folder / "00000020").rename(folder / "00000010")
    (folder / "x").rename(folder / "00000020")
    assert all(run.verify().values())
    with pytest.raises(DamagedRunError):
        run.load_newest()


def test_a_damaged_copy_never_pushes_out_an_older_one(run: RunFolder, make_content: MakeContent) -> None:
    for _ in range(2):
        for iteration in (10, 20):
            _save(run, make_content(iteration))
        _zero(run.generations_path / "00000020" / "model.safetensors")
        run.load_newest()
    assert sorted(p.name for p in (run.generations_path / "damaged").iterdir()) == ["00000020", "00000020.2"]


def test_all_damaged_is_an_error_and_changes_nothing(run: RunFolder, make_content: MakeContent) -> None:
    for iteration in (10, 20):
        _save(run, make_content(iteration))
        _flip(run.generations_path / f"000000{iteration}" / "model.safetensors")
    before = sorted(str(path) for path in run.generations_path.rglob("*"))
    for _ in range(2):
        run = _reopen(run)
        with pytest.raises(DamagedRunError, match=r"model\.safetensors") as caught:
            run.load_newest()
        assert len(caught.value.fields["damage"]) == 2
    assert sorted(str(path) for path in run.generations_path.rglob("*")) == before
    run.close()


def test_a_generation_of_a_newer_program_is_refused_and_stays_where_it_is(
    run: RunFolder, make_content: MakeContent
) -> None:
    from ostinato.runs.manifest import _own_checksum

    for iteration in (10, 20):
        _save(run, make_content(iteration))
    path = run.generations_path / "00000020" / "manifest.json"
    raw = json.loads(path.read_text())
    raw.pop("sha256")
    raw["format"] = 2
    path.write_text(json.dumps({**raw, "sha256": _own_checksum(raw)}))
    run.close()
    for look in (RunFolder(run.path).load_newest, RunFolder(run.path).open, RunFolder(run.path).verify):
        with pytest.raises(RunError, match=r"00000020 has format 2; this program knows 1. Update Ostinato"):
            look()
    assert [str(name) for name in RunFolder(run.path).names()] == ["00000010", "00000020"]
    # One flipped bit is damage, whatever it makes of the format.
    path.write_text(json.dumps({**raw, "sha256": _own_checksum({**raw, "format": 1})}))
    _assert_holds(RunFolder(run.path).load_newest(), make_content(10))


@pytest.mark.parametrize("left", ["journal", "damaged"])
def test_a_run_that_lost_its_generations_is_not_new(run: RunFolder, make_content: MakeContent, left: str) -> None:
    _save(run, make_content(10))
    if left == "damaged":
        (run.path / "journal.jsonl").unlink()
        (run.generations_path / "damaged").mkdir()
        (run.generations_path / "00000010").rename(run.generations_path / "damaged" / "00000010")
    else:
        shutil.rmtree(run.generations_path / "00000010")
    run = _reopen(run)
    with pytest.raises(DamagedRunError, match="saved before"):
        run.load_newest()
    run.close()


@pytest.mark.parametrize("damage", [_remove, _zero, _empty])
def test_a_run_that_lost_its_journal_with_its_generations_is_not_taken_for_new(
    run: RunFolder, make_content: MakeContent, damage: Callable[[Path], None]
) -> None:
    _save(run, make_content(10))
    shutil.rmtree(run.generations_path)
    damage(run.path / "journal.jsonl")
    for _ in range(2):
        run = _reopen(run)
        with pytest.raises(DamagedRunError, match="may have been saved"):
            run.load_newest()
    run.close()


@pytest.mark.parametrize("file", ["run.json", "config.yaml", "lock", "generations"])
def test_a_run_that_was_never_saved_is_new_whatever_is_missing(run: RunFolder, file: str) -> None:
    run.write_config("seed: 1\n")
    run.close()
    path = run.path / file
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    run = RunFolder(run.path).open()
    assert run.load_newest() is None
    run.close()


@pytest.mark.parametrize("left", [b'{"event": "beg', bytes(60)])
def test_a_run_whose_first_line_a_power_cut_has_spoiled_is_new(run: RunFolder, left: bytes) -> None:
    run.close()
    (run.path / "run.json").unlink()
    (run.path / "journal.jsonl").write_bytes(left)
    for _ in range(2):
        run = _reopen(run)
        assert run.load_newest() is None
    run.close()


def test_a_first_save_that_comes_while_somebody_looks_is_no_loss(run: RunFolder, make_content: MakeContent) -> None:
    view = RunView(run.path)
    seen = view.scan()
    _save(run, make_content(10))
    assert seen.manifests == ()
    assert view.lost_state() == ""


def test_a_run_of_which_only_the_state_of_an_error_was_saved_can_begin_again(
    run: RunFolder, make_content: MakeContent
) -> None:
    _save(run, make_content(1, reasons=("error",)))
    run = _reopen(run)
    assert run.load_newest() is None
    _save(run, make_content(2))
    _assert_holds(run.load_newest(), make_content(2))
    run.close()


def test_a_generation_that_may_not_be_read_is_no_damage(
    run: RunFolder, make_content: MakeContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    for iteration in (10, 20):
        _save(run, make_content(iteration))

    def refuse(path: Path) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("ostinato.runs.atomic.open_regular", refuse)
    with pytest.raises(RunError, match="Permission denied"):
        run.load_newest()
    assert len(run.names()) == 2


@pytest.mark.parametrize("damage", [_zero, _empty, _halve, _flip, _remove])
@pytest.mark.parametrize("file", ["run.json", "journal.jsonl", "config.yaml", "lock"])
def test_nothing_is_lost_with_the_files_around(
    run: RunFolder, make_content: MakeContent, file: str, damage: Callable[[Path], None]
) -> None:
    run.write_config("seed: 1\n")
    for iteration in (10, 20):
        _save(run, make_content(iteration))
    identity = run.identity
    run.close()
    if file == "lock":  # as a process leaves it that was killed
        (run.path / file).write_text(json.dumps({"pid": 1, "host": "h", "since": "s", "boot": "b", "process_start": 1}))
    damage(run.path / file)
    again = RunFolder(run.path).open()
    _assert_holds(again.load_newest(), make_content(20))
    assert again.identity == identity
    again.begin_session(start_iteration=20)
    _save(again, make_content(30))
    assert again.journal.read()[0][-1]["event"] in ("commit", "evict")
    again.close()


def test_hostile_manifests_reach_nothing_outside(run: RunFolder, make_content: MakeContent) -> None:
    from ostinato.runs.manifest import _own_checksum

    _save(run, make_content(10))
    path = run.generations_path / "00000010" / "manifest.json"
    for name in ("../../secret", "/etc/passwd", "a/b", "", ".hidden", "manifest.json", "x" * 300):
        raw = json.loads(path.read_text())
        raw.pop("sha256")
        raw["files"][name] = {"bytes": 1, "sha256": "0" * 64}
        raw["sha256"] = _own_checksum(raw)
        copy = run.path / "copy" / "00000010"
        shutil.copytree(path.parent, copy, dirs_exist_ok=True)
        (copy / "manifest.json").write_text(json.dumps(raw))
        from ostinato.runs.verification import verify_generation

        assert "not a plain file name" in str(verify_generation(copy)[0])


@pytest.mark.parametrize("field", ["average_loss", "lowest_average"])
def test_a_number_that_is_too_large_is_damage(run: RunFolder, make_content: MakeContent, field: str) -> None:
    from ostinato.runs.manifest import _own_checksum

    _save(run, make_content(10))
    _save(run, make_content(20))
    path = run.generations_path / "00000020" / "manifest.json"
    raw = json.loads(path.read_text())
    raw.pop("sha256")
    raw[field] = 10**400
    path.write_text(json.dumps({**raw, "sha256": _own_checksum(raw)}))
    assert [damage.file for damage in run.verify()["00000020"]] == ["manifest.json"]
    _assert_holds(run.load_newest(), make_content(10))


def test_an_endless_number_in_a_state_or_an_identity_is_damage(run: RunFolder, make_content: MakeContent) -> None:
    from ostinato.runs.generation_files import DamagedGenerationError, using
    from ostinato.runs.identity import read_identity

    with pytest.raises(DamagedGenerationError, match="OverflowError"):
        using(run.path, "state.json", lambda: int(float("inf")))
    raw = json.loads((run.path / "run.json").read_text())
    raw.pop("sha256")
    raw["format"] = float("inf")
    checksum = hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()
    (run.path / "run.json").write_text(json.dumps({**raw, "sha256": checksum}))
    with pytest.raises(ChecksumMismatchError, match="cannot be read"):
        read_identity(run.path)


# --- leftovers -------------------------------------------------------------------------------------------------------


def test_leftovers_are_removed_and_foreign_files_are_not(run: RunFolder, make_content: MakeContent) -> None:
    _save(run, make_content(10))
    for name in (".tmp-00000020", ".trash-00000005"):
        (run.generations_path / name).mkdir()
        (run.generations_path / name / "model.safetensors").write_text("half")
    for name in (".tmp-mine", "notes", "00000020.bak"):
        (run.generations_path / name).mkdir()
    again = _reopen(run)
    assert sorted(path.name for path in run.generations_path.iterdir()) == [
        ".tmp-mine",
        "00000010",
        "00000020.bak",
        "notes",
    ]
    _assert_holds(again.load_newest(), make_content(10))
    again.close()


# --- going back ------------------------------------------------------------------------------------------------------


@pytest.fixture
def history(run: RunFolder, make_content: MakeContent) -> RunFolder:
    run.policy = RetentionPolicy(latest=-1)
    for iteration in (10, 20, 30):
        _save(run, make_content(iteration))
    return run


def test_restoring_makes_an_older_state_the_newest(history: RunFolder, make_content: MakeContent) -> None:
    history.restore(10)
    _assert_holds(history.load_newest(), make_content(10))
    assert sum(map(len, history.set_aside().values())) == 2


def test_a_restore_can_be_undone_and_that_too(history: RunFolder, make_content: MakeContent) -> None:
    history.restore(10)
    _save(history, make_content(15))
    history.undo_restore()
    assert [n.iteration for n in history.names()] == [10, 20, 30]
    history.undo_restore()
    assert [n.iteration for n in history.names()] == [10, 15]
    history.undo_restore()
    _assert_holds(history.load_newest(), make_content(30))


def test_the_other_branch_may_have_the_same_names(history: RunFolder, make_content: MakeContent) -> None:
    history.restore(10)
    different = make_content(20, state={"position": -1, "lists": []})
    _save(history, different)
    history.restore("00000010")
    history.undo_restore()
    _assert_holds(history.load_newest(), different)


def test_a_damaged_generation_is_not_restored(history: RunFolder) -> None:
    _flip(history.generations_path / "00000010" / "model.safetensors")
    with pytest.raises(DamagedRunError, match=r"00000010.*model\.safetensors"):
        history.restore(10)
    assert [n.iteration for n in history.names()] == [10, 20, 30]


def test_restoring_works_with_damaged_and_missing_files_around(history: RunFolder, make_content: MakeContent) -> None:
    shutil.rmtree(history.generations_path / "00000030")
    (history.generations_path / "00000020" / "state.json").unlink()
    (history.path / "run.json").unlink()
    again = _reopen(history)
    again.restore(10)
    _assert_holds(again.load_newest(), make_content(10))
    again.close()


def test_an_unknown_generation_is_answered_with_those_there_are(history: RunFolder) -> None:
    with pytest.raises(BadInputError, match=r"no generation 25.*00000010, 00000020, 00000030"):
        history.restore(25)
    with pytest.raises(ArgumentValueError, match="Nothing is set aside"):
        history.undo_restore()


def test_restoring_the_newest_changes_nothing(history: RunFolder) -> None:
    history.restore(30)
    assert history.set_aside() == {}


class _StopError(BaseException):
    """Stands for the power going off: nothing may catch it."""


@pytest.mark.parametrize("action", ["restore", "undo"])
def test_a_restore_that_stops_anywhere_is_finished_or_was_not_begun(
    tmp_path: Path, history: RunFolder, make_content: MakeContent, action: str
) -> None:
    if action == "undo":
        history.restore(10)
        _save(history, make_content(15))
    before = [n.iteration for n in history.names()]
    history.close()
    for stop_at in range(1000):
        copy = tmp_path / f"copy{stop_at}"
        shutil.copytree(history.path, copy)
        run = RunFolder(copy).open()
        seen = 0

        def stop(moment: str, operation: str, path: Path, stop_at: int = stop_at) -> None:
            nonlocal seen
            if seen == stop_at:
                raise _StopError(f"{moment} {operation} {path}")
            seen += 1

        set_hook(stop)
        try:
            run.restore(10) if action == "restore" else run.undo_restore()
        except _StopError:
            finished = False
        else:
            finished = True
        set_hook(None)
        run.close()
        after = RunFolder(copy).open()
        loaded = after.load_newest()
        assert loaded is not None
        expected = [10] if action == "restore" else [10, 20, 30]
        assert [n.iteration for n in after.names()] in ([before, expected] if not finished else [expected])
        everything = [*after.names(), *(n for names in after.set_aside().values() for n in names)]
        assert len(everything) == len(before) + (2 if action == "undo" else 0)
        after.close()
        if finished:
            assert stop_at > 10
            return
    raise AssertionError("the restore never came to its end")


def test_an_unreadable_list_of_moves_is_put_aside(history: RunFolder, make_content: MakeContent) -> None:
    for content in (
        b"\0\0\0",
        b'{"target": "00000010", "moves": [["../../x", "00000010"]]}',
        b'{"target": "\\u001b[2J", "moves": []}',
    ):
        (history.path / "restore.json").write_bytes(content)
        history = _reopen(history)
        _assert_holds(history.load_newest(), make_content(30))
        assert any("restore.json" in notice for notice in history.notices)
    history.close()
