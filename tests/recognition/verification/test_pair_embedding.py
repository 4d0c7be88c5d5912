"""Verifying pairs with a model, alone and cut over ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from people_pictures import PatchMeans, person_picture, write_people
from rank_processes import run_on_ranks
from rank_threads import on_ranks

from ostinato.data.pictures import encode_png
from ostinato.errors import BadInputError, NonFiniteError
from ostinato.recognition.verification import PairSet, PairShare, embed_images, verify, verify_pairs
from ostinato.recognition.verification.pair_list import make_pair_list
from ostinato.recognition.verification.pictures import PictureBytes


def pair_set(pairs: int = 60) -> PairSet:
    """Pairs of pictures that are all different, as in a .bin file."""
    same = np.arange(pairs) % 2 == 0
    people = [(number, number if same[number] else number + 1000) for number in range(pairs)]
    pictures = [
        PictureBytes(f"picture {2 * number + side}", encode_png(person_picture(people[number][side], side)))
        for number in range(pairs)
        for side in (0, 1)
    ]
    return PairSet("some", pictures, np.arange(2 * pairs).reshape(-1, 2), same)


def error_of(call: Callable[[], object]) -> list[Exception]:
    """What it raises. Caught in the rank itself: a rank that ends with an error breaks off the others."""
    try:
        call()
    except (BadInputError, NonFiniteError) as error:
        return [error]
    return []


def test_it_is_what_embedding_and_verifying_give() -> None:
    pairs = pair_set()
    verification = verify_pairs(PatchMeans(), pairs, batch_size=10)
    embedded = embed_images(PatchMeans(), pairs.pictures, batch_size=10)
    assert verification.result.to_dict() == verify(embedded.plain, embedded.mirrored, pairs.same).to_dict()
    assert verification.pictures == 120


def test_a_picture_in_several_pairs_is_embedded_once(tmp_path: Path) -> None:
    pairs = make_pair_list(write_people(tmp_path, 6, 4), folds=3).pair_set("x")
    assert len(pairs.pictures) < 2 * len(pairs)
    model = PatchMeans()
    verification = verify_pairs(model, pairs)
    assert verification.pictures == verification.embedded == sum(model.batches) // 2 == len(pairs.pictures)


def test_ranks_embed_a_picture_that_several_of_them_need_each_for_itself(tmp_path: Path) -> None:
    pairs = make_pair_list(write_people(tmp_path, 6, 4)).pair_set("x")
    models = [PatchMeans() for _ in range(2)]
    found = on_ranks(2, lambda group: verify_pairs(models[group.rank], pairs, batch_size=4, group=group))
    assert {verification.pictures for verification in found} == {len(pairs.pictures)}
    assert {verification.embedded for verification in found} == {sum(sum(model.batches) // 2 for model in models)}
    assert found[0].embedded > found[0].pictures
    alone = verify_pairs(PatchMeans(), pairs, batch_size=4).result
    assert found[0].result.to_dict() == found[1].result.to_dict()
    assert found[0].result.accuracy.mean == pytest.approx(alone.accuracy.mean)


def test_part_of_a_set_has_the_pictures_of_its_pairs_alone(tmp_path: Path) -> None:
    pairs = make_pair_list(write_people(tmp_path, 6, 4), folds=3).pair_set("x")
    part = pairs.take(5, 9)
    assert part.names() == pairs.names()[10:18]
    assert sorted({picture.name for picture in part.pictures}) == sorted(set(part.names()))
    assert part.same.tolist() == pairs.same[5:9].tolist()
    assert len(pairs.take(3, 3).pictures) == 0


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_ranks_share_the_pictures_and_all_get_the_result_of_one_process(ranks: int) -> None:
    pairs = pair_set()
    alone = verify_pairs(PatchMeans(), pairs, batch_size=10)
    models = [PatchMeans() for _ in range(ranks)]
    found = on_ranks(ranks, lambda group: verify_pairs(models[group.rank], pairs, batch_size=10, group=group))
    for verification in found:
        assert verification.result.to_dict() == alone.result.to_dict()  # to the last bit
        assert verification.pictures == 120
    embedded = [sum(model.batches) // 2 for model in models]
    assert sum(embedded) == 120
    assert max(embedded) - min(embedded) <= 10


def test_more_ranks_than_batches_leave_some_without_work() -> None:
    pairs = replace(pair_set(12), folds=3)
    alone = verify_pairs(PatchMeans(), pairs, batch_size=16)
    for verification in on_ranks(4, lambda group: verify_pairs(PatchMeans(), pairs, batch_size=16, group=group)):
        assert verification.result.to_dict() == alone.result.to_dict()


def test_a_share_keeps_only_its_own_pictures() -> None:
    pairs = pair_set()
    shares = on_ranks(3, lambda group: PairShare.of(pairs, group, 10))
    kept = [picture.name for share in shares for picture in share.own.pictures]
    assert kept == [picture.name for picture in pairs.pictures]


def test_an_error_of_one_rank_is_raised_on_all() -> None:
    pairs = pair_set()
    broken = PictureBytes("the broken one", b"x")
    bad = PairSet("x", [*pairs.pictures[:100], broken, *pairs.pictures[101:]], pairs.pairs, pairs.same)
    results = on_ranks(3, lambda group: error_of(lambda: verify_pairs(PatchMeans(), bad, batch_size=10, group=group)))
    assert [type(error) for errors in results for error in errors] == [BadInputError] * 3
    assert all("the broken one cannot be used" in str(error) for errors in results for error in errors)


def test_embeddings_that_are_not_finite_are_named_on_all_ranks() -> None:
    class Failing(PatchMeans):
        def forward(self, pictures: torch.Tensor) -> torch.Tensor:
            rows = super().forward(pictures)
            rows[3] = torch.nan
            return rows

    results = on_ranks(
        2, lambda group: error_of(lambda: verify_pairs(Failing(), pair_set(), batch_size=40, group=group))
    )
    assert [type(error) for errors in results for error in errors] == [NonFiniteError] * 2
    named = {tuple(error.fields["names"]) for errors in results for error in errors}  # type: ignore[attr-defined]
    assert named == {("picture 3", "picture 43", "picture 83")}


def test_a_fold_that_cannot_be_judged_is_refused_before_anything_is_embedded() -> None:
    pairs = pair_set()
    model = PatchMeans()
    with pytest.raises(BadInputError, match="Fold 1 of 10"):
        verify_pairs(model, PairSet("x", pairs.pictures, pairs.pairs, np.ones(60, bool)))
    assert model.batches == []


def verified_on_real_ranks(group: Any) -> tuple[dict[str, Any], int]:
    """Called in a process for each rank."""
    model = PatchMeans()
    verification = verify_pairs(model, pair_set(), batch_size=10, group=group)
    return verification.result.to_dict(), sum(model.batches) // 2


def test_real_processes_agree(tmp_path: Path) -> None:
    alone = verify_pairs(PatchMeans(), pair_set(), batch_size=10).result.to_dict()
    results = run_on_ranks(verified_on_real_ranks, folder=tmp_path, ranks=2)
    assert [result.error for result in results] == [None, None]
    assert [result.value for result in results] == [(alone, 60), (alone, 60)]
