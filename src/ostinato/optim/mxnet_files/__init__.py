"""Files of MXNet: lists of arrays (``.params``) and trainer states (``.states``), read as data and written."""

from __future__ import annotations

from ostinato.optim.mxnet_files.array_list import read_array_list, write_array_list
from ostinato.optim.mxnet_files.plain_pickle import ClassName, PlainObject
from ostinato.optim.mxnet_files.state_conversion import load_states, optimizer_from_states, states_of
from ostinato.optim.mxnet_files.trainer_states import TrainerStates, read_trainer_states, write_trainer_states

__all__ = [
    "ClassName",
    "PlainObject",
    "TrainerStates",
    "load_states",
    "optimizer_from_states",
    "read_array_list",
    "read_trainer_states",
    "states_of",
    "write_array_list",
    "write_trainer_states",
]
