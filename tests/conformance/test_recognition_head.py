"""Margins, the sharded and sampled softmax, the choice of classes and the updates of centres, against golden numbers.

Upstream's faults are documentation there and are passed over: margins that are ignored or refused, phantom classes of
padded shards (their loss is reproduced with the phantoms given as classes), and positives that are cut off.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rank_processes import run_on_ranks
from torch import Tensor

from ostinato.kvstore.collective_calls import Collectives
from ostinato.recognition.centre_rule import CentreRule
from ostinato.recognition.class_centres import ClassCentres
from ostinato.recognition.class_partition import class_range
from ostinato.recognition.collected_gradient import CollectedGradient, StepGradient
from ostinato.recognition.margin_softmax import Pass, Step, margin_softmax_loss
from ostinato.recognition.margins import Margin, arcface, cosface, margin_logits
from ostinato.recognition.negative_sampling import NegativeSampler, number_sampled, positions_of, positives_of

FULL_CASES = [
    "cosface_s64",
    "cosface_s16",
    "arcface_straight_through_s64",
    "arcface_straight_through_s16",
    "arcface_true_gradient_s16",
    "cosface_filter04_s16",
]


@functools.cache
def read(golden: Path, name: str) -> Any:
    return json.loads((golden / "recognition" / name).read_text())


def doubles(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def case_named(cases: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(case for case in cases if case["name"] == name)


# --- margins ---------------------------------------------------------------------------------------------------------


def margin_of(case: dict[str, Any]) -> Margin:
    kind = {"gradient": "straight_through"} if case["cls"] != "exact" else {"gradient": "exact"}
    others: dict[str, Any] = {**kind, "interclass_threshold": case.get("filter", 0)}
    wrap = case.get("wrap", "none")
    others["wrap"] = "linear" if wrap == "linear_past_pi" else wrap
    if case["cls"] == "arcface":
        return arcface(case["margin"], case["s"], **others)
    if case["cls"] == "cosface":
        return cosface(case["margin"], case["s"], **others)
    m1, m2, m3 = (case.get(name, default) for name, default in (("m1", 1.0), ("m2", 0.0), ("m3", 0.0)))
    if case["cls"] == "combined" and m3 > 0:
        m1, m2 = 1.0, 0.0  # upstream ignores them there, and its numbers are those of the third margin alone
    return Margin(case["s"], m1, m2, m3, **others)


def test_margins_give_logits_and_gradients(golden: Path) -> None:
    data = read(golden, "margins/margin_cases.json")
    labels = torch.tensor(data["labels"])
    upstream = doubles(data["upstream_gradient"])
    tried = 0
    for case in data["cases"]:
        if "error" in case:  # refused upstream; here every combination has a meaning
            continue
        cosines = doubles(data["cosine"]).requires_grad_()
        logits = margin_logits(cosines, labels, margin_of(case))
        torch.testing.assert_close(logits, doubles(case["logits"]), rtol=1e-10, atol=1e-11, msg=case["name"])
        if "grad_wrt_cosine" in case:
            logits.backward(upstream)
            expected = doubles(case["grad_wrt_cosine"])
        else:
            logits.sum().backward()
            expected = doubles([[float(str(number)) for number in row] for row in case["elementwise_derivative"]])
        assert cosines.grad is not None
        bounded = torch.isfinite(expected)
        torch.testing.assert_close(cosines.grad[bounded], expected[bounded], rtol=1e-10, atol=1e-11, msg=case["name"])
        unbounded = cosines.grad[~bounded]
        if case["name"] == "exact_cosface":  # infinite there only because it goes through the arccosine
            assert (unbounded == case["s"]).all()
        else:  # large, of the same sign, and finite
            assert torch.isfinite(unbounded).all()
            assert (unbounded * expected[~bounded].sign() > 1e6).all(), case["name"]
        tried += 1
    assert tried == len(data["cases"]) - 3


@pytest.mark.parametrize("name", ["arcface", "cosface", "m2_and_m3", "all_three", "m1_only"])
def test_all_margins_at_once_through_normalisation(golden: Path, name: str) -> None:
    data = read(golden, "margins/combined_margin_true_gradient.json")
    case = case_named(data["cases"], name)
    margin = Margin(case["s"], case["m1"], case["m2"], case["m3"])
    features, weight = doubles(data["data"]).requires_grad_(), doubles(data["weight"]).requires_grad_()

    def unit(rows: Tensor) -> Tensor:  # that system's own way to divide by the length
        return rows / torch.sqrt((rows * rows).sum(dim=1, keepdim=True) + 1e-10)

    logits = margin_logits(unit(features) @ unit(weight).t(), torch.tensor(data["labels"]), margin)
    logits.backward(doubles(data["upstream_gradient"]))
    for found, expected in (
        (logits, case["logits"]),
        (features.grad, case["grad_data"]),
        (weight.grad, case["grad_weight"]),
    ):
        assert found is not None
        wanted = doubles(expected)
        assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max()


# --- the softmax -----------------------------------------------------------------------------------------------------


def loss_margin(case: dict[str, Any]) -> Margin:
    others: dict[str, Any] = {
        "gradient": "exact" if case.get("gradient") == "true" else "straight_through",
        "interclass_threshold": case.get("filter", 0),
    }
    return (arcface if case["margin"] == "arcface" else cosface)(case["m"], case["s"], **others)


def centres_with(rows: Tensor, first: int) -> ClassCentres:
    rule = CentreRule(momentum=0.0, weight_decay=0.0)
    centres = ClassCentres(first, first + len(rows), rows.shape[1], rule, dtype=torch.float64)
    centres.to_overwrite()["weight"].copy_(rows)
    return centres


def one_pass(
    group: Any, full: dict[str, Any], case: dict[str, Any], weights: list[list[float]], indices: list[list[int]] | None
) -> dict[str, Any]:
    """What a rank finds in a step with given classes: loss, its embeddings' gradient, its centres' gradient."""
    import torch.distributed as dist

    embeddings, labels, rows = doubles(full["embeddings"]), np.array(full["labels"]), doubles(weights)
    size, rank = group.size, group.rank
    each = len(labels) // size
    first, last = class_range(len(rows), rank, size)
    chosen = None if indices is None else np.array(indices[rank], dtype=np.int64)
    places = positions_of(labels, first, chosen, last - first)
    (samples,) = (places >= 0).nonzero()
    step = Step(
        (each,) * size,
        None if chosen is None else torch.from_numpy(chosen),
        torch.from_numpy(samples),
        torch.from_numpy(places[samples]),
    )
    centres = centres_with(rows[first:last], first)
    mine = embeddings[rank * each : (rank + 1) * each].clone().requires_grad_()
    passes: list[Pass] = []
    collectives = Collectives(dist.group.WORLD if size > 1 else None)
    loss = margin_softmax_loss(mine, centres, loss_margin(case), step, collectives, passes.append)
    loss.backward()
    before = centres.weight.clone()
    centres.step([passes[0].gradient], 1.0)
    return {
        "loss": loss.item(),
        "grad_embedding": mine.grad,
        "grad_weight": before - centres.weight,
        "remapped": places.tolist(),
    }


def ranks_in_one_case(
    group: Any, full: dict[str, Any], cases: list[tuple[dict[str, Any], list[list[float]], list[list[int]] | None]]
) -> list[dict[str, Any]]:
    return [one_pass(group, full, case, weights, indices) for case, weights, indices in cases]


def indices_of(case: dict[str, Any]) -> list[list[int]]:
    """Each rank's classes; one case, of the system that drops positives, has one rank and says no more."""
    return [rank["index_local"] for rank in case["ranks"]] if "ranks" in case else [case["global_class_ids"]]


