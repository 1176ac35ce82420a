"""The real model as what a run begins with: read from GGUF, its loss as when it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import llamita
from llamita.data.loader import Batch
from llamita.tokenizer.load import tokenizer_of
from llamita.training.settings.recipe import Recipe
from llamita.training.sources.initial import InitialModel
from llamita.training.sources.token_rows import plan_rows
from llamita.training.steps.step import accumulate_gradients, loss_sum_function
from tests.training.tokenizers import with_added

TEXT = "The little llama walked home along the river, and nobody was surprised to see it there."


@pytest.mark.slow
def test_smollm2_goes_on_from_its_gguf(smollm2: Path, tmp_path: Path) -> None:
    own = tokenizer_of(smollm2)
    own.save(tmp_path / "data")  # as `prepare --tokenizer` leaves it there
    tokenizer = tokenizer_of(tmp_path / "data")
    start = InitialModel.open(Recipe(init=str(smollm2)), tokenizer)
    assert start.rows.relation == "same"
    assert start.config.count_parameters() == 134_515_008
    ids = torch.tensor([tokenizer.encode(TEXT)])
    lm = llamita.load(smollm2)
    expected = lm.loss(ids)
    del lm
    model = start.build().train()
    cpu = torch.device("cpu")
    batch = Batch(ids[:, :-1], ids[:, 1:])
    loss_sum = loss_sum_function(model, "float32", cpu)
    before = accumulate_gradients(loss_sum, [batch], cpu).loss
    assert before == pytest.approx(float(expected), abs=1e-4)
    assert before < 4
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            step = F.normalize(parameter.grad.flatten(), dim=0).view_as(parameter)
            parameter.sub_(step, alpha=0.02)
        after = loss_sum(batch.input_ids, batch.labels) / batch.labels.numel()
    assert after < before

    longer = with_added(
        tokenizer, tmp_path / "longer", ("<|turn|>", True), (" llama walked", False)
    )
    plan = plan_rows(own, longer)
    assert (plan.relation, plan.from_pieces, plan.from_mean) == ("extended", 1, 1)
    assert tuple(own.encode(" llama walked")) == plan.sources[-1]
