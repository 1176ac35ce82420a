"""Learning from a teacher's predictions as well as from the text (arXiv:1503.02531).

For each labelled token, with the share w and the temperature T:

    loss = (1 - w) × cross-entropy + w × T² × KL(softmax(teacher / T) ‖ softmax(student / T))

Only a chunk of both models' logits exists at a time. The gradient of the hidden states and of the
head is known as soon as a chunk's loss is, so it is computed on the way and nothing is computed
twice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from llamita.model import Transformer
from llamita.training.precision import autocast
from llamita.training.recipe import Teacher
from llamita.training.step import IGNORED, LossSum

_CHUNK_LOGITS = 1 << 24  # 64 MB in float32 for each of a handful of tables


def distillation_loss_sum(
    student: Transformer,
    teacher: Transformer,
    settings: Teacher,
    precision: str,
    device: torch.device,
) -> LossSum:
    """A function as `loss_sum_function` gives, of the loss above in place of the cross-entropy.

    The teacher computes in the precision of its own weights; nothing of it is changed.
    """
    head_dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32

    def loss_sum(input_ids: Tensor, labels: Tensor, document_ids: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            guide = teacher.hidden_states(input_ids, document_ids=document_ids)
        with autocast(precision, device):
            hidden = student.hidden_states(input_ids, document_ids=document_ids)
        return distillation_sum(
            hidden.flatten(0, 1),
            student.lm_head.weight,
            guide.flatten(0, 1),
            teacher.lm_head.weight,
            labels.flatten(),
            settings.weight,
            settings.temperature,
            head_dtype,
        )

    return loss_sum


def distillation_sum(
    hidden: Tensor,
    head: Tensor,
    guide: Tensor,
    guide_head: Tensor,
    labels: Tensor,
    weight: float,
    temperature: float,
    dtype: torch.dtype = torch.float32,
    rows: int | None = None,
) -> Tensor:
    """The summed loss over labelled tokens, in nats (float32 scalar).

    Args:
        hidden: what the student's head reads, [N, C].
        head: the student's head, [V, C].
        guide, guide_head: the teacher's, [N, D] and [W, D]. Where the tables are padded to
            different lengths, predictions are compared over the ids that both have.
        labels: [N]; ignored tokens count nothing.
        dtype: of the student's matrix products.
        rows: tokens of a chunk; left out, as many as keep its logits at 64 MB.
    """
    rows = rows or max(1, _CHUNK_LOGITS // max(len(head), len(guide_head)))
    loss: Tensor = _DistillationSum.apply(  # type: ignore[no-untyped-call]
        hidden, head, guide, guide_head, labels, weight, temperature, dtype, rows
    )
    return loss


class _DistillationSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        guide: Tensor,
        guide_head: Tensor,
        labels: Tensor,
        weight: float,
        temperature: float,
        dtype: torch.dtype,
        rows: int,
    ) -> Tensor:
        narrow_head = head.to(dtype)
        wants_gradient = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        hidden_gradients = []
        head_gradient = torch.zeros_like(head, dtype=torch.float32)
        for start in range(0, len(hidden), rows):
            part = hidden[start : start + rows].to(dtype)
            loss, gradient = _chunk(
                (part @ narrow_head.t()).float(),
                (guide[start : start + rows] @ guide_head.t()).float(),
                labels[start : start + rows],
                weight,
                temperature,
            )
            total += loss
            if wants_gradient:
                gradient = gradient.to(dtype)
                hidden_gradients.append((gradient @ narrow_head).to(hidden.dtype))
                head_gradient += gradient.t() @ part
        if wants_gradient:
            ctx.save_for_backward(torch.cat(hidden_gradients), head_gradient.to(head.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, head_gradient = ctx.saved_tensors
        others = (None,) * 7
        return (
            hidden_gradient * gradient.to(hidden_gradient.dtype),
            head_gradient * gradient,
            *others,
        )


def _chunk(
    logits: Tensor, guide: Tensor, labels: Tensor, weight: float, temperature: float
) -> tuple[Tensor, Tensor]:
    """The loss of a chunk and its gradient by the student's logits [n, V], all float32.

    With q and p the softened predictions of student and teacher, the gradient of T² × KL by the
    student's logits is T × (q - p).
    """
    is_labelled = (labels != IGNORED)[:, None]
    targets = torch.where(labels == IGNORED, 0, labels)[:, None]
    log_probabilities = logits.log_softmax(-1)
    both = min(logits.shape[1], guide.shape[1])
    log_q = (logits[:, :both] / temperature).log_softmax(-1)
    log_p = (guide[:, :both] / temperature).log_softmax(-1)
    p = log_p.exp()
    divergence = (p * (log_p - log_q)).sum(-1, keepdim=True)
    losses = weight * temperature**2 * divergence
    losses = losses - (1 - weight) * log_probabilities.gather(1, targets)
    ids = torch.arange(logits.shape[1], device=logits.device)
    gradient = (1 - weight) * (log_probabilities.exp() - (ids == targets).float())
    softened = weight * temperature * (log_q.exp() - p)
    if both < logits.shape[1]:
        softened = torch.nn.functional.pad(softened, (0, logits.shape[1] - both))
    labelled = is_labelled.float()
    return (losses * labelled).sum(), (gradient + softened) * labelled
