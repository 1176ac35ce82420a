"""The chunked loss of the head equals PyTorch's over all logits at once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from llamita.data.rows import IGNORED
from llamita.training.steps.cross_entropy import chunk_loss, head_loss_sum


def _of_chunk(logits: Tensor, labels: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    assert len(logits) == len(labels) == rows.stop - rows.start
    return chunk_loss(logits, labels)


@given(
    tokens=st.integers(1, 40),
    vocabulary=st.integers(1, 30),
    rows=st.one_of(st.none(), st.integers(1, 50)),
    ignored=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_loss_and_gradients_equal_pytorchs(
    tokens: int, vocabulary: int, rows: int | None, ignored: float, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    hidden = torch.randn(1, tokens, 7, generator=draw, requires_grad=True)
    weight = torch.randn(vocabulary, 7, generator=draw, requires_grad=True)
    labels = torch.randint(0, vocabulary, (1, tokens), generator=draw)
    labels[torch.rand(1, tokens, generator=draw) < ignored] = IGNORED
    ours = head_loss_sum(hidden, weight, labels, torch.float32, _of_chunk, rows)
    logits = (hidden @ weight.t()).flatten(0, 1)
    theirs = F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="sum")
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    wanted = [hidden, weight]
    for mine, peers in zip(
        torch.autograd.grad(ours / 3, wanted), torch.autograd.grad(theirs / 3, wanted), strict=True
    ):
        torch.testing.assert_close(mine, peers, rtol=1e-4, atol=1e-5)


def test_all_logits_never_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0

    def of_chunk(logits: Tensor, labels: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        nonlocal largest
        largest = max(largest, len(logits))
        return chunk_loss(logits, labels)

    hidden = torch.zeros(5000, 2)
    head_loss_sum(hidden, torch.zeros(9000, 2), torch.zeros(5000).long(), torch.float32, of_chunk)
    assert 128 <= largest < 512


def test_huge_logits_stay_finite() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [3e38, 0.0, -3e38]])
    loss, gradient = chunk_loss(logits, torch.tensor([1, 0]))
    assert loss.item() == pytest.approx(2e4)
    torch.testing.assert_close(gradient, torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]]))


def test_without_gradients_only_the_loss_is_computed() -> None:
    hidden, weight = torch.randn(6, 4), torch.randn(5, 4)
    labels = torch.tensor([0, 1, 2, 3, 4, IGNORED])
    loss = head_loss_sum(hidden, weight, labels, torch.float32, _of_chunk)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, F.cross_entropy(hidden @ weight.t(), labels, reduction="sum"))
