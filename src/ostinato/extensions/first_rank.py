"""Whether this process is the one that writes."""

from __future__ import annotations

from ostinato.dist import Alone, Group
from ostinato.loop import TrainerView


def is_first_rank(trainer: TrainerView) -> bool:
    """Whether this is rank 0, the only one that writes logs, plots and tables (WR-1, LG-1).

    A trainer that knows of no group trains alone.
    """
    group: Group = getattr(trainer, "group", None) or Alone()
    return group.rank == 0
