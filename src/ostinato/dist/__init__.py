"""One group interface for one process and for many."""

from ostinato.dist.group import Alone, Group
from ostinato.dist.opening import open_group
from ostinato.dist.placement import Placement, detect_placement

__all__ = ["Alone", "Group", "Placement", "detect_placement", "open_group"]
