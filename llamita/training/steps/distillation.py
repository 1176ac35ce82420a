"""Learning from a teacher's predictions as well as from the text (arXiv:1503.02531).

For each labelled token, with the share w and the temperature T:

    loss = (1 - w) × cross-entropy + w × T² × KL(softmax(teacher / T) ‖ softmax(student / T))

Only a chunk of both models' logits exists at a time.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from llamita.data.rows import IGNORED
from llamita.model import Transformer
from llamita.training.machine.precision import DTYPES, autocast
from llamita.training.settings.recipe import Teacher
from llamita.training.steps.cross_entropy import head_loss_sum
from llamita.training.steps.step import Compile, LossSum


def distillation_loss_sum(
    student: Transformer,
    teacher: Transformer,
    settings: Teacher,
    precision: str,
    device: torch.device,
    compiled: Compile = lambda of: of,
) -> LossSum:
    """A function as `loss_sum_function` gives, of the loss above in place of the cross-entropy.

    The teacher computes in the precision of its own weights; nothing of it is changed.
    """
    of_logits = compiled(distillation_chunk_loss)

    def loss_sum(input_ids: Tensor, labels: Tensor, document_ids: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            guide = teacher.hidden_states(input_ids, document_ids=document_ids).flatten(0, 1)
        with autocast(precision, device):
            hidden = student.hidden_states(input_ids, document_ids=document_ids)

        def of_chunk(logits: Tensor, labels: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
            guiding = F.linear(guide[rows], teacher.lm_head.weight)
            loss, gradient = of_logits(
                logits, guiding, labels, settings.weight, settings.temperature
            )
            return loss, gradient

        head = student.lm_head.weight
        return head_loss_sum(hidden, head, labels, DTYPES[precision], of_chunk)

    return loss_sum


def distillation_chunk_loss(
    logits: Tensor, guide: Tensor, labels: Tensor, weight: float, temperature: float
) -> tuple[Tensor, Tensor]:
    """The loss of a chunk and its gradient by the student's logits [N, V]: see `ChunkLoss`.

    guide: the teacher's logits [N, W]. Where the tables are padded to different lengths,
    predictions are compared over the ids that both have. With q and p the softened predictions of
    student and teacher, the gradient of T² × KL by the student's logits is T × (q - p).
    """
    dtype, logits, guide = logits.dtype, logits.float(), guide.float()
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
        softened = F.pad(softened, (0, logits.shape[1] - both))
    labelled = is_labelled.float()
    return (losses * labelled).sum(), ((gradient + softened) * labelled).to(dtype)
