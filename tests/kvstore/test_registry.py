from __future__ import annotations

import pytest
from kvstore_stand_ins import PlugInStore

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore import LocalStore, create, register
from ostinato.kvstore.registry import canonical_name, is_plug_in


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("local", "local"),
        ("LOCAL", "local"),
        ("local_update_cpu", "local"),
        ("local_allreduce_device", "device"),
        ("Device", "device"),
        ("nccl", "device"),
        ("dist", "dist_sync"),
        ("Dist_Sync", "dist_sync"),
        ("dist_sync_device", "dist_device_sync"),
        ("dist_device_sync", "dist_device_sync"),
        ("dist_async", "dist_async"),
        ("dist_device_async", "dist_async"),
    ],
)
def test_names_are_lower_cased_and_older_ones_understood(name: str, expected: str) -> None:
    assert canonical_name(name) == expected


def test_a_store_knows_the_name_it_was_made_by() -> None:
    store = create("DEVICE")
    assert isinstance(store, LocalStore)
    assert (store.type, store.rank, store.num_workers) == ("device", 0, 1)
    assert not store.is_distributed
    assert not store.is_asynchronous


def test_a_misspelt_name_is_no_local_store() -> None:
    """Upstream gives a plain local store for any text it does not know."""
    with pytest.raises(ArgumentValueError, match="'device'"):
        create("devise")
    with pytest.raises(ArgumentTypeError, match="is text, not 3"):
        create(3)  # type: ignore[arg-type]


def test_a_plug_in_is_found_by_its_lower_cased_class_name_first(clean_registry: None) -> None:
    register(PlugInStore)
    assert isinstance(create("plugINstore"), PlugInStore)
    assert is_plug_in("PlugInStore")
    assert not is_plug_in("local")
    with pytest.warns(UserWarning, match="'local' was taken"):
        register(PlugInStore, "local")
    assert isinstance(create("local"), PlugInStore)


def test_only_stores_are_registered() -> None:
    with pytest.raises(ArgumentTypeError, match="derived from Store"):
        register(dict)  # type: ignore[type-var]
