"""Options of the search for the learning rate."""

from __future__ import annotations

from typing import Literal

from ostinato.config.declaration import Options, option


class RateFinderOptions(Options):
    """How the learning rate is searched for, where that was asked for with --use-lr-finder or --find-lr-again."""

    lr_finder_iterations: int = option(
        1000,
        group="learning rate finder",
        ge=100,
        le=10000,
        step=100,
        help="""How many batches the search for the learning rate takes. The rate rises in equal ratios from 1e-10 to
        0.1 while the loss is watched; more batches make smaller and safer steps. 1000 suits most runs. Do not go far
        below it: with few batches the loss has no time to answer, and the rate that is found is far too high.""",
    )
    lr_finder_mode: Literal["set", "graph_and_set", "graph_and_exit"] = option(
        "set",
        group="learning rate finder",
        help="""What is done with the rate that was found. set: train with it. graph_and_set: also draw the curve of
        the search. graph_and_exit: draw the curve, keep the rate with the run, and leave, so that you can look first;
        the same command then trains with it. A table of the search is always written.""",
    )
    lr_finder_strength: Literal["default", "aggressive", "extreme"] = option(
        "default",
        group="learning rate finder",
        help="""How far below the rate with the lowest loss to stay. default takes a tenth of it, aggressive a fifth,
        extreme two fifths. The more daring ones learn faster and are more likely to end with a loss that is not a
        number. It acts in the search: a rate that was found before stays. Leave it at default unless you watch the
        run.""",
    )
