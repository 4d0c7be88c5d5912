"""One direction of a trained model: the numbers of the whole model, and no more of it than it takes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
import tiny_model
import torch

from ostinato.config import SwapOptions, read_options
from ostinato.errors import BadInputError, DamagedRunError
from ostinato.runs import GenerationContent, RunFolder
from ostinato.swap import trained_model
from ostinato.swap.models import SwapModel
from ostinato.swap.trained_model import Direction, load_trained_model

Trained = Callable[..., tuple[Path, SwapModel]]


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trained:
    """Makes a run that holds a tiny model of given sides at the iterations 1 and 2."""
    monkeypatch.setattr(trained_model, "build_swap_model", tiny_model.build_tiny_model)

    def make(sides: tuple[str, ...], *overrides: str) -> tuple[Path, SwapModel]:
        options = read_options(SwapOptions, None, ["seed=5", *overrides]).options
        model = tiny_model.build_tiny_model(options, sides).eval()
        sketches = {"sketches": {side: [f"{side}.png"] for side in sides}}
        path = tmp_path / "-".join(sides)
        with RunFolder(path).open(recipe="swap") as run:
            run.begin_session(start_iteration=0, batch_size=2, config=options.model_dump(mode="json"))
            for iteration in (1, 2):
                content = GenerationContent(
                    iteration=iteration,
                    model=model.state_dict(),
                    optimizer={"state": {"moment": torch.ones(1000)}},
                    state={"trainer": {"extensions": {"face_folders": sketches}}},
                )
                run.commit(run.pack(content))
        return path, model

    return make


@pytest.mark.parametrize("sides", [("a",), ("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d", "e")])
def test_every_direction_gives_the_numbers_of_the_whole_model(trained: Trained, sides: tuple[str, ...]) -> None:
    path, whole = trained(sides)
    faces = torch.rand(2, 3, tiny_model.SIZE, tiny_model.SIZE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        features = whole.encode(faces)
    for source, target in list(permutations(sides, 2)) or [("a", "a")]:
        found = load_trained_model(path, Direction.parse(f"{source}_to_{target}"))
        assert not found.model.training
        with torch.no_grad():
            expected = whole.decode(features, target)
        assert all(one.equal(other) for one, other in zip(found.model(faces), expected, strict=True))


def test_only_the_parts_of_the_direction_are_read_and_kept(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    path, whole = trained(("a", "b", "c"))
    (path / "generations/00000002/optimizer.safetensors").unlink()
    kept: set[str] = set()
    read = trained_model.read_weights

    def watched(*arguments: object) -> object:
        loaded = read(*arguments)  # type: ignore[arg-type]
        kept.update(loaded.model)
        assert loaded.optimizer is None
        return loaded

    monkeypatch.setattr(trained_model, "read_weights", watched)
    found = load_trained_model(path, Direction("a", "b"))
    assert found.iteration == 2
    names = set(whole.state_dict())
    assert kept == {name for name in names if name.startswith(("encoder.", "decoder_b."))}
    assert not any(parameter.is_meta for parameter in found.model.parameters())


def test_a_weight_that_changed_is_noticed_also_where_it_is_not_needed(trained: Trained) -> None:
    path, _ = trained(("a", "b"))
    file = path / "generations/00000002/model.safetensors"
    content = bytearray(file.read_bytes())
    content[content.index(b"}", 8) + 400] ^= 1
    file.write_bytes(bytes(content))
    assert load_trained_model(path, Direction("a", "b")).iteration == 1
    with pytest.raises(DamagedRunError, match="00000002"):
        load_trained_model(path, Direction("a", "b"), generation="2")


def test_a_learned_mask_comes_along(trained: Trained) -> None:
    path, _ = trained(("a", "b"), "mask.learn_mask=true")
    face, mask = load_trained_model(path, Direction("b", "a")).model(torch.zeros(1, 3, 64, 64))
    assert (face.shape[1], mask.shape[1]) == (3, 1)


def test_an_unknown_side_is_refused_with_the_known_ones(trained: Trained) -> None:
    path, _ = trained(("a", "b"))
    with pytest.raises(BadInputError, match="no side c") as caught:
        load_trained_model(path, Direction("a", "c"))
    assert "a, b" in str(caught.value)
