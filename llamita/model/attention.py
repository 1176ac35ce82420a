"""Grouped-query attention with rotary positions; a plan says who sees whom."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llamita.config import ModelConfig
from llamita.model.block_attention import block_attention
from llamita.model.norm import RMSNorm
from llamita.model.rope import RotaryEmbedding, rotate


class AttentionPlan:
    """Who sees whom in a pass over whole rows, and at which angles; shared by every layer."""

    def __init__(
        self,
        config: ModelConfig,
        rope: RotaryEmbedding,
        positions: Tensor,
        document_ids: Tensor | None = None,
    ) -> None:
        """Tokens at `positions` [B, T]; `document_ids` [B, T] fence documents.

        The order is the order in the row, so packed documents may restart their positions.
        """
        self._tables = rope.tables(positions)
        self._mask = _mask_of_rows(config, positions.shape[1], document_ids, positions.device)
        self._is_grouped = config.num_key_value_heads != config.num_attention_heads

    def attend(self, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        """Mix the values: q [B, T, H, D] and k, v [B, T, K, D] give [B, T, H, D].

        Queries and keys come unrotated. `dropout` is the share of attention weights left out.
        """
        q, k = (rotate(x.transpose(1, 2), *self._tables) for x in (q, k))
        v = v.transpose(1, 2)
        if _suits_blocks(q, dropout):
            return block_attention(q, k, v, self._mask).transpose(1, 2)
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=self._mask,
            dropout_p=dropout,
            is_causal=self._mask is None,
            enable_gqa=self._is_grouped,
        )
        return y.transpose(1, 2)


def _suits_blocks(q: Tensor, dropout: float) -> bool:
    """Whether `block_attention` beats PyTorch's kernel: in float32 the two are alike on a CPU."""
    return (
        q.device.type == "cpu"
        and q.dtype == torch.bfloat16
        and torch.is_grad_enabled()
        and dropout == 0
    )


def _mask_of_rows(
    config: ModelConfig, time: int, document_ids: Tensor | None, device: torch.device
) -> Tensor | None:
    """[B or 1, 1, T, T], True where a query may look; None means plain causal attention."""
    window = config.sliding_window
    if document_ids is None and (window is None or window >= time):
        return None
    order = torch.arange(time, device=device)
    mask = order <= order[:, None]
    if window is not None:
        mask = mask & (order > order[:, None] - window)
    if document_ids is None:
        return mask[None, None]
    return mask & (document_ids[:, None, :, None] == document_ids[:, None, None, :])


class Attention(nn.Module):
    """Causal self-attention of one layer (grouped queries: arXiv:2305.13245)."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
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
        shape = (*x.shape[:2], -1, self.head_dim)
        q = self.q_norm(self.q_proj(x).view(shape))
        k = self.k_norm(self.k_proj(x).view(shape))
        v = self.v_proj(x).view(shape)
        y = plan.attend(q, k, v, self.dropout if self.training else 0.0)
        output: Tensor = self.o_proj(y.reshape(*x.shape[:2], -1))
        return output
