"""Attention by blocks of queries equals PyTorch's, both ways, with every kind of mask."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from llamita.config import preset
from llamita.model import Transformer
from llamita.model.block_attention import block_attention


def _documents(batch: int, time: int) -> Tensor:
    starts = torch.rand(batch, time, generator=torch.Generator().manual_seed(1)) < 0.05
    documents = starts.cumsum(-1)
    return documents[:, None, :, None] == documents[:, None, None, :]


def _mask(kind: str, batch: int, time: int) -> Tensor | None:
    order = torch.arange(time)
    causal = order <= order[:, None]
    match kind:
        case "documents":
            return causal & _documents(batch, time)
        case "window":
            return (causal & (order > order[:, None] - 50))[None, None]
    return None


@pytest.mark.parametrize("kind", ["causal", "documents", "window"])
@pytest.mark.parametrize("heads", [(6, 6), (6, 2), (2, 1)])
@pytest.mark.parametrize("time", [1, 7, 128, 129, 300])
def test_equals_scaled_dot_product_attention(time: int, heads: tuple[int, int], kind: str) -> None:
    draw = torch.Generator().manual_seed(time)
    q, k, v = (
        torch.randn(2, count, time, 16, generator=draw, requires_grad=True)
        for count in (heads[0], heads[1], heads[1])
    )
    upstream = torch.randn(2, heads[0], time, 16, generator=draw)
    mask = _mask(kind, 2, time)
    ours = block_attention(q, k, v, mask)
    theirs = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    for mine, peers in zip(
        torch.autograd.grad(ours, (q, k, v), upstream),
        torch.autograd.grad(theirs, (q, k, v), upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, peers, rtol=1e-4, atol=1e-5)


def test_in_bfloat16_it_stays_near_float32() -> None:
    draw = torch.Generator().manual_seed(0)
    exact = [torch.randn(1, 2, 200, 32, generator=draw) for _ in range(3)]
    rough = [tensor.bfloat16().requires_grad_() for tensor in exact]
    exact = [tensor.requires_grad_() for tensor in exact]
    outputs = [block_attention(q, k, v) for q, k, v in (exact, rough)]
    assert outputs[1].dtype == torch.bfloat16
    torch.testing.assert_close(outputs[0], outputs[1].float(), rtol=0.05, atol=0.05)
    gradients = [
        torch.autograd.grad(output.float().sum(), tensors)
        for output, tensors in zip(outputs, (exact, rough), strict=True)
    ]
    for mine, peers in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, peers.float(), rtol=0.1, atol=0.2)


def test_training_in_bfloat16_on_a_cpu_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[torch.dtype] = []

    def noted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        taken.append(q.dtype)
        return block_attention(q, k, v, mask)

    monkeypatch.setattr("llamita.model.attention.block_attention", noted)
    model = Transformer(preset("tiny", 40, num_hidden_layers=1)).initialize(0)
    ids = torch.arange(12)[None]
    exact = model(ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(ids)
        with torch.no_grad():
            model(ids)
    assert taken == [torch.bfloat16]
    torch.testing.assert_close(exact, rough.float(), rtol=0.05, atol=0.05)
