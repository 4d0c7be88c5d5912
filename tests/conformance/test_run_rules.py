"""Rules of saving against the golden numbers of the system they come from, where those are right."""

from __future__ import annotations

import json
from pathlib import Path

from ostinato.runs import BestBar, batch_size_for_devices, judge

FAULTS = {"save_without_any_batch_in_between", "nan_in_the_very_first_interval"}
"""Sequences that record a fault: a save without a batch drops the bar to 0; one NaN stops all backups for ever."""


def test_batch_sizes_on_several_devices(golden: Path) -> None:
    rows = json.loads((golden / "run-state-and-config/trainer/distributed_batch_sizes.json").read_text())
    assert rows
    for row in rows:
        found = batch_size_for_devices(row["requested"], row["gpus"])
        better = None if row["suggestions"] is None else tuple(row["suggestions"])
        assert (found.size, found.raised, found.better) == (row["result"], row["raised_to_gpu_count"], better), row


def test_the_best_average(golden: Path) -> None:
    sequences = json.loads((golden / "run-state-and-config/model-folder/backup_rule.json").read_text())
    assert {sequence["id"] for sequence in sequences} > FAULTS
    for sequence in sequences:
        if sequence["id"] in FAULTS:
            continue
        bar = BestBar(sequence["lowest_at_start"] or None)
        for save in sequence["saves"]:
            losses = [float(loss) for loss in save["losses"]]
            is_first = bar.lowest is None
            bar, is_best = judge(bar, sum(losses) / len(losses), len(losses), "")
            # The first average of all sets the bar there without a backup; here it is the best so far.
            assert is_best == (save["backed_up"] or is_first), sequence["id"]
            assert bar.lowest is not None
            assert abs(bar.lowest - float(save["lowest_after"])) < 1e-12
