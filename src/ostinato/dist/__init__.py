"""One group interface for one process and for many."""

from ostinato.dist.group import Alone, Group

__all__ = ["Alone", "Group"]
