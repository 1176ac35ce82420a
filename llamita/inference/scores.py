"""What a model says of given tokens: logits and loss, with the ids checked first."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from llamita.errors import GenerationError
from llamita.inference.modes import Evaluating
from llamita.inference.prompts import check_token_ids
from llamita.inference.stopping import context_length
from llamita.model.transformer import Transformer


@torch.no_grad()
def logits(model: Transformer, input_ids: Tensor | Sequence[Sequence[int]]) -> Tensor:
    """Float32 logits [B, T, V] of each token's successor, for ids [B, T]."""
    ids = _input_ids(model, input_ids)
    with Evaluating(model):
        result: Tensor = model(ids)
    return result.float()


@torch.no_grad()
def loss(
    model: Transformer,
    input_ids: Tensor | Sequence[Sequence[int]],
    labels: Tensor | Sequence[Sequence[int]] | None = None,
) -> Tensor:
    """Mean cross-entropy in nats of the labelled tokens [B, T]; see `LM.loss`."""
    ids = _input_ids(model, input_ids)
    targets = ids if labels is None else _labels(model, labels, ids.shape)
    with Evaluating(model):
        result: Tensor = model(ids)[:, :-1]
    targets = targets[:, 1:].reshape(-1)
    if not bool((targets != -100).any()):
        return torch.zeros((), device=ids.device)
    return F.cross_entropy(result.float().flatten(0, 1), targets)


def _input_ids(model: Transformer, input_ids: Tensor | Sequence[Sequence[int]]) -> Tensor:
    ids = _matrix(input_ids, "input_ids")
    context = context_length(model.config)
    if ids.shape[1] > context:
        raise GenerationError(
            f"input_ids has {ids.shape[1]} tokens a row; the model's context holds {context}."
        )
    size = model.config.vocab_size
    wrong = ids[(ids < 0) | (ids >= size)]
    check_token_ids(wrong[:1].tolist(), size, "input_ids")
    return ids.to(model.lm_head.weight.device)


def _labels(
    model: Transformer, labels: Tensor | Sequence[Sequence[int]], shape: torch.Size
) -> Tensor:
    targets = _matrix(labels, "labels")
    if targets.shape != shape:
        raise GenerationError(
            f"labels has shape {list(targets.shape)}, input_ids has {list(shape)}.",
            hint="They must have the same shape; the shift by one happens inside.",
        )
    size = model.config.vocab_size
    wrong = targets[((targets < 0) & (targets != -100)) | (targets >= size)]
    check_token_ids(wrong[:1].tolist(), size, "labels")
    return targets.to(model.lm_head.weight.device)


def _matrix(values: Tensor | Sequence[Sequence[int]], name: str) -> Tensor:
    try:
        matrix = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as cause:
        raise GenerationError(f"{name} is no matrix of token ids: {cause}.") from cause
    if matrix.numel() == 0:
        raise GenerationError(f"{name} has shape {list(matrix.shape)}: there is nothing to read.")
    if matrix.dim() != 2 or matrix.is_floating_point() or matrix.dtype == torch.bool:
        raise GenerationError(
            f"{name} has shape {list(matrix.shape)} and type {matrix.dtype}.",
            hint=f"{name} must be token ids of shape [batch, time], whole numbers.",
        )
    return matrix.long()
