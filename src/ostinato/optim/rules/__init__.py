"""Update rules by name, with shared settings, counts, master copies and row-sparse gradients.

One file holds one rule: its equation, the plain code that follows it line by line, and a faster form with the same
results to rounding.
"""

from __future__ import annotations

from ostinato.optim.rules.optimizer import Gradient, Index, Optimizer, Schedule, State
from ostinato.optim.rules.registry import create, register, registered_names
from ostinato.optim.rules.sgd import SGD
from ostinato.optim.rules.step import Step
from ostinato.optim.rules.updater import Updater, pack_state, unpack_state

__all__ = [
    "SGD",
    "Gradient",
    "Index",
    "Optimizer",
    "Schedule",
    "State",
    "Step",
    "Updater",
    "create",
    "pack_state",
    "register",
    "registered_names",
    "unpack_state",
]
