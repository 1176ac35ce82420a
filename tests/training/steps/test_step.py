"""One optimizer step: a mean over all labelled tokens, however they are split."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from llamita.config import preset
from llamita.data.loader import Batch
from llamita.data.rows import IGNORED
from llamita.model import Transformer
from llamita.training.steps.step import (
    accumulate_gradients,
    loss_sum_function,
    mean_loss,
)

CPU = torch.device("cpu")


def _model() -> Transformer:
    return Transformer(preset("tiny", 50)).initialize(0)


def _batch(labelled: int, length: int = 100) -> Batch:
    generator = torch.Generator().manual_seed(labelled)
    tokens = torch.randint(0, 50, (1, length + 1), generator=generator)
    labels = tokens[:, 1:].clone()
    labels[:, labelled:] = IGNORED
    return Batch(tokens[:, :-1], labels)


def _gradients(model: Transformer, batches: list[Batch]) -> tuple[float, list[torch.Tensor]]:
    model.zero_grad(set_to_none=True)
    result = accumulate_gradients(loss_sum_function(model, "float32", CPU), batches, CPU)
    return result.loss, [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_accumulating_over_3_and_97_labelled_tokens_equals_one_batch_of_100() -> None:
    model, few, many = _model(), _batch(3), _batch(97)
    split_loss, split = _gradients(model, [few, many])
    whole = Batch(torch.cat([few.input_ids, many.input_ids]), torch.cat([few.labels, many.labels]))
    whole_loss, together = _gradients(model, [whole])
    expected = F.cross_entropy(
        model(whole.input_ids).flatten(0, 1), whole.labels.flatten(), ignore_index=IGNORED
    )
    assert abs(split_loss - whole_loss) < 1e-6
    assert abs(split_loss - expected.item()) < 1e-5
    for a, b in zip(split, together, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-7)


def test_a_step_without_labels_has_loss_zero_and_no_gradients() -> None:
    loss, gradients = _gradients(_model(), [_batch(0), _batch(0)])
    assert loss == 0.0
    assert gradients == []


def test_an_empty_batch_beside_a_full_one_changes_nothing() -> None:
    model = _model()
    alone_loss, alone = _gradients(model, [_batch(97)])
    beside_loss, beside = _gradients(model, [_batch(0), _batch(97)])
    assert alone_loss == beside_loss
    for a, b in zip(alone, beside, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-8)


def test_mean_loss_of_validation_weighs_every_token_alike() -> None:
    model, batches = _model(), [_batch(3), _batch(97)]
    loss = mean_loss(loss_sum_function(model, "float32", CPU), batches, CPU)
    assert abs(loss - _gradients(model, batches)[0]) < 1e-6
    assert mean_loss(loss_sum_function(model, "float32", CPU), [_batch(0)], CPU) == 0.0


def test_with_a_document_mask_one_document_cannot_reach_the_loss_of_another() -> None:
    model = _model()
    ids = torch.tensor([[0, 11, 12, 13, 0, 21, 22, 23]])
    labels = torch.full_like(ids, IGNORED)
    labels[0, 5:] = torch.tensor([22, 23, 24])
    other = ids.clone()
    other[0, 1:4] = torch.tensor([31, 32, 33])
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    loss = loss_sum_function(model, "float32", CPU)
    assert loss(ids, labels, documents).item() == loss(other, labels, documents).item()
    assert loss(ids, labels).item() != loss(other, labels).item()


def test_bfloat16_losses_stay_near_float32_ones() -> None:
    model, batch = _model(), _batch(97)
    full = loss_sum_function(model, "float32", CPU)(batch.input_ids, batch.labels).item()
    half = loss_sum_function(model, "bfloat16", CPU)(batch.input_ids, batch.labels).item()
    assert abs(full - half) / full < 0.01
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
