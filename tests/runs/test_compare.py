from __future__ import annotations

from collections.abc import Callable

import torch

from ostinato.runs import GenerationContent, RunFolder
from ostinato.runs.compare import compare

MakeContent = Callable[..., GenerationContent]


def test_options_counters_and_weights_are_compared(run: RunFolder, make_content: MakeContent) -> None:
    run.commit(run.pack(make_content(10)))
    run.begin_session(start_iteration=10, config={"optimizer": {"rate": 3e-5}, "seed": 1})
    weights = dict(make_content(20).model)
    weights["encoder.bias"] = make_content(10).model["encoder.bias"]
    weights["new"] = torch.tensor([3.0, 4.0])
    run.commit(run.pack(make_content(20, model=weights)))
    found = compare(run.read(10), run.read(20))
    assert {(c.name, c.before, c.after) for c in found.options} == {("optimizer.rate", 1e-4, 3e-5), ("seed", "-", 1)}
    assert ("iteration", 10, 20) in {(c.name, c.before, c.after) for c in found.counters}
    assert found.equal_weights == 2  # the bias and the scale
    changes = {change.name: change for change in found.weights}
    assert changes.keys() == {"encoder.weight", "new"}
    assert (changes["new"].before, changes["new"].after, changes["new"].distance) == (None, 5.0, None)
    moved = (weights["encoder.weight"] - make_content(10).model["encoder.weight"]).double().norm()
    assert changes["encoder.weight"].distance is not None
    assert abs(changes["encoder.weight"].distance - moved) < 1e-6


def test_a_state_equals_itself(run: RunFolder, make_content: MakeContent) -> None:
    run.commit(run.pack(make_content(10)))
    found = compare(run.read(10), run.read(10))
    assert (found.counters, found.options, found.weights, found.equal_weights) == ((), (), (), 3)
