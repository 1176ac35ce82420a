"""How likely texts are after another: the answers to a question, each against the others.

Context and continuation are encoded as one text, as a model would write them. Where the border
between them falls inside a token, the tokens from there on are scored, for every continuation of
the context from the same place, so that none is favoured by the way it was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llamita.config import ModelConfig
from llamita.errors import DataError
from llamita.evaluation.beginning import document_start
from llamita.evaluation.scoring import Window, nats_and_greedy, score_windows
from llamita.inference.prompts import check_token_ids
from llamita.model.transformer import Transformer
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import ChatFormat


@dataclass(frozen=True)
class Continuation:
    """Token ids: `context`, at least one, and the `targets` after it."""

    context: Sequence[int]
    targets: Sequence[int]

    @property
    def length(self) -> int:
        """Tokens that a model reads to score it: all but the last."""
        return len(self.context) + len(self.targets) - 1


class Likelihood(NamedTuple):
    """`log_likelihood` in nats, 0 or less; `is_greedy`: the model would write just this."""

    log_likelihood: float
    is_greedy: bool


@dataclass(frozen=True)
class _Numbered(Window):
    number: int


def encode_continuations(
    tokenizer: Tokenizer, config: ModelConfig, context: str, continuations: Sequence[str]
) -> list[Continuation]:
    """The continuations of a context, which is a document's beginning and stands behind its mark.

    Raises:
        TokenizerError: no token marks a document's beginning.
        DataError: a continuation gives no token.
    """
    start = document_start(tokenizer, config, "Answers need one to be read from.")
    alone, *whole = tokenizer.encode_batch([context, *(context + text for text in continuations)])
    return _behind([start, *alone], [[start, *ids] for ids in whole], continuations, config)


def encode_answers(
    chat: ChatFormat, config: ModelConfig, message: str, answers: Sequence[str]
) -> list[Continuation]:
    """What the assistant might answer to a user's message, as the chat template writes both.

    Raises:
        DataError: an answer gives no token.
    """
    parts = chat.parts([{"role": "user", "content": message}], None, True)
    if not parts or not isinstance(parts[-1], str):
        parts = [*parts, ""]
    *before, header = parts
    alone, *whole = [chat.encode_parts([*before, f"{header}{text}"]) for text in ("", *answers)]
    return _behind(alone, whole, answers, config)


def _behind(
    alone: Sequence[int],
    whole: Sequence[Sequence[int]],
    continuations: Sequence[str],
    config: ModelConfig,
) -> list[Continuation]:
    """Each whole cut where all of them still begin as the context alone does."""
    check_token_ids((token_id for ids in whole for token_id in ids), config.vocab_size, "the text")
    shared = max(1, min([len(alone), *(_common(alone, ids) for ids in whole)]))
    encoded = []
    for continuation, ids in zip(continuations, whole, strict=True):
        if len(ids) == shared:
            raise DataError(f"the answer {continuation!r} gives no token of its own.")
        encoded.append(Continuation(ids[:shared], ids[shared:]))
    return encoded


def score_continuations(
    model: Transformer,
    continuations: Sequence[Continuation],
    *,
    context_length: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> list[Likelihood]:
    """The likelihood of each, in order. Of what is longer than the context the beginning goes.

    `progress` is called with the number that were scored since it was called last.

    Raises:
        DataError: targets longer than the context.
        CheckpointError: the model computes no numbers.
    """
    longest = context_length or model.config.max_position_embeddings
    found = [Likelihood(0.0, True)] * len(continuations)
    windows = (
        _window(continuation, number, longest)
        for number, continuation in enumerate(continuations)
        if continuation.targets
    )
    for window, measured in score_windows(model, windows, nats_and_greedy):
        nats, is_greedy = measured.sum(axis=0)[0], measured[:, 1].all()
        found[window.number] = Likelihood(-float(nats), bool(is_greedy))
        if progress is not None:
            progress(1)
    return found


def _window(continuation: Continuation, number: int, longest: int) -> _Numbered:
    targets = continuation.targets
    if len(targets) > longest:
        raise DataError(
            f"a continuation has {len(targets)} tokens; the model's context holds {longest}."
        )
    inputs = [*continuation.context, *targets[:-1]][-longest:]
    return _Numbered(inputs, len(inputs) - len(targets), targets, number)


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many ids two sequences begin with alike."""
    for place, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return place
    return min(len(left), len(right))
