from __future__ import annotations

from types import SimpleNamespace

from rank_threads import on_ranks

from ostinato.dist import Alone
from ostinato.loop import IntervalTrigger, from_counters
from ostinato.loop.triggers.parts import ask_together, group_of, initialize_part, load_part, part_state, shown


def test_a_trainer_that_knows_of_no_group_is_alone() -> None:
    assert group_of(SimpleNamespace()).size == 1
    group = Alone()
    assert group_of(SimpleNamespace(group=group)) is group


def test_the_answer_of_rank_0_is_everybodys_where_ranks_could_differ() -> None:
    def work(group):
        trainer = SimpleNamespace(group=group)
        together = ask_together(lambda trainer: trainer.group.rank == 0, trainer)
        alone = ask_together(from_counters(lambda trainer: trainer.group.rank == 0), trainer)
        return together, alone, len(group.calls)

    assert on_ranks(2, work) == [(True, True, 1), (True, False, 1)]


def test_plain_callables_have_no_memory(stand_in) -> None:
    def plain(trainer):
        return True

    initialize_part(plain, stand_in())
    assert part_state(plain) is None
    load_part(plain, {"baseline": 3})
    trigger = IntervalTrigger(5, "iteration")
    load_part(trigger, None)
    initialize_part(trigger, stand_in(iteration=4))
    assert part_state(trigger) == {"unit": "iteration", "baseline": 4}


def test_what_is_shown_of_a_callable_is_its_name() -> None:
    class Moody:
        def __call__(self, trainer):
            return True

    assert shown(print) == "print"
    assert shown(Moody()).endswith("Moody")
    assert shown(IntervalTrigger(2, "epoch")) == "IntervalTrigger(2, 'epoch')"
