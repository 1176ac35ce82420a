"""The one model: a decoder-only Transformer of the Llama family.

Llama, Mistral, Qwen2, Qwen3 (dense) and their small relatives are settings of it. Parameter names
are HuggingFace's, so that the native checkpoint needs no key map.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from llamita.config import ModelConfig
from llamita.model.attention import Attention, AttentionPlan
from llamita.model.norm import RMSNorm
from llamita.model.rope import RotaryEmbedding
from llamita.model.sharded import put


class MLP(nn.Module):
    """SwiGLU feed-forward (arXiv:2002.05202)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(hidden, inner, bias=bias)
        self.up_proj = nn.Linear(hidden, inner, bias=bias)
        self.down_proj = nn.Linear(inner, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        y: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return y


class DecoderLayer(nn.Module):
    """Attention and feed-forward, each normalized before and added to the residual stream."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.residual_dropout = config.residual_dropout
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, plan: AttentionPlan) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        x = x + self._drop(self.self_attn(self.input_layernorm(x), plan))
        return x + self._drop(self.mlp(self.post_attention_layernorm(x)))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.residual_dropout, self.training) if self.residual_dropout else x


def _embedding(vocab_size: int, hidden_size: int) -> nn.Embedding:
    """As `nn.Embedding`, but on the meta device without weights drawn that nobody sees.

    Drawing there imports PyTorch's compiler: a second and a half for whoever loads a model.
    """
    table = torch.empty(vocab_size, hidden_size)
    if not table.is_meta:
        nn.init.normal_(table)
    return nn.Embedding(vocab_size, hidden_size, _weight=table)


class Decoder(nn.Module):
    """Token embedding, layers and final norm: HuggingFace's `model.` prefix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.checkpointing = False
        self.draws = config.attention_dropout > 0 or config.residual_dropout > 0
        self.embed_tokens = _embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            DecoderLayer(config, layer) for layer in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, input_ids: Tensor, plan: AttentionPlan) -> Tensor:
        """[B, T] -> [B, T, C]."""
        x = self.embed_tokens(input_ids)
        recomputes = self.checkpointing and torch.is_grad_enabled()
        for layer in self.layers:
            x = self._recomputed(layer, x, plan) if recomputes else layer(x, plan)
        hidden: Tensor = self.norm(x)
        return hidden

    def _recomputed(self, layer: nn.Module, x: Tensor, plan: AttentionPlan) -> Tensor:
        """As `layer(x, plan)`, of which only x is kept: the backward pass computes it again.

        The random state is put back for that where dropout draws, so the result is the same to the
        bit.
        """
        y: Tensor = checkpoint(
            layer, x, plan, use_reentrant=False, preserve_rng_state=self.draws and self.training
        )
        return y


class Transformer(nn.Module):
    """A language model: token ids in, logits out.

    A new one holds PyTorch's default weights; `initialize` draws fresh ones for training, a
    checkpoint's state dict replaces them. A tied head is the embedding itself: one storage.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.rope = RotaryEmbedding(config)
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    @property
    def checkpointing(self) -> bool:
        """Activation checkpointing (arXiv:1604.06174): whether the backward pass computes each
        layer again instead of keeping what it needs of it. The numbers are the same to the bit."""
        return self.model.checkpointing

    @checkpointing.setter
    def checkpointing(self, wanted: bool) -> None:
        self.model.checkpointing = wanted

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> Tensor:
        """Logits for each token's successor, the rows being read whole.

        Args:
            input_ids: [B, T].
            positions: [B, T]; left out, 0 to T - 1.
            document_ids: [B, T]; tokens see only tokens of their own document.

        Returns:
            [B, T, V].
        """
        logits: Tensor = self.lm_head(self.hidden_states(input_ids, positions, document_ids))
        return logits

    def hidden_states(
        self,
        input_ids: Tensor,
        positions: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> Tensor:
        """What the head reads: [B, T, C] after the final norm. Arguments as in `forward`."""
        if positions is None:
            time = input_ids.shape[1]
            positions = torch.arange(time, device=input_ids.device).expand(input_ids.shape)
        plan = AttentionPlan(self.config, self.rope, positions, document_ids)
        hidden: Tensor = self.model(input_ids, plan)
        return hidden

    @torch.no_grad()
    def initialize(self, seed: int, *, zero_outputs: bool = False) -> Transformer:
        """Draw fresh weights so that the first loss lies close to ln(vocabulary).

        Matrices are normal with `initializer_range`, those that write to the residual stream
        divided by sqrt(2 × layers), or zero with `zero_outputs`: then every layer begins as the
        identity, and training goes a little faster (docs/experiments.md). The embedding is narrower
        where the width asks for it: its logits stay small, and with a tied head, where each token
        first predicts itself with a logit of about `std × hidden_size`, so does that one.

        A model whose parameters are sharded gets the same numbers as a whole one: each rank draws
        one matrix after the other and keeps its part.
        """
        config = self.config
        generator = torch.Generator().manual_seed(seed)
        std = config.initializer_range
        output_std = 0.0 if zero_outputs else std / math.sqrt(2 * config.num_hidden_layers)
        table_std = min(std, 0.5 / math.sqrt(config.hidden_size))
        if config.tie_word_embeddings:
            self_logit = max(math.log(config.vocab_size) - 2.5, 0.25)
            table_std = min(table_std, self_logit / config.hidden_size)
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            if name.startswith(("model.embed_tokens", "lm_head")):
                scale = table_std
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                scale = output_std
            else:
                scale = std
            values = torch.empty(parameter.shape).normal_(0.0, scale, generator=generator)
            put(parameter, values)
        return self
