"""One group interface for one process and for many."""

from ostinato.dist.group import Alone, Group
from ostinato.dist.opening import open_group
from ostinato.dist.placement import Placement, detect_placement
from ostinato.dist.refusing_group import RefusingGroup

__all__ = ["Alone", "Group", "Placement", "RefusingGroup", "detect_placement", "open_group"]
