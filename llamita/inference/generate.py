"""Generates tokens for a batch of prompts through a KV cache, and streams them as events.

`Batch` is the numeric half: prefill, decode steps and sampling for rows of any lengths. `Reply` is
the textual half of one row: what is shown, and when it is over. `generate_events` runs the two
against each other.

A row's tokens do not depend on the rows beside it. The cache holds each token in the slot of its
position and a query sees no slot past its own, so no row needs a mask for the others' lengths, and
each row draws its random numbers from its own seed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llamita.errors import GenerationError
from llamita.inference.modes import Evaluating
from llamita.inference.params import SamplingParams
from llamita.inference.sampling import NO_TOKEN, UniformStream, choose
from llamita.inference.stopping import FinishReason, StopStrings, context_length, token_limit
from llamita.model.kv_cache import KVCache
from llamita.model.transformer import Transformer
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.incremental import IncrementalDetokenizer

_PREFILL_CHUNK = 512  # tokens of a row in one pass: bounds the memory of long prompts
_MAX_ROWS = 64  # prompts decoded together; more wait their turn


@dataclass(frozen=True)
class TokenEvent:
    """One step of one row.

    token_id is None where nothing was generated: a stop token came, or there was no room at all.
    text is what became certain with this step, and may be empty. The row's last event carries a
    finish_reason, and the stop token or stop string that ended it as stop_reason.
    """

    row: int
    token_id: int | None
    text: str
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None


def generate_events(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    *,
    stop_token_ids: Collection[int],
    tokenizer: Tokenizer | None = None,
) -> Iterator[TokenEvent]:
    """Continue each prompt (token ids, not empty), in step, until all have finished.

    Without a tokenizer the events carry no text. Events of one row come in order; rows of one step
    in the order of the prompts.

    Raises:
        GenerationError: a prompt is longer than the context, or the logits are not numbers.
    """
    context = context_length(model.config)
    limits = [token_limit(len(prompt), params.max_tokens, context) for prompt in prompts]
    for first in range(0, len(prompts), _MAX_ROWS):
        rows = range(first, min(first + _MAX_ROWS, len(prompts)))
        yield from (TokenEvent(row, None, "", "length") for row in rows if limits[row] == 0)
        replies = [
            Reply(row, prompts[row], limits[row], frozenset(stop_token_ids), params.stop, tokenizer)
            for row in rows
            if limits[row] > 0
        ]
        if replies:
            batch = Batch(
                model,
                [prompts[reply.row] for reply in replies],
                params,
                capacity=max(len(prompts[reply.row]) + reply.limit for reply in replies),
                vocab_size=tokenizer.vocab_size if tokenizer else model.config.vocab_size,
            )
            yield from _run(batch, replies)


def _run(batch: Batch, replies: list[Reply]) -> Iterator[TokenEvent]:
    while True:
        for reply, token_id in zip(replies, batch.next_tokens(), strict=True):
            if not reply.finished:
                yield reply.accept(token_id)
        live = [place for place, reply in enumerate(replies) if not reply.finished]
        if not live:
            return
        # Dropping rows copies the cache: done when half of them are over, that is one copy in all.
        if 2 * len(live) <= len(replies):
            batch.keep_rows(live)
            replies = [replies[place] for place in live]


class Reply:
    """The text of one row, and when it is over."""

    def __init__(
        self,
        row: int,
        prompt: Sequence[int],
        limit: int,
        stop_token_ids: frozenset[int],
        stop: Sequence[str],
        tokenizer: Tokenizer | None,
    ) -> None:
        self.row = row
        self.limit = limit
        self.finished = False
        self._count = 0
        self._stop_token_ids = stop_token_ids
        self._stop_strings = StopStrings(stop)
        self._detokenizer = IncrementalDetokenizer(tokenizer) if tokenizer else None
        if self._detokenizer:
            # The text goes on from the prompt's: with its leading space, and with the rest of a
            # character that the prompt began.
            for token_id in prompt:
                self._detokenizer.push(token_id)

    def accept(self, token_id: int) -> TokenEvent:
        """Take the row's next token."""
        if token_id == NO_TOKEN:
            raise GenerationError(
                "the model's logits are not numbers (NaN): its weights or their precision are bad.",
                hint="Try dtype float32, or another checkpoint of the run.",
            )
        if token_id in self._stop_token_ids:
            self.finished = True
            return TokenEvent(self.row, None, self._rest(), "stop", token_id)
        self._count += 1
        text = (
            self._stop_strings.push(self._detokenizer.push(token_id)) if self._detokenizer else ""
        )
        if self._stop_strings.matched is None and self._count == self.limit:
            text += self._rest()
            self.finished = True
        if self._stop_strings.matched is not None:
            self.finished = True
            return TokenEvent(self.row, token_id, text, "stop", self._stop_strings.matched)
        return TokenEvent(self.row, token_id, text, "length" if self.finished else None)

    def _rest(self) -> str:
        """All that was held back, the text being over: half characters, beginnings of stops."""
        if self._detokenizer is None:
            return ""
        return self._stop_strings.push(self._detokenizer.finish()) + self._stop_strings.finish()


