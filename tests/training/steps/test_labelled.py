"""The head looks at labelled tokens alone, and the loss and its gradients stay what they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from llamita.data.rows import IGNORED
from llamita.training.steps.cross_entropy import chunk_loss, head_loss_sum
from llamita.training.steps.labelled import labelled_rows

C, V = 6, 40


def _loss(hidden: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    return head_loss_sum(
        hidden, weight, labels, torch.float32, lambda a, b, _: chunk_loss(a, b), chunk_rows=16
    )


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.7])
def test_loss_and_gradients_are_those_of_all_rows(share: float) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(4, 50, C, requires_grad=True)
    weight = torch.randn(V, C, requires_grad=True)
    labels = torch.randint(V, (4, 50))
    labels[torch.rand(4, 50) >= share] = IGNORED
    whole = _loss(hidden, labels, weight)
    expected = torch.autograd.grad(whole, (hidden, weight))
    states, wanted = labelled_rows(hidden, labels, 16)
    assert len(wanted) % 16 == 0
    assert len(wanted) < labels.numel()
    found = _loss(states, wanted, weight)
    torch.testing.assert_close(found, whole)
    for a, b in zip(torch.autograd.grad(found, (hidden, weight)), expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("labelled", [50, 49])
def test_where_nothing_is_saved_nothing_changes(labelled: int) -> None:
    hidden, labels = torch.randn(1, 50, C), torch.zeros(1, 50, dtype=torch.long)
    labels[:, labelled:] = IGNORED
    states, wanted = labelled_rows(hidden, labels, 16)
    assert states is hidden
    assert wanted is labels
