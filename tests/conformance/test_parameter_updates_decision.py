"""Every row of the table that says where an update happens."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ostinato.kvstore.decision import LARGE_ARRAY, StoreTraits, decide

KINDS = {"ValueError": ValueError, "TypeError": TypeError, "AssertionError": AssertionError}
PLUG_INS = ("horovod", "byteps")

Outcome = tuple[str | None, bool | None, bool | None]
"""Kind of error, whether there is a store, where the update runs."""


def traits(argument: str) -> StoreTraits | None:
    """The store argument of a row. The priority transport is a distributed store that runs no optimizer; ``nccl`` is
    the store of the devices."""
    if argument == "null":
        return None
    name = argument.removesuffix("_instance").removesuffix("_p3")
    plug_in = name in PLUG_INS
    return StoreTraits(
        "device" if name == "nccl" else name,
        is_object=argument.endswith("_instance"),
        is_plug_in=plug_in,
        is_distributed="dist" in name,
        is_asynchronous="_async" in name,
        runs_optimizer=not plug_in and not argument.endswith("_p3"),
        takes_row_sparse=not plug_in,
    )


def outcome(row: dict[str, Any], environment: bool | None) -> Outcome:
    try:
        decision = decide(
            traits(row["store_argument"]),
            replicas=row["devices"],
            asked=row["user"],
            aggregates=row["aggregate_num_over_1"],
            sparsity=row["parameters"],
            largest=LARGE_ARRAY + 1 if row["array_over_16Mi_elements"] else LARGE_ARRAY,
            environment=environment,
        )
    except (ValueError, TypeError, AssertionError) as error:
        # A ContractError is a ValueError too; what the row asks for is the AssertionError.
        kind = "AssertionError" if isinstance(error, AssertionError) else None
        return kind or next(name for name, cls in KINDS.items() if isinstance(error, cls)), None, None
    return None, decision.has_store, decision.update_on_kvstore


def departure(row: dict[str, Any]) -> tuple[str, Outcome] | None:
    """Why, and to what, a row changes; None for a row that stays."""
    plug_in_by_name = row["store_argument"] in PLUG_INS and row["devices"] == 1
    if row["error"] == "E7":
        return ("Q12", (None, False, None)) if not plug_in_by_name else ("Q13", ("ValueError", None, None))
    if plug_in_by_name and row["error"] is None:
        if row["parameters"] == "sparse_grad":
            return "Q13", ("ValueError", None, None)
        return "Q13", (None, True, False)
    if row["user"] is None and row["aggregate_num_over_1"] and row["error"] in ("E2", "E4", "E9"):
        return "Q14", (None, True, True)
    return None


def test_every_row_is_decided_as_listed_or_departs_for_a_named_reason(golden: Path) -> None:
    table = json.loads((golden / "parameter-updates" / "update_on_kvstore.json").read_text())
    reasons: Counter[str] = Counter()
    for row in table["rows"]:
        listed: Outcome = (
            (table["errors"][row["error"]]["type"], None, None)
            if row["error"]
            else (None, row["store_created"] is not None, row["update_on_kvstore"])
        )
        reason, expected = departure(row) or ("as listed", listed)
        reasons[reason] += 1
        if reason != "as listed":
            assert expected != listed, row
        for environment in (True, False, None) if row["env"] == "any" else (bool(int(row["env"])),):
            assert outcome(row, environment) == expected, (row, environment, reason)
    assert reasons == {"as listed": 425, "Q12": 6, "Q13": 20, "Q14": 24}
    assert reasons.total() == len(table["rows"]) == 475


@pytest.mark.parametrize("name", ["dist_sync", "dist_device_sync"])
def test_a_synchronous_store_leaves_updates_to_the_replicas_unless_the_environment_asks(name: str) -> None:
    store = traits(name)
    assert decide(store, replicas=1).update_on_kvstore is False
    assert decide(store, replicas=1, environment=True).update_on_kvstore is True