def compare(results: list[dict[str, Any]], case: dict[str, Any]) -> None:
    for result in results:
        assert math.isclose(result["loss"], case["loss"], rel_tol=1e-12), case.get("name")
    for name in ("grad_embedding", "grad_weight"):
        found = torch.cat([result[name] for result in results])
        torch.testing.assert_close(found, doubles(case[name]), rtol=1e-10, atol=1e-12, msg=case.get("name"))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_full_and_sampled_softmax_on_several_ranks(golden: Path, tmp_path: Path, ranks: int) -> None:
    full = read(golden, "partial_fc/full_softmax.json")
    sampled = [case for case in read(golden, "partial_fc/sampled_softmax.json")["cases"] if case["K"] == ranks]
    assert [case["name"] for case in full["cases"]] == FULL_CASES
    assert len(sampled) >= 4
    for shard in full["shards"][str(ranks)]:
        first, last = class_range(full["num_classes"], shard["rank"], ranks)
        assert (first, last - first) == (shard["start"], shard["size"])
    jobs = [(case, full["weights"], None) for case in full["cases"]]
    jobs += [(case, full["weights"], indices_of(case)) for case in sampled]
    results = run_on_ranks(ranks_in_one_case, full, jobs, folder=tmp_path, ranks=ranks)
    for result in results:
        assert result.error is None, result.output
    for number, (case, _, _) in enumerate(jobs):
        by_rank = [result.value[number] for result in results]
        compare(by_rank, case)
        if "ranks" in case:
            assert [one["remapped"] for one in by_rank] == [rank["remapped_labels"] for rank in case["ranks"]]


