"""State that every rank has for itself, as :mod:`ostinato.dist.per_rank` describes it, within a generation."""

from ostinato.dist.per_rank import PerRank, RankStates

__all__ = ["PerRank", "RankStates"]
