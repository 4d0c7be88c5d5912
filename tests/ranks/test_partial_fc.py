"""The head of face recognition on real ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import RankResult, run_on_ranks
from torch import Tensor

from ostinato.dist import Alone
from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.recognition import class_centres
from ostinato.recognition.margins import Margin, arcface, combined, cosface
from ostinato.recognition.partial_fc import PartialFC
from ostinato.runs import GenerationContent, RankedStore, RunFolder
from ostinato.runs.atomic import Files

CLASSES, WIDTH, BATCH = 37, 8, 12
CUTS: dict[int, list[list[int]]] = {
    # Where the batch is cut, in each of the steps: unevenly, some ranks without a sample.
    1: [[], [], []],
    2: [[7], [0], [6]],
    3: [[4, 4], [0, 12], [5, 9]],
    4: [[5, 5, 9], [3, 6, 9], [0, 0, 0]],
}
WAYS: dict[str, tuple[Margin, dict[str, Any]]] = {
    "arcface": (arcface(0.5, 16.0), {}),
    "sub-centres, filtered": (cosface(0.2, 16.0, interclass_threshold=0.3), {"sub_centres": 2}),
    "positives only": (combined(1.1, 0.3, 0.1, 16.0), {"sampling_rate": 0.0}),
    "positives only, lazy": (arcface(0.5, 16.0), {"sampling_rate": 0.0, "update": "dense_lazy"}),
    "adamw": (arcface(0.5, 16.0), {"sampling_rate": 0.0, "optimizer": "adamw"}),
}
"""Without chance, so that the number of ranks must not matter."""


def batch(number: int, size: int = BATCH) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    embeddings = torch.randn((size, WIDTH), generator=generator, dtype=torch.float64)
    return embeddings, torch.randint(CLASSES, (size,), generator=generator)


def head_of(group: Any, margin: Margin | None = None, classes: int = CLASSES, **options: Any) -> PartialFC:
    return PartialFC(classes, WIDTH, margin or arcface(0.5, 16.0), group=group, dtype=torch.float64, **options)


def take_step(head: PartialFC, embeddings: Tensor, labels: Tensor) -> tuple[float, Tensor | None]:
    embeddings = embeddings.clone().requires_grad_()
    loss = head(embeddings, labels)
    loss.backward()
    head.step(0.1)
    return loss.item(), embeddings.grad


def values(results: list[RankResult]) -> list[Any]:
    for result in results:
        assert result.error is None, result.output
    return [result.value for result in results]


# --- the same as on one ----------------------------------------------------------------------------------------------


def trained_in_every_way(group: Any) -> dict[str, Any]:
    class_centres._ELEMENTS_PER_CORE = 5 * WIDTH  # several blocks
    found = {}
    for name, (margin, options) in WAYS.items():
        head = head_of(group, margin, **options)
        losses, gradients = [], []
        for number, cuts in enumerate(CUTS[group.size]):
            embeddings, labels = batch(number)
            borders = [0, *cuts, BATCH]
            mine = slice(borders[group.rank], borders[group.rank + 1])
            loss, gradient = take_step(head, embeddings[mine], labels[mine])
            losses.append(loss)
            gradients.append(gradient)
        found[name] = (losses, gradients, head.weight, (head.first_class, head.last_class))
    # With chance, ranks choose classes of their own.
    sampled = head_of(group, classes=50 * CLASSES, sampling_rate=0.5)
    sampled(*batch(0, 0)).backward()
    chosen = sampled._passes[0].gradient.classes
    return {"ways": found, "chosen": None if chosen is None else chosen.tolist()}


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_any_number_of_ranks_computes_what_one_does(tmp_path: Path, ranks: int) -> None:
    blocks = class_centres._ELEMENTS_PER_CORE
    try:
        alone = trained_in_every_way(Alone())["ways"]
    finally:
        class_centres._ELEMENTS_PER_CORE = blocks
    by_rank = values(run_on_ranks(trained_in_every_way, folder=tmp_path, ranks=ranks))
    for name in WAYS:
        losses, gradients, weight, _ = alone[name]
        mine = [value["ways"][name] for value in by_rank]
        for one in mine:
            assert one[0] == mine[0][0], "the loss is the same on every rank"
            assert one[0] == pytest.approx(losses, rel=1e-12), name
        for step in range(len(losses)):
            together = torch.cat([one[1][step] for one in mine])
            torch.testing.assert_close(together, gradients[step], rtol=1e-10, atol=1e-13, msg=name)
        together = torch.cat([one[2] for one in mine])
        torch.testing.assert_close(together, weight, rtol=1e-9, atol=1e-11, msg=name)
        assert [one[3][1] for one in mine[:-1]] == [one[3][0] for one in mine[1:]]
    choices = [tuple(value["chosen"]) for value in by_rank]
    assert len(set(choices)) == ranks


# --- what one rank does wrong ----------------------------------------------------------------------------------------


def meets_trouble(group: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    head = head_of(group, sampling_rate=0.5)
    embeddings, labels = batch(group.rank, 4)

    def refused(name: str, *arguments: Any, **keywords: Any) -> None:
        with pytest.raises((ArgumentValueError, ArgumentTypeError)) as caught:
            head(*arguments, **keywords)
        found[name] = (type(caught.value), str(caught.value), caught.value.fields.get("rank"))

    refused("label", embeddings, labels + (CLASSES if group.rank == 1 else 0))
    refused("type", embeddings, labels.double() if group.rank == 2 else labels)
    refused("shape", embeddings[:, :3] if group.rank == 0 else embeddings, labels)
    refused("rate", embeddings, labels, sampling_rate=2.0 if group.rank == 1 else 0.5)
    found["draws"] = head.draws
    found["goes on"] = take_step(head, embeddings, labels)[0]
    if group.rank == 1:
        embeddings[0, 0] = float("nan")
    loss = head(embeddings, labels)
    loss.backward()
    found["not finite"] = (loss.item(), head.gradients_are_finite())

    few = head_of(group, classes=2, sampling_rate=0.0)  # rank 2 has no class
    found["few"] = [take_step(few, batch(number, 4)[0], labels % 2)[0] for number in range(2)]
    nothing = head_of(group)
    found["nothing"] = take_step(nothing, *batch(0, 0))[0]
    return found


def test_what_is_wrong_on_one_rank_stops_all_alike(tmp_path: Path) -> None:
    by_rank = values(run_on_ranks(meets_trouble, folder=tmp_path, ranks=3))
    for rank, found in enumerate(by_rank):
        for name, guilty, says in (
            ("label", 1, "classes 0 to 36"),
            ("type", 2, "float64"),
            ("shape", 0, "(4, 3)"),
            ("rate", 1, "sampling rate is 2.0"),
        ):
            kind, said, named = found[name]
            assert said.startswith(f"Rank {guilty}: "), said
            assert says in said
            assert named == guilty
            assert (kind is ArgumentTypeError) == (name == "type" and rank == guilty)
        assert found["draws"] == 0
        assert found["goes on"] == by_rank[0]["goes on"]
        loss, finite = found["not finite"]
        assert loss != loss
        assert not finite
        assert found["few"] == by_rank[0]["few"]
        assert found["nothing"] == 0.0


# --- what is sent ----------------------------------------------------------------------------------------------------


def hands_over(group: Any) -> list[dict[str, int]]:
    found = []
    for classes in (CLASSES, 20 * CLASSES):
        head = head_of(group, classes=classes, sampling_rate=0.5)
        take_step(head, *batch(group.rank, 6))
        found.append(dict(head._opened().handed_over))
    return found


def test_what_is_exchanged_does_not_grow_with_the_classes(tmp_path: Path) -> None:
    number = 2 * 6
    for few, many in values(run_on_ranks(hands_over, folder=tmp_path, ranks=2)):
        assert few == many
        # Labels and embeddings; the largest logits, and the two sums; the embeddings' gradient.
        assert few == {
            "all_gather": 6 * 8 + 6 * WIDTH * 8,
            "all_reduce": number * 8 + 2 * number * 8,
            "reduce_scatter": number * WIDTH * 8,
        }


# --- other numbers of ranks ------------------------------------------------------------------------------------------


def run_store(folder: Path, group: Any) -> RankedStore:
    return RankedStore(RunFolder(folder, files=Files(attempts=2, first_wait=0.0)), group, patience=120.0)


def trains_and_saves(group: Any, folder: Path, options: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    store = run_store(folder, group)
    store.open()
    store.load()
    head = head_of(group, sampling_rate=0.4, **options)
    for number in range(4):
        take_step(head, *batch(10 * number + group.rank, 5))
    store.submit(GenerationContent(4, {"backbone": torch.ones(1)}, None, {"updater": {"head": head.state_dict()}}))
    (result,) = store.flush()
    assert result.error is None
    store.close()
    return head.weight.clone(), {name: table.clone() for name, table in head.centres.remembered().items()}


def loads_and_goes_on(
    group: Any, folder: Path, options: dict[str, Any], classes: int
) -> tuple[Tensor, dict[str, Tensor], Tensor, dict[str, Tensor], list[float]]:
    store = run_store(folder, group)
    store.open()
    loaded = store.load()
    assert loaded is not None
    head = head_of(group, sampling_rate=0.4, seed=5, **options)
    head.load_state_dict(loaded.state["updater"]["head"])
    store.close()
    weight = head.weight.clone()
    tables = {name: table.clone() for name, table in head.centres.remembered().items()}
    head.grow(classes)
    grown = head.weight.clone()
    memory = {name: table.clone() for name, table in head.centres.remembered().items()}
    losses = [take_step(head, *batch(group.rank, 5))[0] for _ in range(2)]
    return weight, tables, grown, memory, losses


@pytest.mark.parametrize(
    "options",
    [{"update": "dense_lazy", "sub_centres": 2}, {"optimizer": "adamw"}],
    ids=["sgd, dense_lazy, sub-centres", "adamw"],
)
def test_centres_go_on_with_other_numbers_of_ranks_and_grow_there(tmp_path: Path, options: dict[str, Any]) -> None:
    saved = values(run_on_ranks(trains_and_saves, tmp_path / "run", options, folder=tmp_path, ranks=2))
    weight = torch.cat([one[0] for one in saved])
    tables = {name: torch.cat([one[1][name] for one in saved]) for name in saved[0][1]}
    classes = 2 * CLASSES + 1
    fresh = head_of(Alone(), classes=classes, seed=5, **options).weight
    for ranks in (1, 3):
        by_rank = values(
            run_on_ranks(loads_and_goes_on, tmp_path / "run", options, classes, folder=tmp_path, ranks=ranks)
        )
        assert torch.equal(torch.cat([one[0] for one in by_rank]), weight)
        grown = torch.cat([one[2] for one in by_rank])
        assert torch.equal(grown[: len(weight)], weight)
        assert torch.equal(grown[len(weight) :], fresh[len(weight) :])
        for name, table in tables.items():
            assert torch.equal(torch.cat([one[1][name] for one in by_rank]), table)
            memory = torch.cat([one[3][name] for one in by_rank])
            assert torch.equal(memory[: len(table)], table)
            assert not memory[len(table) :].any()
        assert all(one[4] == by_rank[0][4] for one in by_rank)
