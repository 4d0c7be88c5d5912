"""The names that Faceswap gives to layers, so that weights can be matched by name."""

from __future__ import annotations

from collections import Counter


class LayerNames:
    """Counts layers through the construction of one model.

    Two kinds of names occur. Blocks are numbered from 0 per key (``conv_128_0``, ``conv_128_1``); single layers without
    a name of their own are ``dense``, ``dense_1``, ``dense_2``. Both counts run through the whole model, encoder first,
    then side by side.
    """

    def __init__(self) -> None:
        self._blocks: Counter[str] = Counter()
        self._layers: Counter[str] = Counter()

    def block(self, key: str) -> str:
        """The next name of a block: ``key_0``, ``key_1``, ..."""
        number = self._blocks[key]
        self._blocks[key] += 1
        return f"{key}_{number}"

    def layer(self, kind: str) -> str:
        """The next name of a layer that nobody named: ``kind``, ``kind_1``, ..."""
        number = self._layers[kind]
        self._layers[kind] += 1
        return f"{kind}_{number}" if number else kind
