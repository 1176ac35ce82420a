"""What is compiled of a training step: one layer for all, and one chunk of the loss."""

from __future__ import annotations

import sys
from functools import partial

import pytest
import torch
from torch._dynamo.utils import counters

from llamita.config import preset
from llamita.model import Transformer
from llamita.training.steps.compiling import CompiledLoss, choose_compilation
from llamita.training.steps.step import loss_sum_function

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def quick_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces as ever, but generates no code."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()
    counters.clear()


def _model(layers: int) -> Transformer:
    return Transformer(preset("tiny", 50, num_hidden_layers=layers)).initialize(0)


def _ids() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(0, 50, (2, 17), generator=torch.Generator().manual_seed(0))
    return ids[:, :-1], ids[:, 1:]


@pytest.mark.parametrize("layers", [1, 6])
def test_a_deeper_model_compiles_no_more_graphs(layers: int) -> None:
    model = _model(layers)
    compiled = CompiledLoss(model, partial(loss_sum_function, model, "float32", CPU), pytest.fail)
    compiled.warm_up(*_ids())
    assert counters["stats"]["unique_graphs"] == 2
    compiled(*_ids())
    assert counters["stats"]["unique_graphs"] == 2
    assert not counters["graph_break"]


def test_loss_and_gradients_are_those_of_the_model() -> None:
    model, plain = _model(3), _model(3)
    losses = []
    make = partial(loss_sum_function, model, "float32", CPU)
    for one, loss in (
        (model, CompiledLoss(model, make, pytest.fail)),
        (plain, loss_sum_function(plain, "float32", CPU)),
    ):
        losses.append(loss(*_ids()))
        losses[-1].backward()  # type: ignore[no-untyped-call]
        assert all(parameter.grad is not None for parameter in one.parameters())
    torch.testing.assert_close(*losses)
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_a_failure_leaves_layers_that_are_not_compiled() -> None:
    said: list[str] = []
    model = _model(2)
    compiled = CompiledLoss(model, partial(loss_sum_function, model, "float32", CPU), said.append)
    compiled.give_up("no compiler")
    expected = loss_sum_function(_model(2), "float32", CPU)(*_ids())
    torch.testing.assert_close(compiled(*_ids()), expected)
    assert counters["stats"]["unique_graphs"] == 0
    assert said == ["going on without compilation: no compiler"]


def test_whether_to_compile_is_decided_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_compilation("on", CPU, 1) == ("on", "as asked")
    assert choose_compilation("off", CPU, 1e6) == ("off", "as asked")
    assert choose_compilation("auto", CPU, 1) == ("off", "the run is short")
    assert choose_compilation("auto", torch.device("mps"), 1e6) == ("off", "not done on mps")
    monkeypatch.setenv("CXX", sys.executable)
    assert choose_compilation("auto", CPU, 1e6) == ("on", "the run is long")
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    assert choose_compilation("auto", CPU, 1e6) == ("off", "no C++ compiler")
