"""Extensions of rank 0 and collectives. What real ranks make of it is in tests/ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rank_threads import on_threads

from ostinato.dist import Alone
from ostinato.loop import Extension, Trainer
from ostinato.loop.first_rank_only import refuse_collectives


def test_the_group_refuses_inside_and_is_itself_again_afterwards() -> None:
    group = Alone()
    trainer = SimpleNamespace(group=group)
    with refuse_collectives(trainer, "plot"):
        assert (trainer.group.rank, trainer.group.size, trainer.group.local_rank) == (0, 1, 0)
        for call in (
            lambda: trainer.group.gather(1),
            lambda: trainer.group.broadcast(1),
            lambda: trainer.group.sum_of([1.0]),
            lambda: trainer.group.barrier(),
        ):
            with pytest.raises(RuntimeError, match=r"'plot' is registered with ranks=0.* waits for all ranks"):
                call()
    assert trainer.group is group


def test_computing_goes_on_as_usual() -> None:
    model = torch.nn.Linear(3, 2)
    expected = model(torch.ones(3))
    with refuse_collectives(SimpleNamespace(group=Alone()), "plot"):
        output = model(torch.ones(3))
        output.sum().backward()
    assert torch.equal(output, expected)
    assert model.weight.grad is not None


def test_what_is_compiled_is_not_given_up() -> None:
    compiled: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    function = torch.compile(lambda x: x.sin() + 1, backend=backend)
    with refuse_collectives(SimpleNamespace(group=Alone()), "plot"):
        first = function(torch.ones(3))
    assert compiled == []
    assert torch.equal(function(torch.ones(3)), first)
    assert len(compiled) == 1


@pytest.mark.parametrize("hook", ["restore", "initialize", "on_error", "finalize"])
def test_hooks_are_kept_from_waiting_too(counting_updater, hook) -> None:
    class Writer(Extension):
        def __call__(self, trainer: Any) -> None:
            if hook == "on_error":
                raise ValueError("no")

    setattr(Writer, hook, lambda self, trainer, *rest: trainer.group.barrier())

    def rank(group: Any) -> None:
        trainer = Trainer(counting_updater(), (1, "iteration"), group=group)
        trainer.extend(Writer(), "writer", ranks=0)
        trainer.run()

    first = on_threads(rank)[0]
    told = [str(first), *getattr(first, "__notes__", [])]
    assert any("'writer' is registered with ranks=0" in text and "barrier()" in text for text in told)


def test_alone_an_extension_of_rank_0_may_do_what_it_likes(counting_updater) -> None:
    gathered = []
    trainer = Trainer(counting_updater(), (1, "iteration"))
    trainer.extend(lambda t: gathered.append(t.group.gather("x")), "evaluator", ranks=0)
    trainer.run()
    assert gathered == [["x"]]