class Batch:
    """Prompts of any lengths, prefilled together and decoded in step, with their own cache.

    capacity: the highest position any row may reach, plus one. vocab_size: ids from there on are
    never chosen (a vocabulary padded beyond the tokenizer's).
    """

    def __init__(
        self,
        model: Transformer,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        capacity: int,
        vocab_size: int,
    ) -> None:
        self._model = model
        self._evaluating = Evaluating(model)
        self._params = params
        self._capacity = capacity
        self._vocab_size = min(vocab_size, model.config.vocab_size)
        weight = model.lm_head.weight
        self._device = weight.device
        with torch.inference_mode():
            self._cache = KVCache(model.config, len(prompts), capacity, weight.dtype, self._device)
            self._seen = self._seen_in(prompts)
        self._uniform = UniformStream(len(prompts), params.seed, self._device)
        self._prompts: Sequence[Sequence[int]] | None = prompts
        self._positions = torch.empty(0)
        self._tokens = torch.empty(0)

    @torch.inference_mode()
    def next_tokens(self) -> list[int]:
        """One more token for each row: the first call reads the prompts."""
        with self._evaluating:
            logits = self._prefill(self._prompts) if self._prompts else self._decode()
        self._prompts = None
        logits = logits[:, 0, : self._vocab_size]
        tokens = choose(logits, self._params, self._seen, self._uniform.next())
        token_ids: list[int] = tokens.tolist()
        self._tokens = tokens.clamp(min=0)[:, None]
        if self._seen is not None:
            self._seen.scatter_(1, self._tokens, True)
        return token_ids

    @torch.inference_mode()
    def keep_rows(self, rows: list[int]) -> None:
        """Go on with these rows alone, in this order."""
        index = torch.tensor(rows, device=self._device)
        self._cache.keep_rows(index)
        self._positions, self._tokens = self._positions[index], self._tokens[index]
        self._seen = None if self._seen is None else self._seen[index]
        self._uniform.keep_rows(rows)

    def _seen_in(self, prompts: Sequence[Sequence[int]]) -> Tensor | None:
        if self._params.repetition_penalty == 1.0:
            return None
        seen = torch.zeros(len(prompts), self._vocab_size, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            seen[row, [token_id for token_id in set(prompt) if token_id < self._vocab_size]] = True
        return seen.to(self._device)

    def _prefill(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Read the prompts chunk by chunk; gives the logits [B, 1, V] after each row's last token.

        Short rows are padded by their last token at its own position. It writes what stands there
        already, gives the logits that are wanted, and leaves a row's length its own (rotary
        scalings may depend on it).
        """
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        longest = int(lengths.max())
        ids = torch.tensor([[*p, *[p[-1]] * (longest - len(p))] for p in prompts])
        positions = torch.minimum(torch.arange(longest), lengths[:, None] - 1)
        logits = torch.empty(0)
        for start in range(0, longest, _PREFILL_CHUNK):
            chunk = slice(start, min(start + _PREFILL_CHUNK, longest))
            logits = self._model(
                ids[:, chunk].to(self._device),
                positions[:, chunk].to(self._device),
                cache=self._cache,
                last_positions=torch.full_like(lengths, chunk.stop - start - 1).to(self._device),
                row_lengths=lengths.to(self._device),
            )
        self._positions = lengths[:, None].to(self._device)
        return logits

    def _decode(self) -> Tensor:
        """Feed the last tokens; gives the logits [B, 1, V] after them.

        Rows that are over go on in step, at no position past the cache: nobody reads them.
        """
        logits: Tensor = self._model(self._tokens, self._positions, cache=self._cache)
        self._positions = (self._positions + 1).clamp(max=self._capacity - 1)
        return logits
