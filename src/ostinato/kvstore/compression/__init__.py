"""Gradient compression: one or two bits an element, and a residual that loses nothing.

``plain`` says what is meant, one element at a time; ``quantising`` and ``decoding`` do the same fast, ``one_pass`` away
from a CPU; ``residuals`` holds the state; ``exchange`` sums compressed gradients over ranks; ``ddp_hook`` brings it to
DistributedDataParallel.
"""

from ostinato.kvstore.compression.decoding import add_decoded, decode
from ostinato.kvstore.compression.plain import decode_plainly, quantise_plainly
from ostinato.kvstore.compression.quantising import is_finite, quantise
from ostinato.kvstore.compression.residuals import Compressor, residuals_for_rank
from ostinato.kvstore.compression.scheme import CompressionScheme

__all__ = [
    "CompressionScheme",
    "Compressor",
    "add_decoded",
    "decode",
    "decode_plainly",
    "is_finite",
    "quantise",
    "quantise_plainly",
    "residuals_for_rank",
]
