from __future__ import annotations

from ostinato.swap.models.layer_names import LayerNames


def test_blocks_are_numbered_from_zero_per_key() -> None:
    names = LayerNames()
    assert [names.block(key) for key in ("conv_128", "conv_256", "conv_128")] == [
        "conv_128_0",
        "conv_256_0",
        "conv_128_1",
    ]


def test_the_first_unnamed_layer_has_no_number() -> None:
    names = LayerNames()
    assert [names.layer("dense") for _ in range(3)] == ["dense", "dense_1", "dense_2"]