def test_phantom_classes_are_what_makes_padded_shards_differ(golden: Path) -> None:
    from ostinato.dist import Alone

    full, padded = read(golden, "partial_fc/full_softmax.json"), read(golden, "partial_fc/padded_shards.json")
    found = one_pass(Alone(), full, padded, full["weights"] + padded["extra_weights"], None)
    compare([found], padded)


# --- which classes take part -----------------------------------------------------------------------------------------


def test_positives_and_numbers_of_sampled_classes(golden: Path) -> None:
    for case in read(golden, "partial_fc/sampled_softmax.json")["cases"]:
        labels = np.array(read(golden, "partial_fc/full_softmax.json")["labels"])
        for rank in case.get("ranks", ()):
            first, size = rank["start"], rank["size"]
            positives = positives_of(labels, first, first + size)
            assert positives.tolist() == rank["positive_local"]
            count = number_sampled(case["sample_rate"], size)
            assert count == rank["num_sample"]
            chosen = NegativeSampler(size, 0, rank["rank"]).sample(positives, count, 0)
            assert len(chosen) == len(rank["index_local"])
            assert set(positives.tolist()) <= set(chosen.tolist())


def test_samplers_keep_all_positives_and_find_labels_again(golden: Path) -> None:
    cases = read(golden, "samplers/sampler_cases.json")
    for case in cases["topk_sampler"]:
        labels = np.array(case["global_labels"])
        first, size = case["class_start"], case["num_local"]
        positives = positives_of(labels, first, first + size)
        chosen = NegativeSampler(size, 1, 0).sample(positives, case["num_sample"], 0)
        assert len(chosen) == len(case["index"])
        if len(positives) >= case["num_sample"]:  # nothing is left to chance
            assert chosen.tolist() == case["index"]
        found = positions_of(labels, first, np.array(case["index"], dtype=np.int64), size)
        assert found.tolist() == case["remapped_labels"]
    for case in cases["choice_sampler"]:
        labels, size = np.array(case["global_labels"]), case["num_local"]
        first = case["rank"] * size
        positives = positives_of(labels, first, first + size)
        chosen = NegativeSampler(size, case["seed"], case["rank"]).sample(positives, case["num_sample"], 0)
        assert set(positives.tolist()) <= set(chosen.tolist())
        if case["name"] in ("exact", "all"):
            assert chosen.tolist() == case["index_sorted"]
        if case["name"] != "truncated":  # positives are cut off there
            assert len(chosen) == len(case["index_sorted"])


# --- updates ---------------------------------------------------------------------------------------------------------


class GivenGradient(StepGradient):
    """A gradient of the centres that is given, and not found through the division by their length."""

    def of_rows(self, weight: Tensor, start: int, end: int, out: Tensor) -> None:
        out.copy_((self._parts[0].slopes @ self._samples[0])[start:end])


@pytest.mark.parametrize(
    ("kind", "form", "name"),
    [
        ("dense_lazy", "plain", "dense_sgd"),
        ("frozen", "plain", "frozen_rows_plain_buffer"),
        ("frozen", "rate_inside", "frozen_rows_lr_in_buffer"),
    ],
)
def test_updates_of_centres(golden: Path, kind: Any, form: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.recognition.class_centres.StepGradient", GivenGradient)
    data = read(golden, "partial_fc/update_semantics.json")
    rule = CentreRule("sgd", kind, data["momentum"], data["weight_decay"], form)
    start = doubles(data["initial_weight"])
    centres = ClassCentres(0, len(start), start.shape[1], rule, dtype=torch.float64)
    centres.to_overwrite()["weight"].copy_(start)
    after_each = data[name].get("weight_after_each_step")
    for number, rate in enumerate(data["learning_rates"]):
        rows = torch.tensor(data["row_indices"][number])
        gradient = doubles(data["gradients"][number])
        width = gradient.shape[1]
        given = CollectedGradient(
            rows, gradient, None, torch.ones(len(rows)), torch.eye(width, dtype=torch.float64), torch.ones(())
        )
        centres.bring_up_to_date(rows)
        if after_each is not None and number:  # the forward pass reads the rows that are caught up
            before = doubles(after_each[number - 1])[rows]
            torch.testing.assert_close(centres.weight[rows], before, rtol=1e-12, atol=1e-12)
        centres.step([given], rate)
    centres.bring_up_to_date()
    torch.testing.assert_close(centres.weight, doubles(data[name]["weight"]), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(centres.tables["momentum"], doubles(data[name]["buffer"]), rtol=1e-12, atol=1e-12)
