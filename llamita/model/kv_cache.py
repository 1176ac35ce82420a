"""Keys and values of what was read so far, written in place at explicit positions."""

from __future__ import annotations

import torch
from torch import Tensor

from llamita.config import ModelConfig


class KVCache:
    """Static storage for `batch_size` sequences of up to `capacity` tokens.

    Slot `p` of a row holds the token at position `p`, and a query at position `p` sees slots up to
    `p` only. Rows of different lengths therefore need no padding mask: what right padding writes
    past a row's end is overwritten by the row's next token before anything can see it.

    `keys` and `values` are [layers, B, K, capacity, D].
    """

    def __init__(
        self,
        config: ModelConfig,
        batch_size: int,
        capacity: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.capacity = capacity
        shape = (
            config.num_hidden_layers,
            batch_size,
            config.num_key_value_heads,
            capacity,
            config.head_dim,
        )
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    def write(
        self, layer: int, keys: Tensor, values: Tensor, positions: Tensor, start: int | None
    ) -> None:
        """Store `keys` and `values` [B, K, T, D] at `positions` [B, T].

        `start` given says that every row's positions are start, start + 1, …, which copies faster.
        """
        if start is not None:
            end = start + keys.shape[2]
            self.keys[layer, :, :, start:end] = keys
            self.values[layer, :, :, start:end] = values
        else:
            rows = torch.arange(keys.shape[0], device=keys.device)[:, None]
            self.keys[layer][rows, :, positions] = keys.transpose(1, 2).to(self.keys.dtype)
            self.values[layer][rows, :, positions] = values.transpose(1, 2).to(self.values.dtype)

    def read(self, layer: int, length: int) -> tuple[Tensor, Tensor]:
        """Views of the first `length` slots of one layer: two [B, K, length, D]."""
        return self.keys[layer, :, :, :length], self.values[layer, :, :, :length]

    def keep_rows(self, rows: Tensor) -> None:
        """Drop every row whose index is not in `rows`, in the order given."""
        self.keys = self.keys[:, rows]
        self.values = self.values[:, rows]
