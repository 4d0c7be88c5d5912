"""One group interface for one process and for many."""

from ostinato.dist.batch_size import DeviceBatch, batch_size_for_devices
from ostinato.dist.group import Alone, Group
from ostinato.dist.opening import open_group
from ostinato.dist.placement import Placement, detect_placement
from ostinato.dist.refusing_group import RefusingGroup

__all__ = [
    "Alone",
    "DeviceBatch",
    "Group",
    "Placement",
    "RefusingGroup",
    "batch_size_for_devices",
    "detect_placement",
    "open_group",
]
