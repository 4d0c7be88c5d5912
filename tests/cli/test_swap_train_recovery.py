"""Going on after a number was not finite: once with `--recover`, and unattended."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from command_client import CommandServer, Kept, assert_equal_runs
from training_fixtures import QUICK

from ostinato.runs import GenerationContent, RunFolder

WHAT = "loss/b is nan, loss/b/ssim is nan, loss/b/mse is nan"
ALONE = ("--set", "recovery.nan_recovery=true")


def command(people: Path, run: Path, *further: str | Path) -> list[str | Path]:
    words: list[str | Path] = ["swap", "train", "-A", people / "a", "-B", people / "b", "-m", run, "-b", "2", "-s", "3"]
    return [*words, "--set", "seed=1", *QUICK, *further]


def nan(above: float = 0.0, iteration: int = 8) -> dict[str, Any]:
    """A loss of side b that is no number while the learning rate is higher."""
    return {"nan_loss": {"iteration": iteration, "side": 1, "above": above}}


def rate_in(run: Path) -> dict[str, Any]:
    loaded = RunFolder(run).load_newest()
    assert loaded is not None
    state: Any = loaded.state
    return state["trainer"]["updater"]["learning_rate"]


def events_of(run: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (run / "journal.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def halved_at_6(commands: CommandServer, people: Path, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """What a run is like whose rate was halved by hand at iteration 6."""
    run = tmp_path_factory.mktemp("halved") / "run"
    for end, rate in (("6", "5e-5"), ("14", "2.5e-5")):
        words = command(people, run, "-i", end, "--set", f"optimizer.learning_rate={rate}")
        assert commands.run(*words)[0] == 0
    return Kept.read(run)


@pytest.fixture(scope="module")
def undisturbed(commands: CommandServer, people: Path, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert commands.run(*command(people, run, "-i", "14"))[0] == 0
    return Kept.read(run)


# --- once, by hand ----------------------------------------------------------------------------------------------------


def test_recover_goes_back_lowers_the_rate_and_keeps_it(
    commands: CommandServer, people: Path, tmp_path: Path, halved_at_6: Kept
) -> None:
    run = tmp_path / "run"
    words = command(people, run, "-i", "14")
    status, text = commands.run(*words, faults=nan())
    assert status == 1
    assert "Side b: output 64 x 64 pixels, loss functions ssim, mse." in text
    assert "`--recover` with the same command" in text
    assert events_of(run)[-1] == "non_finite"
    status, text = commands.run(*words, "--recover", faults=nan(above=3e-5))
    assert status == 0, text
    assert (
        f"recovery 1 of at most 3 ({WHAT} at iteration 8): going back to iteration 6, with the learning rate 2.5e-05 "
        "in place of 5e-05; the same batches come again at the same iterations"
    ) in text
    assert_equal_runs(Kept.read(run), halved_at_6)
    assert (rate_in(run)["factor"], len(rate_in(run)["recoveries"])) == (0.5, 1)
    path = tmp_path / "steps.jsonl"
    words[words.index("14")] = "16"
    status, text = commands.run(*words, "--recover", faults={"note_steps": {"path": str(path)}})
    assert status == 0, text
    assert "--recover has nothing to do" in text
    assert "learning rate 2.5e-05: lowered to 0.5 of 5e-05 by recovery" in text
    steps = [json.loads(line) for line in path.read_text().splitlines()]
    assert {group["lr"] for step in steps for group in step["groups"]} == {2.5e-5}


def test_without_a_failure_recover_changes_nothing(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept
) -> None:
    for end in ("6", "14"):
        status, text = commands.run(*command(people, tmp_path / "run", "-i", end, "--recover"))
        assert status == 0
        assert "--recover has nothing to do: since the newest save, no number of this run was not finite." in text
    assert_equal_runs(Kept.read(tmp_path / "run"), undisturbed)


def test_without_recover_the_same_command_goes_on_as_before(
    commands: CommandServer, people: Path, tmp_path: Path, undisturbed: Kept
) -> None:
    words = command(people, tmp_path / "run", "-i", "14")
    assert commands.run(*words, faults=nan())[0] == 1
    assert commands.run(*words)[0] == 0
    assert_equal_runs(Kept.read(tmp_path / "run"), undisturbed)


def test_gradients_that_are_not_finite_are_told_apart_from_losses(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    words = command(people, tmp_path / "run", "-i", "14")
    status, text = commands.run(*words, faults={"nan_gradient": {"iteration": 8}})
    assert status == 1
    assert (
        "The gradients are not finite numbers at iteration 8, though every loss is: gradient/norm is inf. The batch:"
    ) in text
    status, text = commands.run(*words, "--recover")
    assert status == 0, text
    assert "recovery 1 of at most 3 (gradient/norm is inf at iteration 8): going back to iteration 6" in text


def test_gradients_that_overflow_with_any_loss_scale_end_the_run_though_every_loss_is_finite(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    """The scaler leaves such steps out without a word; nothing would be trained for ever."""
    run = tmp_path / "run"
    faults = {"overflow": {"after": 7, "above": 3e-5, "scale": 2.0**-10}}
    words = command(people, run, "-i", "16")
    status, text = commands.run(*words, faults=faults)
    assert status == 1
    assert (
        "The gradients are not finite numbers at iteration 12, though every loss is: gradient/loss_scale is nan. They "
        "do not fit into float16, however small the loss scaler makes them"
    ) in text
    assert "network.mixed_precision=false" in text
    status, text = commands.run(*words, "--recover", faults=faults)
    assert status == 0, text
    assert "recovery 1 of at most 3 (gradient/loss_scale is nan at iteration 12): going back to iteration 9" in text
    assert Kept.read(run).iteration == 16


# --- unattended -------------------------------------------------------------------------------------------------------


def test_by_itself_it_goes_on_until_the_rate_is_low_enough(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    status, text = commands.run(*command(people, run, "-i", "14", *ALONE), faults=nan(above=2e-5))
    assert status == 0, text
    assert "recovery 1 of at most 3" in text
    # The state that failed twice is suspected.
    assert "not gone back to generation 00000006-2: the last recovery went back to it" in text
    assert "set aside below generations/set-aside, not deleted: 00000006-2" in text
    assert "recovery 2 of at most 3" in text
    assert "going back to iteration 3, with the learning rate 1.25e-05 in place of 2.5e-05" in text
    assert "finished: all 14 iterations are trained and saved" in text
    assert Kept.read(run).iteration == 14
    assert [one["went_back_to"] for one in rate_in(run)["recoveries"]] == [6, 3]
    assert [str(path.relative_to(run)) for path in run.glob("generations/set-aside/*/*")] == [
        "generations/set-aside/0001-after-00000003/00000006-2"
    ]
    assert events_of(run).count("non_finite") == 2
    assert events_of(run).count("restore") == 1
    assert all(tensor.isfinite().all() for tensor in Kept.read(run).model.values())


def test_it_recovers_as_it_would_by_hand(
    commands: CommandServer, people: Path, tmp_path: Path, halved_at_6: Kept
) -> None:
    words = command(people, tmp_path / "run", "-i", "14", *ALONE)
    status, text = commands.run(*words, faults=nan(above=3e-5))
    assert status == 0, text
    assert_equal_runs(Kept.read(tmp_path / "run"), halved_at_6)


def test_it_gives_up_after_so_many_times_and_says_all_the_reasons(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = command(people, run, "-i", "14", *ALONE, "--set", "recovery.nan_recovery_limit=2")
    words += ["--set", "recovery.nan_recovery_factor=0.1"]
    status, text = commands.run(*words, faults=nan())
    assert status == 1
    for line in (
        "The run has recovered 2 times, which is all that recovery.nan_recovery_limit allows, and has failed again at",
        f"  1. iteration 8 ({WHAT}), back to 6 with the learning rate 5e-06",
        f"  2. iteration 8 ({WHAT}), back to 3 with the learning rate 5e-07",
        "The learning rate is 5e-07 by now, so it is hardly the cause.",
        "When you have changed something, go on from the newest state with --set recovery.nan_recovery=false",
        "--set recovery.nan_recovery_limit=5",
    ):
        assert line in text
    assert all(not damage for damage in RunFolder(run).verify().values())
    # The count is the run's, so the same command does not begin it anew.
    status, again = commands.run(*words, faults=nan())
    assert status == 1
    assert "The run has recovered 2 times" in again
    assert "recovery 1 of" not in again
    words[words.index("recovery.nan_recovery_limit=2")] = "recovery.nan_recovery_limit=5"
    status, text = commands.run(*words)
    assert status == 0, text
    assert "recovery 3 of at most 5" in text


def test_before_anything_was_saved_it_begins_anew_with_a_lower_rate(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    run, lower = tmp_path / "run", tmp_path / "lower"
    status, text = commands.run(*command(people, run, "-i", "4", *ALONE), faults=nan(above=2e-5, iteration=2))
    assert status == 0, text
    assert text.count("going back to the beginning, since nothing was saved, with the learning rate 2.5e-05") == 1
    assert "going back to iteration 0, with the learning rate 1.25e-05 in place of 2.5e-05" in text
    assert commands.run(*command(people, lower, "-i", "4", "--set", "optimizer.learning_rate=1.25e-5"))[0] == 0
    assert_equal_runs(Kept.read(run), Kept.read(lower))


@pytest.mark.parametrize(
    "fault",
    [
        {"point": "commit", "number": 2},  # of the lowered rate
        {"point": "update", "number": 8},  # the first one after the recovery
        {"point": "update", "number": 10},
    ],
)
def test_killed_while_it_recovers_it_counts_right_and_ends_the_same(
    commands: CommandServer, people: Path, tmp_path: Path, halved_at_6: Kept, fault: dict[str, Any]
) -> None:
    run = tmp_path / "run"
    words = command(people, run, "-i", "14", *ALONE)
    started = commands.start(*words, faults={**nan(above=3e-5), "kill_at": fault})
    assert started.wait() == -signal.SIGKILL, started.text
    status, text = commands.run(*words, faults=nan(above=3e-5))
    assert status == 0, text
    assert_equal_runs(Kept.read(run), halved_at_6)
    assert len(rate_in(run)["recoveries"]) == 1


def test_who_asks_for_the_end_gets_it_also_when_a_number_is_not_finite_then(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    faults = {**nan(), "hold_update": {"after": 7, "path": str(tmp_path / "go")}}
    started = commands.start(*command(people, tmp_path / "run", "-i", "14", *ALONE), faults=faults)
    started.wait_for("update 8 waits")
    started.kill(signal.SIGTERM)
    (tmp_path / "go").touch()
    assert started.wait() == 1
    assert "recovery 1 of" not in started.text


def test_states_with_numbers_that_are_not_finite_are_passed_over(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    """Such as another program, or an earlier version, may have saved."""
    run = tmp_path / "run"
    words = command(people, run, "-i", "14")
    assert commands.run(*words, faults=nan())[0] == 1
    with RunFolder(run) as folder:
        loaded = folder.load_newest()
        assert loaded is not None
        tree: Any = loaded.optimizer
        next(iter(tree["main"]["state"].values()))["exp_avg"].fill_(float("nan"))
        _commit_again(folder, loaded, tree)
        folder.journal.add("non_finite", iteration=8, what="loss/b is nan")
    status, text = commands.run(*words, "--recover")
    assert status == 0, text
    assert "not gone back to generation 00000006-2: not all numbers of its optimizer state are finite" in text
    assert "going back to iteration 3" in text


def _commit_again(folder: RunFolder, loaded: Any, optimizer: Any) -> None:
    folder.begin_session(start_iteration=loaded.iteration, config=loaded.options)
    content = GenerationContent(loaded.iteration, loaded.model, optimizer, loaded.state, bar=loaded.bar)
    folder.commit(folder.pack(content))
