"""Key-value stores, and the trainer that updates parameters through them."""

from ostinato.kvstore.registry import create, register
from ostinato.kvstore.store import Key, Store, StoreCallError, Value

__all__ = ["Key", "Store", "StoreCallError", "Value", "create", "register"]
