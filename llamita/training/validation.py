"""Looking at a model while it trains: loss on held-out rows, and a sample of its text."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from llamita.data.corpus import VALIDATION_CHATS_NAME
from llamita.data.loader import Batch, sequential_batches
from llamita.data.rows import IGNORED, make_rows
from llamita.data.training_data import TrainingData
from llamita.errors import TokenizerError
from llamita.inference.lm import LM
from llamita.model import Transformer
from llamita.text.chats import Chat, read_chat
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import ChatFormat
from llamita.training.ranks.sharding import give_up_whole
from llamita.training.ranks.world import World
from llamita.training.settings.recipe import Recipe
from llamita.training.steps.step import LossSum, mean_loss


@dataclass(frozen=True)
class ValidationSet:
    """The held-out rows of one source. `share` is its part of the training."""

    name: str
    share: float
    bytes_per_token: float
    batches: list[Batch]


@dataclass(frozen=True)
class Validation:
    """`loss` in nats a token and `bits_per_byte` over all sources, each with its share; `values`
    are both for the log, and the loss of each source where there are several."""

    loss: float
    bits_per_byte: float
    values: dict[str, Any]


def validation_sets(
    data: TrainingData, recipe: Recipe, sequences: int | None = None, world: World = World()
) -> list[ValidationSet]:
    """The rows every validation of a run uses, for each source that holds any out.

    They are spread evenly over the held-out split, and dealt out to the ranks. Batches are filled
    up with unlabelled rows to `sequences` (None: the recipe's), so that a compiled loss meets one
    shape only, and every rank has as many batches.
    """
    batch = recipe.batch
    sequences = sequences or batch.sequences
    wanted = max(1, recipe.watch.validation_tokens // batch.context_length)
    sets = []
    for name, share, folder in zip(data.names, data.shares, data.folders, strict=True):
        if folder.manifest.val.tokens == 0:
            continue
        dataset = folder.dataset("val")
        rows = make_rows(dataset, batch.context_length, batch.packing, batch.document_mask)
        limit = max(1, round(wanted * share))
        batches = [_filled(part, sequences) for part in sequential_batches(rows, sequences, limit)]
        if any((part.labels != IGNORED).any() for part in batches):
            own = _dealt(batches, world)
            sets.append(ValidationSet(name, share, folder.manifest.val.bytes_per_token, own))
    return sets


def _filled(batch: Batch, rows: int) -> Batch:
    missing = (0, 0, 0, rows - batch.input_ids.shape[0])
    documents = batch.document_ids
    return Batch(
        F.pad(batch.input_ids, missing),
        F.pad(batch.labels, missing, value=IGNORED),
        None if documents is None else F.pad(documents, missing),
    )


def _dealt(batches: list[Batch], world: World) -> list[Batch]:
    """Those of this rank; unlabelled ones where there are too few for all."""
    first = batches[0]
    blank = Batch(first.input_ids, torch.full_like(first.labels, IGNORED), first.document_ids)
    missing = -len(batches) % world.size
    return [*batches, *[blank] * missing][world.rank :: world.size]


def validate(
    model: Transformer,
    loss_sum: LossSum,
    sets: Sequence[ValidationSet],
    device: torch.device,
    world: World = World(),
) -> Validation:
    """Mean loss on held-out rows, without dropout; there must be at least one set."""
    has_dropout = model.model.draws
    if has_dropout:
        model.eval()
    try:
        # With dropout this is a graph of its own in any case. One that is never run backward is
        # not kept for the next process, which took ten seconds of each resume; one without is.
        with torch.set_grad_enabled(not has_dropout):
            losses = [mean_loss(loss_sum, one.batches, device, world) for one in sets]
    finally:
        model.train()
        give_up_whole(model)
    whole = sum(one.share for one in sets)
    loss = sum(one.share * loss for one, loss in zip(sets, losses, strict=True)) / whole
    bytes_per_token = sum(one.share * one.bytes_per_token for one in sets) / whole
    bits_per_byte = loss / math.log(2) / bytes_per_token
    values = {"validation_loss": loss, "validation_bits_per_byte": bits_per_byte}
    if len(sets) > 1:
        values |= {
            f"validation_loss/{one.name}": of_one for one, of_one in zip(sets, losses, strict=True)
        }
    return Validation(loss, bits_per_byte, values)


def sample(
    model: Transformer, tokenizer: Tokenizer, recipe: Recipe, question: Question | None = None
) -> str:
    """A continuation of the recipe's prompt, or, where it has none, an answer to a question; drawn
    with a fixed seed. Leaves the RNG as it was."""
    settings: dict[str, Any] = {
        "max_tokens": recipe.watch.sample_tokens,
        "temperature": 0.8,
        "top_p": 0.95,
        "seed": recipe.seed,
    }
    lm = LM(model, tokenizer)
    if question is not None and not recipe.watch.sample_prompt:
        answer = lm.generate(question.prompt, **settings)
        return f"{question.text} → {ChatFormat.of(tokenizer).answer_text(answer.token_ids)}"
    prompt = recipe.watch.sample_prompt or _beginning(tokenizer)
    return recipe.watch.sample_prompt + lm.generate(prompt, stop_token_ids=[], **settings).text


@dataclass(frozen=True)
class Question:
    """What a person asks in a held-out chat, as text, and the ids with which it is answered."""

    text: str
    prompt: list[int]


def held_out_question(data: TrainingData, tokenizer: Tokenizer) -> Question | None:
    """The beginning of the first held-out chat, up to the first answer; None where there are other
    texts than chats, or none is held out."""
    for folder in data.folders:
        documents = folder.manifest.train.documents + folder.manifest.val.documents
        path = folder.directory / VALIDATION_CHATS_NAME
        if folder.manifest.chats < documents or not path.is_file():
            continue
        with path.open(encoding="utf-8") as file:
            chat = read_chat(json.loads(file.readline()), path.name)
        if chat is None:
            continue
        roles = [message["role"] for message in chat.messages]
        asked = chat.messages[: roles.index("assistant")]
        if asked:
            prompt = ChatFormat.of(tokenizer).encode(asked, chat.tools, add_generation_prompt=True)
            return Question(Chat(asked[-1:]).text, prompt)
    return None


def _beginning(tokenizer: Tokenizer) -> str | list[int]:
    """The prompt where none is asked for: none, or, where no token begins a document, an end of a
    line, as nanoGPT has it."""
    if tokenizer.bos_token_id is not None or tokenizer.eos_token_id is not None:
        return ""
    with contextlib.suppress(TokenizerError):
        return tokenizer.encode("\n") or [0]
    return [0]
