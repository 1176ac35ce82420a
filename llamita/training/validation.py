"""Looking at a model while it trains: loss on held-out blocks, and a sample of its text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F

from llamita.data.dataset import TokenDataset
from llamita.data.loader import Batch, sequential_batches
from llamita.data.manifest import Manifest
from llamita.inference.lm import LM
from llamita.model import Transformer
from llamita.tokenizer.base import Tokenizer
from llamita.training.recipe import Recipe
from llamita.training.step import IGNORED, LossSum, mean_loss


def validation_batches(data: Path, recipe: Recipe) -> list[Batch]:
    """The blocks every validation of a run uses, or none where nothing is held out.

    They are spread evenly over the held-out split. The last batch is filled up with unlabelled
    rows, so that a compiled loss meets one shape only.
    """
    if Manifest.load(data).val.tokens == 0:
        return []
    dataset = TokenDataset.open(data, "val")
    length, rows = recipe.batch.context_length, recipe.batch.sequences
    blocks = max(1, recipe.watch.validation_tokens // length)
    return [_filled(batch, rows) for batch in sequential_batches(dataset, length, rows, blocks)]


def _filled(batch: Batch, rows: int) -> Batch:
    missing = rows - batch.input_ids.shape[0]
    return Batch(
        F.pad(batch.input_ids, (0, 0, 0, missing)),
        F.pad(batch.labels, (0, 0, 0, missing), value=IGNORED),
    )


def validate(
    model: Transformer, loss_sum: LossSum, batches: Sequence[Batch], device: torch.device
) -> float:
    """Mean loss on held-out blocks in nats a token, without dropout."""
    has_dropout = model.config.attention_dropout > 0 or model.config.residual_dropout > 0
    if has_dropout:
        model.eval()
    try:
        return mean_loss(loss_sum, batches, device)
    finally:
        model.train()


def bits_per_byte(loss: float, manifest: Manifest) -> float:
    """What a loss in nats a token means in bits a byte of held-out text, separators included."""
    return loss / math.log(2) * manifest.val.tokens / max(1, manifest.val.bytes)


def sample(model: Transformer, tokenizer: Tokenizer, recipe: Recipe) -> str:
    """A continuation of the recipe's prompt, drawn with a fixed seed. Leaves the RNG as it was."""
    generation = LM(model, tokenizer).generate(
        recipe.watch.sample_prompt,
        max_tokens=recipe.watch.sample_tokens,
        temperature=0.8,
        top_p=0.95,
        seed=recipe.seed,
        stop_token_ids=[],
    )
    return recipe.watch.sample_prompt + generation.text
