"""The model and its key-value cache."""

from llamita.model.kv_cache import KVCache
from llamita.model.transformer import Transformer

__all__ = ["KVCache", "Transformer"]
