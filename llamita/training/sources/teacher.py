"""The teacher of a run (`--teacher MODEL`): opened, checked against the data, ready to predict."""

from __future__ import annotations

from pathlib import Path

import torch

from llamita.config import ModelConfig
from llamita.errors import TrainingError
from llamita.formats.checkpoint import build_model
from llamita.model import Transformer
from llamita.model.placement import parse_dtype
from llamita.model.precision import is_slow
from llamita.tokenizer import Tokenizer
from llamita.training.ranks.world import World
from llamita.training.settings.recipe import Recipe, Teacher
from llamita.training.sources.inputs import check_same
from llamita.training.sources.model_source import ModelSource, longest_context
from llamita.training.sources.token_rows import relate


def load_same_teacher(
    recipe: Recipe, tokenizer: Tokenizer, device: torch.device, world: World
) -> tuple[Transformer, Teacher]:
    """As `load_teacher`, by all ranks together: one model, in the first rank's precision.

    Raises:
        LlamitaError: as there, on any rank; or a rank reads another model.
    """
    with world.agreed():
        model, settled = load_teacher(recipe, tokenizer, device)
    check_same(f"teacher in {settled.model}", settled.fingerprint or "", world)
    settled = world.from_first(settled)
    return model.to(parse_dtype(settled.precision)), settled


def load_teacher(
    recipe: Recipe, tokenizer: Tokenizer, device: torch.device
) -> tuple[Transformer, Teacher]:
    """The model that `recipe.teacher` names, frozen, and its settings with nothing left open.

    Raises:
        LlamitaError: there is no such model, it is not the one that the recipe was written for,
            it speaks other tokens than the data's, or its context is too short.
    """
    if recipe.teacher is None:
        raise ValueError("the recipe names no teacher")
    settings, path = recipe.teacher, recipe.teacher.model
    source = ModelSource.open(path, "teacher")
    if relate(source.tokenizer, tokenizer) != "same":
        raise TrainingError(
            f"the tokenizer of the teacher {path} ({source.tokenizer.vocab_size:,} tokens) is not "
            f"the data's ({tokenizer.vocab_size:,}); what they predict cannot be compared.",
            hint=f"Prepare the data with the teacher's: llamita prepare TEXT --tokenizer {path}",
        )
    config = source.checkpoint.config
    if recipe.batch.context_length > longest_context(config):
        raise TrainingError(
            f"batch.context_length is {recipe.batch.context_length}; the teacher {path} has "
            f"positions for {longest_context(config)}.",
            hint=f"Train on --set batch.context_length={longest_context(config)} or less.",
        )
    precision: str = settings.precision
    if precision == "auto":
        precision = _own_precision(source.checkpoint.dtype, device)
    fingerprint = source.checked_fingerprint(settings.fingerprint, "teacher", "teacher.fingerprint")
    model = build_model(source.checkpoint, device, parse_dtype(precision))
    settled = settings.model_copy(
        update={
            "model": str(Path(path).absolute()),
            "precision": precision,
            "fingerprint": fingerprint,
        }
    )
    return model.requires_grad_(False), settled


def teacher_shape(recipe: Recipe) -> ModelConfig | None:
    """Of the model that `recipe.teacher` names, if it names one; LlamitaError as `load_teacher`."""
    if recipe.teacher is None:
        return None
    return ModelSource.open(recipe.teacher.model, "teacher").checkpoint.config


def _own_precision(stored: torch.dtype, device: torch.device) -> str:
    """That of its checkpoint, unless this machine is slow at it."""
    name = str(stored).removeprefix("torch.")
    if name not in ("bfloat16", "float16"):
        return "float32"
    is_quick = not is_slow(stored) if device.type == "cpu" else device.type == "cuda"
    return name if is_quick else "float32"
