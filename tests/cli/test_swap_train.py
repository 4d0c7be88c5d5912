"""What `ostinato swap train` says, does and answers, with a tiny model on drawn faces."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from command_client import CommandServer, Kept, assert_equal_runs
from training_fixtures import QUICK

from ostinato.faces.drawn import DrawnIdentity, write_drawn_folder
from ostinato.runs import GenerationContent, RunFolder

Ostinato = Callable[..., tuple[int, str]]


def command(people: Path, run: Path, *further: str | Path, sides: str = "ab") -> list[str | Path]:
    words: list[str | Path] = ["swap", "train", "-m", run, "-b", "2", *QUICK]
    for side in sides:
        words += {"a": ["-A", people / "a"], "b": ["-B", people / "b"]}.get(side, ["--side", f"{side}={people / side}"])
    return [*words, *further]


def files_of(run: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of a folder with its time and content; the lock is left out, which says who looked last."""
    return {
        str(path.relative_to(run)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


@pytest.fixture(scope="module")
def finished(commands: CommandServer, people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 6 iterations. Copy it before it is changed."""
    run = tmp_path_factory.mktemp("finished") / "run"
    status, text = commands.run(*command(people, run, "-i", "6", "-s", "3", "--set", "seed=1"))
    assert status == 0, text
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


# --- the total of the run (the same command starts, continues and finishes) -------------------------------------------


def test_a_finished_run_is_not_touched_by_the_same_command_a_smaller_total_or_zero(
    ostinato: Ostinato, people: Path, run: Path
) -> None:
    before = files_of(run)
    for total, sentence in (("6", "The run is finished: it has its 6"), ("4", "more than the 4"), ("0", "than the 0")):
        status, text = ostinato(*command(people, run, "-i", total))
        assert status == 0
        assert sentence in text
        assert "A larger -i goes on with it." in text
        assert files_of(run) == before


def test_a_larger_total_goes_on_by_the_difference(ostinato: Ostinato, people: Path, run: Path) -> None:
    status, text = ostinato(*command(people, run, "-i", "9"))
    assert status == 0
    assert "resuming run at iteration 6 (session 2)" in text
    assert "finished: all 9 iterations are trained and saved" in text
    assert Kept.read(run).iteration == 9


def test_no_iterations_make_no_run_folder(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "0"))
    assert (status, (tmp_path / "run").exists()) == (0, False)
    assert "-i 0 asks for no iterations" in text


def test_a_run_shorter_than_its_save_interval_ends_saved_and_with_a_preview(
    ostinato: Ostinato, people: Path, tmp_path: Path
) -> None:
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "2"))
    assert status == 0
    assert f"preview: {tmp_path / 'run' / 'previews' / 'latest.png'}" in text
    assert cv2.imread(str(tmp_path / "run" / "previews" / "latest.png")) is not None
    assert Kept.read(tmp_path / "run").iteration == 2


# --- options ----------------------------------------------------------------------------------------------------------


def test_two_runs_with_the_same_seed_are_equal_and_another_seed_is_not(
    ostinato: Ostinato, people: Path, tmp_path: Path, finished: Path
) -> None:
    for name, seed in (("same", "1"), ("other", "2")):
        assert ostinato(*command(people, tmp_path / name, "-i", "6", "-s", "5", "--set", f"seed={seed}"))[0] == 0
    same, other = Kept.read(tmp_path / "same"), Kept.read(tmp_path / "other")
    assert_equal_runs(same, Kept.read(finished))
    assert same.losses[1] != other.losses[1]


def test_without_a_seed_one_is_drawn_shown_and_kept(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "2"))
    seed = text.split(", seed ")[1].split()[0]
    assert f"\nseed: {seed}\n" in (tmp_path / "run" / "config.yaml").read_text()
    assert ostinato(*command(people, tmp_path / "again", "-i", "2", "--set", f"seed={seed}"))[0] == status == 0
    assert_equal_runs(Kept.read(tmp_path / "run"), Kept.read(tmp_path / "again"))


def test_what_changes_on_resume_is_shown(ostinato: Ostinato, people: Path, run: Path) -> None:
    words = ["--set", "optimizer.learning_rate=1e-4", "--set", "face.coverage=80", "-b", "3", "-i", "7"]
    status, text = ostinato(*command(people, run, *words))
    assert status == 0
    shown = [" ".join(line.split()) for line in text.splitlines()]
    assert "learning_rate 5e-05 -> 0.0001 (updatable, applied)" in shown
    assert "batch_size 2 -> 3 (of this session)" in shown
    assert any(line.startswith("coverage 100 kept, 80 asked for (fixed:") for line in shown)


def test_an_option_is_called_without_effect_only_where_the_run_s_own_options_leave_it_none(
    ostinato: Ostinato, people: Path, tmp_path: Path
) -> None:
    words = command(people, tmp_path / "run", "-s", "1")
    limited = ["--set", "optimizer.gradient_clipping=norm", "--set", "optimizer.clipping_value=2"]
    assert ostinato(*words, "-i", "1", *limited)[0] == 0
    status, text = ostinato(*words, "-i", "2", "--set", "optimizer.clipping_value=3")
    assert status == 0
    assert "clipping_value   2 -> 3   (updatable, applied)" in text
    assert "has no effect" not in text
    status, text = ostinato(*words, "-i", "3", "--set", "optimizer.autoclip_history=5")
    assert status == 0
    assert "optimizer.autoclip_history = 5 has no effect: gradient_clipping is not autoclip" in text


def test_all_mistakes_in_options_are_told_at_once_and_no_run_is_made(
    ostinato: Ostinato, people: Path, tmp_path: Path
) -> None:
    status, text = ostinato(
        *command(people, tmp_path / "run", "--set", "optimizer.lerning_rate=1", "--set", "loss.eye_multiplier=200")
    )
    assert (status, (tmp_path / "run").exists()) == (3, False)
    assert "There are 2 mistakes" in text
    assert "did you mean optimizer.learning_rate?" in text
    assert "loss.eye_multiplier = 200 is out of range" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-b", "0"], "-b/--batch-size is 0. Allowed is 1 to 4,096."),
        (["-s", "0"], "-s/--save-interval is 0. Allowed is 1 or more."),
        (["-i", "-1"], "-i/--iterations is -1. Allowed is 0 or more."),
        (["--max-snapshots", "0"], "--max-snapshots is 0. Give 1 or more, or -1 to keep all; -I 0 makes no snapshots."),
        (["--grace", "0"], "--grace is 0. Give seconds above 0."),
        (["-l", ""], "There is an empty word after -l."),
        (["-L", "loud"], "-L/--loglevel is 'loud'. Choose one of: debug, info, warning."),
        (["-z", "pictures"], "-z/--timelapse-output was given without faces to draw."),
        (["--side", "carol"], "--side 'carol' is not a name and a folder."),
        (["--side", "A=faces"], "Side a is given twice. Give each --side a name of its own."),
        (["--timelapse-side", "carol"], "--timelapse-side 'carol' is not a name and a folder."),
        (["-x", "faces", "--timelapse-side", "a=faces"], "Side a is given twice. Give each --timelapse-side a name"),
        (["-p"], "-p/--preview does not exist here. There is no window: previews/latest.png"),
        (["-d"], "-d/--distributed does not exist here. A run trains on one device"),
        (["-X", "1"], "-X/--exclude-gpus does not exist here. Name the one device"),
    ],
)
def test_usage_errors(ostinato: Ostinato, people: Path, tmp_path: Path, words: list[str], message: str) -> None:
    status, text = ostinato(*command(people, tmp_path / "run", *words))
    assert status == 2
    assert message in text
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words", [["-m", "notes.txt"], ["-m", "notes.txt/run"], ["-u", "-m", "notes.txt"]])
def test_a_file_where_a_folder_is_needed_is_named(
    ostinato: Ostinato, people: Path, tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    status, text = ostinato("swap", "train", "-A", people / "a", "-B", people / "b", *words)
    assert (status, text) == (
        3,
        "Error: notes.txt is a file, and a folder is needed there. Give a new or an empty folder.\n",
    )


def test_weights_from_a_file_that_is_no_run_are_refused(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    (tmp_path / "model.keras").write_text("x")
    status, text = ostinato(*command(people, tmp_path / "run", "-l", tmp_path / "model.keras"))
    assert (status, (tmp_path / "run").exists()) == (3, False)
    assert f"{tmp_path / 'model.keras'} holds no saved run. Give the run folder of a model" in text


def test_without_a_run_folder_or_faces_the_command_asks_for_them(ostinato: Ostinato, people: Path) -> None:
    assert ostinato("swap", "train", "-A", people / "a")[0] == 2
    status, text = ostinato("swap", "train", "-m", "nowhere")
    assert status == 2
    assert "No folder of faces was given. Name two: -A" in text


def test_options_are_listed_as_a_file_that_config_takes(
    ostinato: Ostinato, people: Path, tmp_path: Path, finished: Path
) -> None:
    status, text = ostinato("swap", "train", "--list-options", "--set", "seed=1", *QUICK)
    assert status == 0
    config = tmp_path / "options.yaml"
    config.write_text(text)
    words = [word for word in command(people, tmp_path / "run", "-i", "6", "-s", "3") if word not in QUICK]
    assert ostinato(*words, "--config", config)[0] == 0
    assert_equal_runs(Kept.read(tmp_path / "run"), Kept.read(finished))


def test_a_summary_shows_the_model_and_touches_no_folder(
    ostinato: Ostinato, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    status, text = ostinato("swap", "train", "--summary", "-t", "lightweight")
    assert status == 0
    for expected in ("lightweight: 64 pixels in, 64 out", "encoder", "decoder_b", "parameters:"):
        assert expected in text
    assert list(tmp_path.iterdir()) == []


def test_a_summary_of_a_run_shows_its_model_and_refuses_another(
    ostinato: Ostinato, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    before = files_of(run)
    status, text = ostinato("swap", "train", "--summary", "-m", run)
    assert status == 0
    new = ostinato("swap", "train", "--summary", "-t", "original", *QUICK)[1]
    assert text == new
    status, text = ostinato("swap", "train", "--summary", "-m", run, "-t", "lightweight")
    assert status == 3
    assert "Continue it with -t original" in text
    assert files_of(run) == before


def test_faces_of_all_sides_are_counted(ostinato: Ostinato, people: Path, run: Path) -> None:
    _, text = ostinato(*command(people, run, "-i", "8"))
    line = next(line for line in text.splitlines() if line.startswith("iteration 8 of 8"))
    found = re.search(r"(\S+) (it/s|s/it) · (\S+) faces/s", line)
    assert found is not None, line
    rate = float(found[1]) if found[2] == "it/s" else 1 / float(found[1])
    assert float(found[3]) == pytest.approx(4 * rate, rel=0.05, abs=0.6)  # two of each side


def test_convert_refuses_a_run_that_is_no_swap_training(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    with RunFolder(tmp_path / "other").open(recipe="digits") as other:
        other.commit(other.pack(GenerationContent(3, {}, None, {"trainer": {}})))
    status, text = ostinato("swap", "convert", tmp_path / "other", people / "a", tmp_path / "out")
    assert status == 3
    assert "was not saved by a swap training, but by digits" in text


# --- run folders that do not fit --------------------------------------------------------------------------------------


def test_a_run_of_another_model_is_refused_with_both_names_and_the_command_that_fits(
    ostinato: Ostinato, people: Path, run: Path
) -> None:
    before = files_of(run)
    status, text = ostinato(*command(people, run, "-i", "9", "-t", "lightweight"))
    assert status == 3
    assert f"The run in {run} is a model of the kind original, and lightweight was asked for." in text
    assert "Continue it with -t original" in text
    assert files_of(run) == before


def test_the_letter_case_of_a_model_does_not_matter(ostinato: Ostinato, people: Path, run: Path) -> None:
    assert ostinato(*command(people, run, "-i", "7", "-t", "Original"))[0] == 0


def test_lowmem_cannot_be_switched_on_resume_and_the_run_goes_on_as_it_was(
    ostinato: Ostinato, people: Path, run: Path
) -> None:
    status, text = ostinato(*command(people, run, "-i", "7", "--set", "model.lowmem=true"))
    assert status == 0
    assert "lowmem   false kept, true asked for   (fixed: it decides the shape of the model" in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("original.keras", "holds a model of another program ('original.keras')"),
        ("notes.txt", "is no run folder and holds other files ('notes.txt')"),
    ],
)
def test_a_folder_with_other_things_is_refused(
    ostinato: Ostinato, people: Path, tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / name).write_text("x")
    status, text = ostinato(*command(people, tmp_path, "-i", "2"))
    assert status == 3
    assert message in text
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_second_trainer_is_refused_and_a_lock_of_a_dead_process_is_taken_over(
    commands: CommandServer, ostinato: Ostinato, people: Path, tmp_path: Path
) -> None:
    first = commands.start(*command(people, tmp_path / "run", "-s", "1"), faults={"slow_updates": {"seconds": 0.02}})
    first.wait_for("saved iteration 1")
    status, text = ostinato(*command(people, tmp_path / "run", "-s", "1"))
    assert status == 3
    assert f"is in use by process {first.pid} on " in text
    first.kill()
    first.wait()
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "1"))
    assert status == 0
    assert f"The lock of process {first.pid} on " in text
    assert "was left behind; that process has ended, so the lock was taken over." in text


# --- folders of faces -------------------------------------------------------------------------------------------------


def test_too_few_faces_are_refused_with_their_number(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for path in sorted((people / "b").iterdir())[:7]:
        shutil.copy(path, few)
    status, text = ostinato(*command(people, tmp_path / "run", "-B", few, sides="a"))
    assert (status, (tmp_path / "run").exists()) == (3, False)
    assert f"{few} has 7 usable faces; training needs at least 25." in text


def test_the_same_folder_twice_is_refused(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(people / "a")
    status, text = ostinato(*command(people, tmp_path / "run", "-B", tmp_path / "link", sides="a"))
    assert (status, (tmp_path / "run").exists()) == (3, False)
    assert "Sides a and b have the same folder" in text


def test_exchanged_folders_are_refused_and_nothing_is_changed(ostinato: Ostinato, people: Path, run: Path) -> None:
    before = files_of(run)
    status, text = ostinato(*command(people, run, "-i", "9", "-A", people / "b", "-B", people / "a", sides=""))
    assert status == 3
    assert "The folders of sides a and b seem to be exchanged: a's holds the faces this run has learned as b." in text
    assert files_of(run) == before


def test_another_person_is_noticed(ostinato: Ostinato, people: Path, run: Path) -> None:
    status, text = ostinato(*command(people, run, "-i", "7", "-B", people / "c", sides="a"))
    assert status == 0
    assert "of the files of side b are not those of the last session. If this is another person, start a new" in text


def test_a_run_needs_a_folder_for_each_of_its_sides(ostinato: Ostinato, people: Path, run: Path) -> None:
    status, text = ostinato(*command(people, run, "-i", "9", sides="ac"))
    assert status == 3
    assert "The run has the sides a, b, and folders were given for a, c." in text


def test_a_batch_larger_than_the_folder_works_and_says_so(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "1", "-b", "40"))
    assert status == 0
    assert "A batch of 40 is larger than side a, which has 30 faces" in text


def test_files_that_systems_drop_into_folders_are_ignored(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    faces = Path(shutil.copytree(people / "a", tmp_path / "faces"))
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "._drawn_000001_0.png"):
        (faces / name).write_bytes(b"\x00\x01")
    (faces / "empty").mkdir()
    (faces / "loop").symlink_to(faces)
    assert ostinato(*command(people, tmp_path / "plain", "-i", "3", "--set", "seed=1"))[0] == 0
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "3", "--set", "seed=1", "-A", faces, sides="b"))
    assert status == 0, text
    assert_equal_runs(Kept.read(tmp_path / "run"), Kept.read(tmp_path / "plain"))


def test_odd_sizes_are_named_or_left_out_and_mixed_square_ones_train(
    ostinato: Ostinato, people: Path, tmp_path: Path
) -> None:
    faces = Path(shutil.copytree(people / "a", tmp_path / "faces"))
    for name, shape in (("wide.png", (200, 300, 3)), ("dot.png", (1, 1, 3))):
        cv2.imwrite(str(faces / name), np.zeros(shape, np.uint8))
    words = command(people, tmp_path / "run", "-i", "2", "-A", faces, sides="b")
    status, text = ostinato(*words)
    assert (status, (tmp_path / "run").exists()) == (3, False)
    assert "wide.png: " in text
    assert "dot.png: " in text
    assert "--skip-bad-faces" in text
    status, text = ostinato(*words, "--skip-bad-faces")
    assert status == 0
    assert "wide.png is left out: " in text


def test_faces_of_all_sizes_train_together_and_small_ones_are_counted(
    ostinato: Ostinato, people: Path, tmp_path: Path
) -> None:
    for first, size in ((0, 32), (9, 128), (18, 256)):
        write_drawn_folder(tmp_path / "faces", DrawnIdentity.from_seed(5), 9, size=size, first=first)
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "3", "-A", tmp_path / "faces", sides="b"))
    assert status == 0, text
    assert "9 of 27 faces of side a are smaller than the 64 pixels the model sees, and are enlarged." in text


def test_faces_of_one_colour_give_finite_losses(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    (tmp_path / "grey").mkdir()
    for number in range(25):
        cv2.imwrite(str(tmp_path / "grey" / f"{number}.png"), np.full((64, 64, 3), 128 * (number % 2), np.uint8))
    unmasked = ["--set", "loss.penalized_mask_loss=false", "--set", "augmentation.color_lightness=0", "-c"]
    words = command(people, tmp_path / "run", "-i", "5", "-B", tmp_path / "grey", *unmasked, sides="a")
    status, text = ostinato(*words)
    assert status == 0, text
    assert all(np.isfinite(v) for line in Kept.read(tmp_path / "run").losses.values() for v in line.values())


def with_plain_pictures(people: Path, folder: Path) -> Path:
    shutil.copytree(people / "a", folder)
    for number in range(3):
        picture = cv2.imread(str(people / "c" / f"drawn_{number:06d}_0.png"))
        cv2.imwrite(str(folder / f"plain_{number}.png"), picture)
    return folder


def test_plain_pictures_train_without_masks_and_are_named_where_masks_or_landmarks_are_needed(
    ostinato: Ostinato, people: Path, tmp_path: Path
) -> None:
    faces = with_plain_pictures(people, tmp_path / "faces")
    words = command(people, tmp_path / "run", "-i", "2", "-A", faces, sides="b")
    status, text = ostinato(*words)
    assert (status, (tmp_path / "run").exists()) == (3, False)
    assert "plain_0.png" in text
    assert "mask" in text
    unmasked = ["--set", "loss.penalized_mask_loss=false", "--set", "loss.eye_multiplier=1"]
    status, text = ostinato(*words, *unmasked, "--set", "loss.mouth_multiplier=1", "-M")
    assert (status, (tmp_path / "run").exists()) == (3, False)
    assert "plain_0.png" in text
    assert "which -M/--warp-to-landmarks needs" in text
    status, text = ostinato(*words, *unmasked)
    assert status == 0, text


def test_foreign_faces_with_their_own_landmarks_are_used(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    faces = Path(shutil.copytree(people / "a", tmp_path / "faces"))
    for number in range(5):
        shutil.copy(people / "c" / f"drawn_{number:06d}_0.png", faces / f"foreign_{number}.png")
    for further in ([], ["-M"]):
        run = tmp_path / f"run{len(further)}"
        status, text = ostinato(*command(people, run, "-i", "2", "-A", faces, *further, sides="b"))
        assert status == 0, text


def test_warping_to_landmarks_needs_a_second_side(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "2", "-M", sides="a"))
    assert (status, (tmp_path / "run").exists()) == (3, False)
    assert "-M/--warp-to-landmarks bends faces towards those of another side, and there is only one." in text


# --- what is written --------------------------------------------------------------------------------------------------


def test_no_logs_leaves_tensorboard_out_and_metrics_in(ostinato: Ostinato, people: Path, run: Path) -> None:
    status, text = ostinato(*command(people, run, "-i", "8", "-n"))
    assert status == 0
    assert "no longer registered" not in text
    assert [path.name for path in (run / "logs" / "session_0002").iterdir()] == ["metrics.jsonl"]
    assert any(path.name.startswith("events.out") for path in (run / "logs" / "session_0001").iterdir())
    Kept.read(run)


def test_previews_are_kept_by_iteration_when_asked_and_never_change_training(
    ostinato: Ostinato, people: Path, tmp_path: Path, finished: Path
) -> None:
    words = ["-i", "6", "-s", "1", "--set", "seed=1", "--set", "augmentation.preview_images=6"]
    status, text = ostinato(*command(people, tmp_path / "run", *words, "-w"))
    assert status == 0, text
    pictures = sorted(path.name for path in (tmp_path / "run" / "previews").iterdir())
    assert pictures == [f"{iteration:08d}.png" for iteration in range(1, 7)] + ["latest.png"]
    assert_equal_runs(Kept.read(tmp_path / "run"), Kept.read(finished))


def test_a_time_lapse_draws_the_same_faces_at_every_save(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    words = ["-i", "4", "-s", "2", "-x", people / "a", "-y", people / "b", "-z", tmp_path / "lapse"]
    status, text = ostinato(*command(people, tmp_path / "run", *words))
    assert status == 0, text
    assert sorted(path.name for path in (tmp_path / "lapse").iterdir()) == ["00000002.png", "00000004.png"]
    assert Kept.read(tmp_path / "run").iteration == 4
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "5"))  # without it, and without a word about it
    assert (status, "timelapse" in text) == (0, False)


def test_a_time_lapse_that_cannot_be_written_costs_a_warning_each_time(
    ostinato: Ostinato, people: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    words = ["-i", "4", "-s", "2", "-x", people / "a", "-z", tmp_path / "file" / "lapse"]
    status, text = ostinato(*command(people, tmp_path / "run", *words))
    assert status == 0
    assert text.count("No time-lapse picture at iteration") == 2
    assert Kept.read(tmp_path / "run").iteration == 4


def test_the_time_lapse_takes_every_side(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    words = ["-i", "1", "-z", tmp_path / "lapse", "--timelapse-side", f"c={people / 'c'}"]
    status, text = ostinato(*command(people, tmp_path / "run", *words, sides="abc"))
    assert status == 0, text
    only_c = cv2.imread(str(tmp_path / "lapse" / "00000001.png"))
    assert only_c is not None
    shutil.rmtree(tmp_path / "lapse")
    status, text = ostinato(*command(people, tmp_path / "run", *words, "-i", "2", "-x", people / "a", sides="abc"))
    assert status == 0, text
    both = cv2.imread(str(tmp_path / "lapse" / "00000002.png"))
    assert both is not None
    assert both.shape[1] == 2 * only_c.shape[1]


def test_a_run_of_another_recipe_is_left_alone(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run").open(recipe="recognition"):
        pass
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "1"))
    assert status == 3
    assert f"The run in {tmp_path / 'run'} was made by the recipe recognition, not swap." in text
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_folders_for_a_time_lapse_are_looked_at_before_the_run_is_made(
    ostinato: Ostinato, people: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for words, sides, message in (
        (["-x", tmp_path / "nowhere"], "ab", "nowhere cannot be read"),
        (["-x", tmp_path / "empty"], "ab", "has no usable faces for the time-lapse of side a"),
        (["-y", people / "b"], "a", "there is no side b to train"),
    ):
        status, text = ostinato(*command(people, tmp_path / "run", "-i", "2", *words, sides=sides))
        assert (status, (tmp_path / "run").exists()) == (3, False)
        assert message in text


def test_what_is_shown_is_also_written_to_a_log_file(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    assert ostinato(*command(people, tmp_path / "run", "-i", "2", "-s", "1", "-F", log))[0] == 0
    lines = log.read_text()
    assert "saved iteration 1, average loss " in lines
    assert "finished: all 2 iterations are trained and saved" in lines
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "3", "-t", "lightweight", "-F", log))
    assert status == 3
    assert "Error: The run in " in text
    assert "Error: The run in " in log.read_text()
    status, text = ostinato(*command(people, tmp_path / "run", "-F", tmp_path / "nowhere" / "log"))
    assert status == 2
    assert "cannot be written" in text


# --- sides ------------------------------------------------------------------------------------------------------------


def test_one_side_trains(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    status, text = ostinato(*command(people, tmp_path / "run", "-i", "2", sides="a"))
    assert status == 0, text
    assert set(Kept.read(tmp_path / "run").losses[1]) >= {"loss/total", "loss/a"}


def test_three_sides_train_and_keep_their_order_whatever_the_command_line_says(
    ostinato: Ostinato, people: Path, tmp_path: Path
) -> None:
    # Neither in alphabetical order, nor named a and b.
    sides = [["--side", f"{name}={people / folder}"] for name, folder in (("zoe", "b"), ("carl", "a"), ("max", "c"))]
    words = ["swap", "train", "-b", "2", *QUICK, "--set", "seed=3"]

    def train(run: Path, total: int, order: list[int]) -> None:
        given = [word for index in order for word in sides[index]]
        status, text = ostinato(*words, "-m", run, *given, "-i", str(total))
        assert status == 0, text

    train(tmp_path / "whole", 5, [0, 1, 2])
    train(tmp_path / "parts", 3, [0, 1, 2])
    train(tmp_path / "parts", 5, [2, 1, 0])
    parts = Kept.read(tmp_path / "parts")
    assert_equal_runs(parts, Kept.read(tmp_path / "whole"))
    assert [name for name in parts.losses[1] if name.startswith("loss/") and name.count("/") == 1] == [
        "loss/total",
        "loss/zoe",
        "loss/carl",
        "loss/max",
    ]


def test_the_record_of_a_session_tells_its_batch_size_and_iterations(
    ostinato: Ostinato, people: Path, run: Path
) -> None:
    assert ostinato(*command(people, run, "-i", "8", "-b", "3"))[0] == 0
    state = json.loads((run / "generations" / "00000008" / "state.json").read_text())
    assert [(s["number"], s["batch_size"], s["iterations"]) for s in state["sessions"]] == [(1, 2, 6), (2, 3, 2)]
