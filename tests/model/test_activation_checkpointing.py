"""Activation checkpointing: less is kept, and every bit is the same."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from llamita.config import preset
from llamita.model import Transformer
from llamita.training.steps.compiling import CompiledLoss
from llamita.training.steps.step import LossSum, loss_sum_function

CPU = torch.device("cpu")
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "dropout": {"residual_dropout": 0.2},
    "attention dropout": {"attention_dropout": 0.2, "residual_dropout": 0.1},
    "grouped, normed": {"num_attention_heads": 4, "num_key_value_heads": 2, "use_qk_norm": True},
}


def _model(checkpointing: bool, **fields: Any) -> Transformer:
    model = Transformer(preset("tiny", 50, num_hidden_layers=3, **fields)).initialize(0)
    model.checkpointing = checkpointing
    return model


def _steps(model: Transformer, loss: LossSum, *, documents: bool = False) -> list[Tensor]:
    """Losses and gradients of two batches, one after the other."""
    draw = torch.Generator().manual_seed(0)
    found: list[Tensor] = []
    torch.manual_seed(7)
    for _ in range(2):
        ids = torch.randint(0, 50, (2, 33), generator=draw)
        fences = (ids[:, :-1] == 0).cumsum(1) if documents else None
        value = loss(ids[:, :-1], ids[:, 1:], fences)
        value.backward()  # type: ignore[no-untyped-call]
        found += [
            value.detach(),
            *(p.grad.clone() for p in model.parameters() if p.grad is not None),
        ]
    found.append(torch.get_rng_state())
    return found


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_losses_gradients_and_random_state_are_the_same_to_the_bit(
    shape: str, precision: str
) -> None:
    results = []
    for checkpointing in (False, True):
        model = _model(checkpointing, **SHAPES[shape])
        results.append(_steps(model, loss_sum_function(model, precision, CPU), documents=True))
    assert len(results[0]) == len(results[1]) > 60
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["plain", "attention dropout", "dropout"])
def test_compiled_layers_too(shape: str) -> None:
    results = []
    for checkpointing in (False, True):
        torch._dynamo.reset()
        model = _model(checkpointing, **SHAPES[shape])
        make = partial(loss_sum_function, model, "float32", CPU)
        loss = CompiledLoss(model, make, pytest.fail)
        results.append(_steps(model, loss))
        assert loss.is_compiled
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_layers_keep_what_they_were_given_alone() -> None:
    sizes = []
    for checkpointing in (False, True):
        model, kept = _model(checkpointing), [0]

        def note(tensor: Tensor, kept: list[int] = kept) -> Tensor:
            kept[0] += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            model.hidden_states(torch.zeros(2, 32, dtype=torch.long))
        sizes.append(kept[0])
    assert sizes[1] < sizes[0] / 4


def test_without_gradients_nothing_is_computed_another_way() -> None:
    plain, model = _model(False), _model(True)
    ids = torch.zeros(1, 8, dtype=torch.long)
    with torch.no_grad():
        assert torch.equal(model(ids), plain(ids))


def test_dropout_is_off_in_evaluation_as_ever() -> None:
    model = _model(True, residual_dropout=0.5).eval()
    ids = torch.zeros(1, 8, dtype=torch.long)
    assert torch.equal(model(ids), model(ids))
