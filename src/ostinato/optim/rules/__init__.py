"""Update rules by name, with shared settings, counts, master copies and row-sparse gradients.

One file holds one rule: its equation, the plain code that follows it line by line, and a faster form with the same
results to rounding.
"""

from __future__ import annotations

from ostinato.optim.rules.adabelief import AdaBelief
from ostinato.optim.rules.adadelta import AdaDelta
from ostinato.optim.rules.adagrad import AdaGrad
from ostinato.optim.rules.adam import Adam
from ostinato.optim.rules.adamax import AdaMax
from ostinato.optim.rules.adamw import AdamW
from ostinato.optim.rules.dcasgd import DCASGD
from ostinato.optim.rules.ftml import FTML
from ostinato.optim.rules.ftrl import Ftrl
from ostinato.optim.rules.groupadagrad import GroupAdaGrad
from ostinato.optim.rules.lamb import LAMB
from ostinato.optim.rules.lans import LANS
from ostinato.optim.rules.lars import LARS
from ostinato.optim.rules.nadam import Nadam
from ostinato.optim.rules.nag import NAG
from ostinato.optim.rules.optimizer import Gradient, Optimizer, State
from ostinato.optim.rules.registry import create, register, registered_names
from ostinato.optim.rules.rmsprop import RMSProp
from ostinato.optim.rules.settings import Index, Schedule
from ostinato.optim.rules.sgd import SGD
from ostinato.optim.rules.sgld import SGLD
from ostinato.optim.rules.signum import Signum
from ostinato.optim.rules.step import Step
from ostinato.optim.rules.testing import Test
from ostinato.optim.rules.torch_optimizer import TorchOptimizer
from ostinato.optim.rules.updater import Updater, pack_state, unpack_state

__all__ = [
    "DCASGD",
    "FTML",
    "LAMB",
    "LANS",
    "LARS",
    "NAG",
    "SGD",
    "SGLD",
    "AdaBelief",
    "AdaDelta",
    "AdaGrad",
    "AdaMax",
    "Adam",
    "AdamW",
    "Ftrl",
    "Gradient",
    "GroupAdaGrad",
    "Index",
    "Nadam",
    "Optimizer",
    "RMSProp",
    "Schedule",
    "Signum",
    "State",
    "Step",
    "Test",
    "TorchOptimizer",
    "Updater",
    "create",
    "pack_state",
    "register",
    "registered_names",
    "unpack_state",
]
