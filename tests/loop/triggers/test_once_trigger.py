from __future__ import annotations

from ostinato.loop import OnceTrigger


def test_it_fires_once_in_the_whole_history(stand_in) -> None:
    first = OnceTrigger()
    assert [first(stand_in()) for _ in range(3)] == [True, False, False]
    second = OnceTrigger()
    second.load_state_dict(first.state_dict())
    assert not second(stand_in())


def test_it_fires_after_each_resume_when_told_so(stand_in) -> None:
    first = OnceTrigger(call_on_resume=True)
    first(stand_in())
    second = OnceTrigger(call_on_resume=True)
    second.load_state_dict(first.state_dict())
    assert [second(stand_in()) for _ in range(2)] == [True, False]
