"""Key-value stores, and the trainer that updates parameters through them."""

from ostinato.kvstore.collective import CollectiveStore
from ostinato.kvstore.local import LocalStore
from ostinato.kvstore.loop_optimizer import LoopOptimizer
from ostinato.kvstore.loss_scaler import LossScaler
from ostinato.kvstore.parameter_trainer import ParameterTrainer
from ostinato.kvstore.parameters import ParameterHandle
from ostinato.kvstore.registry import create, register
from ostinato.kvstore.replicas import replica_parameters, replicate, split_and_load, split_data
from ostinato.kvstore.store import Key, Store, StoreCallError, Value
from ostinato.kvstore.tables import PulledRows, TableParameter
from ostinato.kvstore.worker_store import AsyncStore

__all__ = [
    "AsyncStore",
    "CollectiveStore",
    "Key",
    "LocalStore",
    "LoopOptimizer",
    "LossScaler",
    "ParameterHandle",
    "ParameterTrainer",
    "PulledRows",
    "Store",
    "StoreCallError",
    "TableParameter",
    "Value",
    "create",
    "register",
    "replica_parameters",
    "replicate",
    "split_and_load",
    "split_data",
]
