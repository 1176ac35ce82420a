"""The distillation loss: its value and gradients, chunk by chunk, against the plain formula."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from llamita.config import preset
from llamita.data.rows import IGNORED
from llamita.model import Transformer
from llamita.training.settings.recipe import Teacher
from llamita.training.steps.compiling import CompiledLoss, has_compiler
from llamita.training.steps.cross_entropy import head_loss_sum
from llamita.training.steps.distillation import distillation_chunk_loss, distillation_loss_sum
from llamita.training.steps.step import Compile, LossSum, loss_sum_function

CPU = torch.device("cpu")


def _plain(
    logits: torch.Tensor, guide: torch.Tensor, labels: torch.Tensor, weight: float, t: float
) -> torch.Tensor:
    labelled = labels != IGNORED
    both = min(logits.shape[1], guide.shape[1])
    cross_entropy = F.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")
    divergence = F.kl_div(
        (logits[labelled, :both] / t).log_softmax(-1),
        (guide[labelled, :both] / t).log_softmax(-1),
        log_target=True,
        reduction="sum",
    )
    return (1 - weight) * cross_entropy + weight * t**2 * divergence


def _tensors(vocabulary: int = 13, others: int = 13) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(11, 6, generator=draw)
    head = torch.randn(vocabulary, 6, generator=draw)
    guide = torch.randn(11, 8, generator=draw)
    guide_head = torch.randn(others, 8, generator=draw)
    labels = torch.randint(0, min(vocabulary, others), (11,), generator=draw)
    labels[[0, 4, 5]] = IGNORED
    return hidden, head, guide, guide_head, labels


def _chunked(
    hidden: torch.Tensor,
    head: torch.Tensor,
    guide: torch.Tensor,
    guide_head: torch.Tensor,
    labels: torch.Tensor,
    weight: float,
    temperature: float,
    rows: int = 4,
) -> torch.Tensor:
    def of_chunk(
        logits: torch.Tensor, labels: torch.Tensor, rows: slice
    ) -> tuple[torch.Tensor, torch.Tensor]:
        guiding = guide[rows] @ guide_head.t()
        return distillation_chunk_loss(logits, guiding, labels, weight, temperature)

    return head_loss_sum(hidden, head, labels, torch.float32, of_chunk, rows)


@pytest.mark.parametrize("rows", [1, 4, 11, 64])
@pytest.mark.parametrize(("weight", "temperature"), [(0.5, 1.0), (0.7, 3.0), (1.0, 2.0)])
@pytest.mark.parametrize("others", [13, 10, 16])
def test_chunks_give_the_plain_formulas_value_and_gradients(
    rows: int, weight: float, temperature: float, others: int
) -> None:
    hidden, head, guide, guide_head, labels = _tensors(others=others)
    results = []
    for chunked in (True, False):
        h, w = hidden.clone().requires_grad_(), head.clone().requires_grad_()
        if chunked:
            loss = _chunked(h, w, guide, guide_head, labels, weight, temperature, rows)
        else:
            loss = _plain(h @ w.t(), guide @ guide_head.t(), labels, weight, temperature)
        (loss * 0.25).backward()  # type: ignore[no-untyped-call]
        results.append((loss.detach(), h.grad, w.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_gradients_are_those_of_finite_differences() -> None:
    hidden, head, guide, guide_head, labels = _tensors()
    h, w = hidden[:3].clone().requires_grad_(), head.clone().requires_grad_()
    arguments = (guide[:3], guide_head, labels[:3], 0.6, 2.0)
    _chunked(h, w, *arguments).backward()  # type: ignore[no-untyped-call]
    assert h.grad is not None
    step = 1e-2
    for place in ((1, 2), (2, 5)):
        moved = [hidden[:3].clone(), hidden[:3].clone()]
        moved[0][place] += step
        moved[1][place] -= step
        up, down = (_chunked(m, head, *arguments).item() for m in moved)
        assert (up - down) / (2 * step) == pytest.approx(float(h.grad[place]), rel=1e-2, abs=1e-3)


def _models() -> tuple[Transformer, Transformer]:
    student = Transformer(preset("tiny", 40, residual_dropout=0.1)).initialize(0)
    teacher = Transformer(preset("tiny", 40, num_hidden_layers=3, hidden_size=32)).initialize(1)
    return student.eval(), teacher.eval().requires_grad_(False)


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    ids = torch.randint(0, 40, (2, 9), generator=draw)
    return ids[:, :-1], ids[:, 1:].clone()


def test_a_teacher_that_is_the_student_adds_nothing() -> None:
    student, _ = _models()
    ids, labels = _batch()
    loss = distillation_loss_sum(student, student, Teacher(model="-", weight=0.25), "float32", CPU)
    plain = loss_sum_function(student, "float32", CPU)
    torch.testing.assert_close(loss(ids, labels), 0.75 * plain(ids, labels))


def test_unlabelled_tokens_count_nothing_and_the_teacher_learns_nothing() -> None:
    student, teacher = _models()
    ids, labels = _batch()
    loss = distillation_loss_sum(student, teacher, Teacher(model="-", weight=0.5), "float32", CPU)
    labels[:, 5:] = IGNORED
    before = loss(ids, labels)
    other = ids.clone()
    other[:, 5:] = 0
    torch.testing.assert_close(loss(other, labels), before)
    labels[:] = IGNORED
    nothing = loss(ids, labels)
    nothing.backward()  # type: ignore[no-untyped-call]
    assert nothing.item() == 0
    assert all(p.grad is None or not p.grad.any() for p in student.parameters())
    assert all(p.grad is None for p in teacher.parameters())


def test_documents_are_kept_apart_for_the_teacher_too() -> None:
    student, teacher = _models()
    ids, labels = _batch()
    loss = distillation_loss_sum(student, teacher, Teacher(model="-", weight=1.0), "float32", CPU)
    fences = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]] * 2)
    labels[:, :4] = IGNORED
    before = loss(ids, labels, fences)
    other = ids.clone()
    other[:, :4] = 7
    torch.testing.assert_close(loss(other, labels, fences), before)
    assert not math.isclose(loss(other, labels).item(), loss(ids, labels).item(), rel_tol=1e-6)


def test_in_bfloat16_the_loss_is_nearly_the_same() -> None:
    student, teacher = _models()
    ids, labels = _batch()
    settings = Teacher(model="-", weight=0.5, temperature=2.0)
    exact, rough = (
        distillation_loss_sum(student, teacher, settings, precision, CPU)(ids, labels)
        for precision in ("float32", "bfloat16")
    )
    assert float(rough.detach()) == pytest.approx(float(exact.detach()), rel=0.01)


@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(CPU), reason="needs a C++ compiler")
def test_compiled_it_gives_the_same_loss_and_gradients() -> None:
    student, teacher = _models()
    ids, labels = _batch()
    settings = Teacher(model="-", weight=0.5, temperature=2.0)

    def make(compiled: Compile) -> LossSum:
        return distillation_loss_sum(student, teacher, settings, "float32", CPU, compiled)

    gradients = []
    for loss in (make(lambda of: of), CompiledLoss(student, make, pytest.fail)):
        student.zero_grad(set_to_none=True)
        loss(ids, labels).backward()  # type: ignore[no-untyped-call]
        gradients.append([p.grad.clone() for p in student.parameters() if p.grad is not None])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
