"""Grouped-query attention with rotary positions, and the mask that says who sees whom."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llamita.config import ModelConfig
from llamita.model.kv_cache import KVCache
from llamita.model.norm import RMSNorm
from llamita.model.rope import RotaryEmbedding, rotate

Tables = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class AttentionPlan:
    """What every layer of one pass shares, worked out once.

    `mask` [B or 1, 1, T, S] is True where a query may look; None means plain causal attention
    among the tokens of this pass, or, in a cache, that all the keys read are visible. `key_tables`
    is set where keys are stored unrotated (dynamic scaling, whose angles change with the length).
    """

    query_tables: Tables
    key_tables: Tables | None
    mask: Tensor | None
    is_causal: bool
    positions: Tensor
    cache: KVCache | None
    start: int | None
    key_length: int


def plan_attention(
    config: ModelConfig,
    rope: RotaryEmbedding,
    positions: Tensor,
    cache: KVCache | None,
    document_ids: Tensor | None,
    row_lengths: Tensor | None,
) -> AttentionPlan:
    """Angles and mask for tokens at `positions` [B, T]; `document_ids` [B, T] fence documents.

    `row_lengths` [B] are the whole rows' lengths; left out, a row ends with this pass.

    Without a cache the order is the order in the row, so packed documents may restart their
    positions.
    """
    time = positions.shape[1]
    if cache is None:
        mask = _mask_of_pass(config, time, document_ids, positions.device)
        tables = rope.tables(positions, row_lengths)
        return AttentionPlan(tables, None, mask, mask is None, positions, None, None, time)

    highest = int(positions.max())
    if highest >= cache.capacity:
        raise ValueError(f"position {highest} is past the cache's capacity of {cache.capacity}")
    start = int(positions[0, 0])
    in_step = torch.equal(
        positions, (start + torch.arange(time, device=positions.device)).expand_as(positions)
    )
    key_length = highest + 1
    key_tables = None
    lengths = positions.amax(-1) + 1 if row_lengths is None else row_lengths
    if rope.is_dynamic:
        slots = torch.arange(key_length, device=positions.device).expand(positions.shape[0], -1)
        key_tables = rope.tables(slots, lengths)
    fills_empty_cache = in_step and start == 0
    sees_all = in_step and time == 1
    window = config.sliding_window
    mask = None
    if not (fills_empty_cache or sees_all) or (window is not None and key_length > window):
        slots = torch.arange(key_length, device=positions.device)
        mask = _visible(slots, positions[:, None, :, None], window)
    return AttentionPlan(
        rope.tables(positions, lengths),
        key_tables,
        mask,
        mask is None and time > 1,
        positions,
        cache,
        start if in_step else None,
        key_length,
    )


def _visible(key_positions: Tensor, query_positions: Tensor, window: int | None) -> Tensor:
    mask = key_positions <= query_positions
    if window is not None:
        mask = mask & (key_positions > query_positions - window)
    return mask


def _mask_of_pass(
    config: ModelConfig, time: int, document_ids: Tensor | None, device: torch.device
) -> Tensor | None:
    window = config.sliding_window
    if document_ids is None and (window is None or window >= time):
        return None
    order = torch.arange(time, device=device)
    mask = _visible(order, order[:, None], window)[None, None]
    if document_ids is not None:
        mask = mask & (document_ids[:, None, :, None] == document_ids[:, None, None, :])
    return mask


class Attention(nn.Module):
    """Causal self-attention of one layer (grouped queries: arXiv:2305.13245)."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.is_grouped = config.num_key_value_heads != config.num_attention_heads
        self.dropout = config.attention_dropout
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        bias, output_bias = config.attention_bias, bool(config.attention_output_bias)
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=bias)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=bias)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=bias)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=output_bias)
        self.q_norm: nn.Module = nn.Identity()
        self.k_norm: nn.Module = nn.Identity()
        if config.use_qk_norm:
            self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
            self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def forward(self, x: Tensor, plan: AttentionPlan) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        batch, time, _ = x.shape
        shape = (batch, time, -1, self.head_dim)
        q = self.q_norm(self.q_proj(x).view(shape)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(shape)).transpose(1, 2)
        v = self.v_proj(x).view(shape).transpose(1, 2)

        q = rotate(q, *plan.query_tables)
        if plan.key_tables is None:
            k = rotate(k, *plan.query_tables)
        if plan.cache is not None:
            plan.cache.write(self.layer, k, v, plan.positions, plan.start)
            k, v = plan.cache.read(self.layer, plan.key_length)
            k, v = k.to(q.dtype), v.to(q.dtype)
            if plan.key_tables is not None:
                k = rotate(k, *plan.key_tables)
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=plan.mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=plan.is_causal,
            enable_gqa=self.is_grouped,
        )
        output: Tensor = self.o_proj(y.transpose(1, 2).reshape(batch, time, -1))
        return output
