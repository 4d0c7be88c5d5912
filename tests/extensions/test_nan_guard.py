from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from ostinato.errors import NonFiniteError, NonFiniteLossError
from ostinato.extensions import NanGuard
from ostinato.loop import Trainer, report


def test_it_names_side_loss_iteration_and_files(reporting_updater) -> None:
    updater = reporting_updater(non_finite_at=3)
    updater.last_files = {"a": ["a1.png"], "b": [f"b{number}.png" for number in range(10)]}
    guard = NanGuard(good_generation=lambda: "Generation 2 is good.")
    with pytest.raises(NonFiniteLossError) as caught:
        Trainer(updater, (5, "iteration"), extensions=[guard]).run()
    error = caught.value
    assert error.fields["iteration"] == 3
    assert error.fields["sides"] == ["b"]
    assert math.isnan(error.fields["losses"]["loss/b/ssim"])
    assert "loss/b is nan, loss/b/ssim is nan" in error.what
    assert "loss/a" not in error.what
    assert "a: a1.png; b: b0.png" in error.what
    assert "and 2 more" in error.what
    assert "Generation 2 is good." in error.advice


@pytest.mark.parametrize("check_every", [1, 2, 7, 100])
@pytest.mark.parametrize("save_every", [1, 3, 5])
def test_a_state_with_a_loss_that_is_not_finite_is_never_saved(
    reporting_updater, saves, check_every, save_every
) -> None:
    kept: list[dict[str, Any]] = []
    trainer = Trainer(reporting_updater(non_finite_at=6), (20, "iteration"))
    trainer.extend(NanGuard(check_trigger=(check_every, "iteration")))

    class SavesAtTheEndToo(saves):
        def finalize(self, trainer: Any) -> None:
            if trainer.status != "failed":
                self(trainer)

        def on_error(self, trainer: Any, error: BaseException, traceback: Any) -> None:
            self(trainer)

    trainer.extend(SavesAtTheEndToo(kept), trigger=(save_every, "iteration"))
    with pytest.raises(NonFiniteLossError) as caught:
        trainer.run()
    assert caught.value.fields["iteration"] == 6
    assert [state["updater"]["state"]["iteration"] for state in kept] == [n for n in range(1, 6) if n % save_every == 0]


def test_the_end_of_the_run_is_a_check_too_and_what_follows_cannot_save(reporting_updater, saves) -> None:
    kept: list[dict[str, Any]] = []
    statuses: list[str] = []

    class SavesLast(saves):
        def finalize(self, trainer: Any) -> None:
            statuses.append(trainer.status)  # by which previews and trackers go
            self(trainer)

    trainer = Trainer(reporting_updater(non_finite_at=4), (4, "iteration"))
    trainer.extend(NanGuard(check_trigger=(100, "iteration")))
    trainer.extend(SavesLast(kept), trigger=lambda t: False)
    with pytest.raises(NonFiniteLossError) as caught:
        trainer.run()
    assert kept == []
    assert statuses == ["failed"]
    assert caught.value.__notes__ == ["at iteration 4, finalize of extension 'nan_guard'"]  # said once, not twice
    assert trainer.status == "failed"


def test_without_protection_it_says_so_once_and_goes_on(reporting_updater, caplog) -> None:
    trainer = Trainer(reporting_updater(non_finite_at=2), (5, "iteration"), extensions=[NanGuard(protect=False)])
    trainer.extend(lambda t: report("loss/total", math.inf), name="worse", priority=300, trigger=(4, "iteration"))
    with caplog.at_level(logging.WARNING):
        trainer.run()
    assert trainer.status == "finished"
    assert len(caplog.records) == 1
    assert "The protection is off" in caplog.text


def test_the_losses_of_a_long_stretch_are_read_together(reporting_updater, monkeypatch) -> None:
    import torch

    fetches = []
    original = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: fetches.append(1) or original(self))
    guard = NanGuard(check_trigger=(10, "iteration"))
    Trainer(reporting_updater(), (30, "iteration"), extensions=[guard]).run()
    assert len(fetches) == 3


def test_an_iteration_without_the_watched_loss_is_passed_over(reporting_updater) -> None:
    Trainer(reporting_updater(), (3, "iteration"), extensions=[NanGuard("loss/other")]).run()


def reporting_gradients(value: float) -> Any:
    return lambda trainer: report("gradient/norm", value if trainer.updater.state.iteration == 3 else 1.0)


def test_gradients_that_are_not_finite_stop_it_though_every_loss_is(reporting_updater) -> None:
    trainer = Trainer(reporting_updater(non_finite_at=99), (5, "iteration"))
    trainer.extend(reporting_gradients(math.inf), name="gradients", priority=300)
    trainer.extend(NanGuard(gradient="gradient/norm", check_trigger=(2, "iteration")))
    with pytest.raises(NonFiniteError, match="The gradients are not finite numbers at iteration 3") as caught:
        trainer.run()
    assert not isinstance(caught.value, NonFiniteLossError)
    assert (caught.value.fields["kind"], caught.value.fields["names"]) == ("grad", ["gradient/norm"])
    assert caught.value.fields["sides"] == []


def test_a_loss_is_the_cause_where_both_are_not_finite(reporting_updater) -> None:
    trainer = Trainer(reporting_updater(non_finite_at=3), (5, "iteration"))
    trainer.extend(reporting_gradients(math.nan), name="gradients", priority=300)
    trainer.extend(NanGuard(gradient="gradient/norm"))
    with pytest.raises(NonFiniteLossError, match="loss/b is nan, loss/b/ssim is nan") as caught:
        trainer.run()
    assert "gradient" not in caught.value.what
    assert "gradient/norm" in caught.value.fields["names"]


def test_gradients_that_nobody_asked_to_watch_are_passed_over(reporting_updater) -> None:
    trainer = Trainer(reporting_updater(non_finite_at=99), (5, "iteration"), extensions=[NanGuard()])
    trainer.extend(reporting_gradients(math.inf), name="gradients", priority=300)
    trainer.run()
    assert trainer.status == "finished"


def test_gradients_are_explained_too_where_there_is_something_to_say(reporting_updater) -> None:
    for explanation, end in (("They overflow.", "is nan. They overflow."), ("", "is nan.")):
        trainer = Trainer(reporting_updater(non_finite_at=99), (5, "iteration"))
        trainer.extend(reporting_gradients(math.nan), name="gradients", priority=300)
        trainer.extend(NanGuard(gradient="gradient/norm", explain=lambda names, text=explanation: text))
        with pytest.raises(NonFiniteError) as caught:
            trainer.run()
        assert caught.value.what.endswith(f"gradient/norm {end}")


def test_somebody_who_knows_the_names_explains_them(reporting_updater) -> None:
    guard = NanGuard(explain=lambda names: f"That is {' and '.join(names)}.")
    with pytest.raises(NonFiniteLossError, match=r"That is loss/b and loss/b/ssim\.") as caught:
        Trainer(reporting_updater(non_finite_at=2), (5, "iteration"), extensions=[guard]).run()
    assert "Side:" not in caught.value.what
