"""Chats label a part of their tokens: the head need not look at the others."""

from __future__ import annotations

import torch
from torch import Tensor

from llamita.data.rows import IGNORED


def labelled_rows(hidden: Tensor, labels: Tensor, multiple: int) -> tuple[Tensor, Tensor]:
    """The hidden states [N, C] and labels [N] of the labelled tokens of [B, T, C] and [B, T].

    Of a small model the head is most of the work, and of chats a quarter is labelled. Unlabelled
    tokens fill N up to a `multiple`, so that few shapes are ever compiled. Where that leaves out
    none, and on devices that would have to wait for the count, both come back as they are.
    """
    if labels.device.type != "cpu":
        return hidden, labels
    flat = labels.flatten()
    is_labelled = flat != IGNORED
    count = max(1, -(-int(is_labelled.sum()) // multiple)) * multiple
    if count >= len(flat):
        return hidden, labels
    # A stable sort brings the labelled ones to the front, in their order.
    chosen = torch.argsort(~is_labelled, stable=True)[:count]
    return hidden.flatten(0, -2).index_select(0, chosen), flat[chosen]
