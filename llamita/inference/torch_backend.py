"""The backend that computes with PyTorch, on any of its devices."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch

from llamita.errors import ConfigError
from llamita.inference.backend import Logits, Segment
from llamita.inference.stopping import context_length
from llamita.model.decode_plan import DecodePlan
from llamita.model.fused import CachePlan, FusedDecoder
from llamita.model.kv_cache import KVCache
from llamita.model.placement import parse_dtype
from llamita.model.prefill_plan import PrefillPlan, Stretch
from llamita.model.transformer import Transformer


class TorchBackend:
    """A `Transformer` behind `inference.backend.Backend`.

    The model stays the caller's: it may be moved, trained or given other weights between calls
    (`weights_version` tells), and no call changes its mode. Dropout is never applied.

    kv_cache_dtype: "float32" or "bfloat16"; left out, that of the weights. compile: as in
    `FusedDecoder`. On a GPU that merges the small kernels between the matrix products into few; it
    records no CUDA graphs, so that every kernel is still launched from Python.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        kv_cache_dtype: str | torch.dtype | None = None,
        compile: bool = False,
    ) -> None:
        self.config = model.config
        self._model = model
        self._decoder = FusedDecoder(model, compile=compile)
        self._cache_dtype = parse_dtype(kv_cache_dtype)
        self._cache = self._empty_cache()

    @property
    def slots(self) -> int:
        """How many rows the cache has."""
        return self._cache.slots

    @property
    def capacity(self) -> int:
        """How many positions each slot has room for."""
        return self._cache.capacity

    @property
    def max_segment(self) -> int:
        """The most tokens a segment may have."""
        return self._cache.longest_segment or context_length(self.config)

    @property
    def weights_version(self) -> Hashable:
        """Changes with every weight that is replaced, or written in place where autograd sees it.

        Writing through `.data` escapes it, and writing to inference tensors.
        """
        return self._decoder.versions

    def slot_bytes(self, capacity: int) -> int:
        """Memory that a slot with room for `capacity` positions takes."""
        return self._cache.slot_bytes(capacity)

    @torch.inference_mode()
    def resize(self, slots: int, capacity: int) -> None:
        """Give the cache this size; slots that stay keep what they hold in positions that stay."""
        self._follow_model()
        self._cache.resize(slots, capacity)

    @torch.inference_mode()
    def prefill(self, segments: Sequence[Segment]) -> Logits:
        """Read segments of different slots in one pass; [N, V] float32 logits as asked for."""
        self._follow_model()
        stretches = [
            Stretch(part.slot, part.start, len(part.token_ids), part.row_length)
            for part in segments
        ]
        plan = PrefillPlan(self._cache, self._model.rope, stretches)
        wanted: list[int] = []
        end = 0
        for part in segments:
            end += len(part.token_ids)
            wanted += range(end - part.num_logits, end)
        token_ids = [token_id for part in segments for token_id in part.token_ids]
        return self._logits(token_ids, plan, wanted)

    @torch.inference_mode()
    def decode(
        self, slots: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]
    ) -> Logits:
        """Read one token in each of several slots; [B, V] float32 logits after each."""
        self._follow_model()
        order = sorted(range(len(slots)), key=slots.__getitem__)
        plan = DecodePlan(
            self._cache,
            self._model.rope,
            [slots[row] for row in order],
            [positions[row] for row in order],
        )
        wanted = sorted(range(len(order)), key=order.__getitem__)
        return self._logits([token_ids[row] for row in order], plan, wanted)

    def reusable(self, written: int, shared: int) -> int:
        """How many tokens a new row may take over from a slot."""
        return 0 if self._model.rope.is_dynamic else self._cache.reusable(written, shared)

    @torch.inference_mode()
    def copy(self, source: int, target: int, length: int) -> None:
        """Make the first `length` positions of slot `target` those of slot `source`."""
        self._cache.copy(source, target, length)

    def _logits(self, token_ids: list[int], plan: CachePlan, wanted: list[int]) -> Logits:
        """Logits [len(wanted), V] after the `wanted` of the tokens, by their place in the pass."""
        device = self._cache.device
        ids = torch.tensor(token_ids, device=device)
        are_all = wanted == list(range(len(token_ids)))
        rows = None if are_all else torch.tensor(wanted, dtype=torch.long, device=device)
        logits: Logits = self._decoder.logits(ids, plan, rows).float().cpu().numpy()
        return logits

    def _empty_cache(self) -> KVCache:
        return KVCache(self.config, *self._cache_kind())

    def _cache_kind(self) -> tuple[torch.dtype, torch.device]:
        weight = self._model.model.norm.weight  # the head may be replaced
        return self._cache_dtype or weight.dtype, weight.device

    def _follow_model(self) -> None:
        """A model that was moved or cast needs another cache; its `weights_version` says so."""
        self._decoder.refresh()
        if self._cache_kind() != (self._cache.dtype, self._cache.device):
            old, self._cache = self._cache, self._empty_cache()
            self._cache.resize(old.slots, old.capacity)


def read_cache_dtype(wanted: str | torch.dtype | None) -> str | None:
    """The name of a precision for the cache; ConfigError for one that it cannot have."""
    name = None if wanted is None else str(wanted).removeprefix("torch.")
    if name not in (None, "float32", "bfloat16"):
        raise ConfigError(
            f"kv_cache_dtype is {name!r}.",
            hint="It is float32 or bfloat16; left out, the precision of the weights.",
        )
    return name
