"""Muon beside PyTorch's own."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from llamita.training.checkpointing.checkpoints import (
    load_newest_checkpoint,
    take_snapshot,
    write_checkpoint,
)
from llamita.training.steps import muon
from llamita.training.steps.muon import Muon, orthogonalize

# Tall, wide, square, one of these twice, and one whose gradients are all zero.
SHAPES = [(48, 16), (16, 48), (32, 32), (16, 48), (8, 24)]
BFLOAT16_ROUNDING = 0.02  # of a step; 0.014 were seen
LR, DECAY, MOMENTUM = 0.02, 0.1, 0.9
KELLER_JORDAN = (3.4445, -4.7750, 2.0315)


class _Matrices(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.matrices = nn.ParameterList(torch.randn(shape) for shape in SHAPES)

    def muon(self, precision: str) -> Muon:
        return Muon(
            self.parameters(),
            lr=LR,
            weight_decay=DECAY,
            momentum=MOMENTUM,
            precision=precision,
        )

    def torch_muon(self) -> torch.optim.Muon:
        return torch.optim.Muon(
            self.parameters(),
            lr=LR,
            weight_decay=DECAY,
            momentum=MOMENTUM,
            adjust_lr_fn="match_rms_adamw",
        )


def _gradients(seed: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for shape in SHAPES[:-1]:
        yield torch.randn(shape, generator=generator)
    yield torch.zeros(SHAPES[-1])


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    for parameter, gradient in zip(model.parameters(), _gradients(seed), strict=True):
        parameter.grad = gradient
    optimizer.step()


@torch.no_grad()
def _differences(ours: nn.Module, theirs: nn.Module, before: list[Tensor]) -> list[float]:
    """How far the ways that two models went from `before` lie apart, in lengths of the way."""
    pairs = zip(ours.parameters(), theirs.parameters(), before, strict=True)
    return [float((a - b).norm() / (b - start).norm()) for a, b, start in pairs]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_every_step_is_pytorchs_own_up_to_rounding(precision: str) -> None:
    ours, theirs = _Matrices(), _Matrices()
    optimizer, peer = ours.muon(precision), theirs.torch_muon()
    for seed in range(4):
        before = [parameter.detach().clone() for parameter in theirs.parameters()]
        _step(ours, optimizer, seed)
        _step(theirs, peer, seed)
        assert max(_differences(ours, theirs, before)) < BFLOAT16_ROUNDING
        ours.load_state_dict(theirs.state_dict())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_precision_is_that_of_the_iteration(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def watched(matrices: Tensor, *settings: Any) -> Tensor:
        seen.append(orthogonalize(matrices, *settings).dtype)
        return torch.zeros_like(matrices)

    monkeypatch.setattr(muon, "orthogonalize", watched)
    model = _Matrices()
    _step(model, model.muon(precision), seed=0)
    assert set(seen) == {getattr(torch, precision)}


@pytest.mark.parametrize("shape", SHAPES)
def test_orthogonalizing_keeps_the_singular_vectors(shape: tuple[int, int]) -> None:
    torch.manual_seed(3)
    u, _, vh = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    matrix = u * torch.linspace(0.05, 2.0, min(shape)) @ vh
    both = torch.stack([matrix, -3 * matrix])
    result = orthogonalize(both, torch.float32, KELLER_JORDAN, steps=5, eps=1e-7)
    torch.testing.assert_close(result[0], -result[1])
    values = u.T @ result[0] @ vh.T
    assert float(values.diagonal().min()) > 0.65
    assert float(values.diagonal().max()) < 1.25
    assert float((values - values.diagonal().diag()).abs().max()) < 1e-4


def test_a_matrix_without_a_gradient_stays_as_it_is() -> None:
    model = _Matrices()
    before = copy.deepcopy(model.state_dict())
    assert model.muon("float32").step(lambda: 3.5) == 3.5
    for name, parameter in model.state_dict().items():
        assert torch.equal(parameter, before[name])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_checkpoint_of_pytorchs_muon_is_gone_on_from(tmp_path: Path, precision: str) -> None:
    theirs, ours = _Matrices(), _Matrices(seed=1)
    peer, optimizer = theirs.torch_muon(), ours.muon(precision)
    _step(theirs, peer, seed=0)
    write_checkpoint(tmp_path, take_snapshot(1, theirs, [peer], {"step": 1}))
    load_newest_checkpoint(tmp_path, ours, [optimizer], print)
    before = [parameter.detach().clone() for parameter in theirs.parameters()]
    _step(theirs, peer, seed=1)
    _step(ours, optimizer, seed=1)
    assert max(_differences(ours, theirs, before)) < BFLOAT16_ROUNDING


def test_state_dicts_have_the_form_of_pytorchs() -> None:
    ours, theirs = _Matrices(), _Matrices()
    optimizer, peer = ours.muon("bfloat16"), theirs.torch_muon()
    _step(ours, optimizer, seed=0)
    _step(theirs, peer, seed=0)
    state, peer_state = optimizer.state_dict(), peer.state_dict()
    assert state["param_groups"] == peer_state["param_groups"]
    torch.testing.assert_close(state["state"], peer_state["state"])
