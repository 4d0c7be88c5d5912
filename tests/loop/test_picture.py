"""The picture of the loop stands beside the code and in the documentation; here it is held to what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ostinato.loop.trainer
from ostinato.loop import Extension, Trainer

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "loop.md"


def picture() -> str:
    docstring = ostinato.loop.trainer.__doc__
    assert docstring is not None
    return "\n".join(line[4:] for line in docstring.split("::\n\n")[1].rstrip().splitlines())


def test_the_documentation_shows_the_same_picture() -> None:
    found = re.search(r"```text\n(restore.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert found[1].rstrip() == picture()


def test_things_happen_in_the_order_of_the_picture(counting_updater) -> None:
    events: list[str] = []

    class Updater(counting_updater):
        def update(self) -> None:
            events.append("update")
            super().update()

    class Noting(Extension):
        def restore(self, trainer: Any) -> None:
            events.append("restore")

        def initialize(self, trainer: Any) -> None:
            events.append("initialize")

        def __call__(self, trainer: Any) -> None:
            events.append("ordinary")

        def on_error(self, trainer: Any, error: BaseException, traceback: Any) -> None:
            events.append("on_error")

        def finalize(self, trainer: Any) -> None:
            events.append("finalize")

    def late(trainer: Any) -> None:
        events.append("late")
        raise ValueError("on purpose")

    def stop(trainer: Any) -> bool:
        if trainer.updater.state.iteration:
            events.append("stop")
        return False

    trainer = Trainer(Updater(), stop, extensions=[Noting()])
    trainer.extend(late, priority=-100)
    with pytest.raises(ValueError, match="on purpose"):
        trainer.run()
    assert events == [line.split()[0] for line in picture().splitlines() if not line.startswith("loop")]
