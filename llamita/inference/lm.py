"""`llamita.LM`: a model with its tokenizer, for people who write Python.

lm = llamita.load("path")
lm.generate("Once upon", max_tokens=64, temperature=0).text
for piece in lm.stream("Once upon"): ...
lm.chat([{"role": "user", "content": "12*9?"}]).message
lm.logits(input_ids); lm.loss(input_ids)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from llamita.errors import GenerationError, TokenizerError
from llamita.formats.checkpoint import end_ids_of
from llamita.inference.engine import Engine
from llamita.inference.modes import Evaluating
from llamita.inference.params import SamplingParams
from llamita.inference.prompts import check_token_ids, read_chats, read_prompts
from llamita.inference.request import Request, TokenEvent
from llamita.inference.results import Generation, collect
from llamita.inference.stopping import context_length
from llamita.inference.torch_backend import TorchBackend
from llamita.model.transformer import Transformer
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import ChatFormat
from llamita.tokenizer.ends import end_ids

Prompt: TypeAlias = "str | list[int] | tuple[int, ...] | Tensor"
Prompts: TypeAlias = "list[str] | list[list[int]]"
Chat: TypeAlias = "Sequence[Mapping[str, Any]]"

__all__ = ["LM", "Generation"]


class LM:
    """A language model ready for use. `tokenizer` is None where the checkpoint has none.

    generation_config: the checkpoint's `generation_config.json`, for its stop tokens.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer | None = None,
        generation_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.config = model.config
        self.tokenizer = tokenizer
        self._generation_config = generation_config or {}

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return self.model.lm_head.weight.device

    @cached_property
    def engine(self) -> Engine:
        """What generates: shared by all calls, so that they run as one batch and reuse prefixes."""
        return Engine(TorchBackend(self.model), self.tokenizer)

    @torch.no_grad()
    def logits(self, input_ids: Tensor | Sequence[Sequence[int]]) -> Tensor:
        """Float32 logits [B, T, V] of each token's successor, for ids [B, T]."""
        ids = self._input_ids(input_ids)
        with Evaluating(self.model):
            logits: Tensor = self.model(ids)
        return logits.float()

    @torch.no_grad()
    def loss(
        self,
        input_ids: Tensor | Sequence[Sequence[int]],
        labels: Tensor | Sequence[Sequence[int]] | None = None,
    ) -> Tensor:
        """Mean cross-entropy in nats per labelled token, a float32 scalar.

        labels [B, T] default to input_ids and stand at the place of the token they name (the shift
        happens inside); -100 is not counted. 0 where nothing is labelled.
        """
        ids = self._input_ids(input_ids)
        targets = ids if labels is None else self._labels(labels, ids.shape)
        with Evaluating(self.model):
            logits: Tensor = self.model(ids)[:, :-1]
        targets = targets[:, 1:].reshape(-1)
        if not bool((targets != -100).any()):
            return torch.zeros((), device=self.device)
        return F.cross_entropy(logits.float().flatten(0, 1), targets)

    @overload
    def generate(self, prompt: Prompt, **settings: Any) -> Generation: ...
    @overload
    def generate(self, prompt: Prompts, **settings: Any) -> list[Generation]: ...
    def generate(self, prompt: Prompt | Prompts, **settings: Any) -> Generation | list[Generation]:
        """Continue a prompt, or a list of prompts as one batch.

        A prompt is text, which gets the tokenizer's BOS if it has one, or token ids, taken as they
        are. An empty one ("" or, in ids, `[[]]`) starts a document; an empty list gives `[]`. The
        settings are the fields of `SamplingParams`. In a batch every prompt gets what it would get
        alone with the same seed. A prompt that fills the context gives no token and finishes with
        "length".

        Raises:
            GenerationError: a wrong setting or prompt, by name and value.
        """
        prompts, is_batch = self._prompts(prompt)
        results = collect(prompts, self._events(prompts, settings))
        return results if is_batch else results[0]

    @overload
    def stream(self, prompt: Prompt, **settings: Any) -> Iterator[str]: ...
    @overload
    def stream(self, prompt: Prompts, **settings: Any) -> Iterator[tuple[int, str]]: ...
    def stream(
        self, prompt: Prompt | Prompts, **settings: Any
    ) -> Iterator[str] | Iterator[tuple[int, str]]:
        """`generate` piece by piece, as soon as each is certain: the pieces joined are its `text`.

        One prompt gives pieces; a list of prompts gives pairs (index of the prompt, piece).
        """
        prompts, is_batch = self._prompts(prompt)
        if self.tokenizer is None:
            raise GenerationError(
                "this model has no tokenizer, so there is no text to stream.",
                hint="`stream_events` and `generate` give token ids.",
            )
        events = (event for event in self._events(prompts, settings) if event.text)
        if is_batch:
            return ((event.row, event.text) for event in events)
        return (event.text for event in events)

    def stream_events(self, prompt: Prompt | Prompts, **settings: Any) -> Iterator[TokenEvent]:
        """`generate` token by token, with ids and finish reasons."""
        prompts, _ = self._prompts(prompt)
        return self._events(prompts, settings)

    @overload
    def chat(
        self,
        messages: Chat,
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        template_variables: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Generation: ...
    @overload
    def chat(
        self,
        messages: Sequence[Chat],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        template_variables: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> list[Generation]: ...
    def chat(
        self,
        messages: Chat | Sequence[Chat],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        template_variables: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Generation | list[Generation]:
        """Answer a conversation, or a list of conversations as one batch.

        Messages and tools are as in OpenAI's API. The answer is the generation's `message`; its
        `text` is the same without control tokens. `template_variables` reach the chat template
        (`enable_thinking`, …); the settings are those of `generate`.

        Raises:
            GenerationError: the model has no tokenizer or no chat template, or a wrong setting.
            TokenizerError: a wrong message, or one that the template refuses.
        """
        chats, is_batch = read_chats(messages)
        prompts = [self.chat_prompt(chat, tools, **(template_variables or {})) for chat in chats]
        results = [self._answered(result) for result in self.generate(prompts, **settings)]
        return results if is_batch else results[0]

    def chat_prompt(
        self,
        messages: Chat,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **template_variables: Any,
    ) -> list[int]:
        """The ids with which the model is asked for the next answer (for `generate`, `stream`)."""
        return self.chat_format.encode(messages, tools, True, **template_variables)

    @cached_property
    def chat_format(self) -> ChatFormat:
        """How the model is spoken to; GenerationError, with the way out, where that is not known.

        Raises TokenizerError where the model's template is damaged.
        """
        if self.tokenizer is None:
            raise GenerationError(
                "this model has no tokenizer, so it cannot chat.",
                hint="Add the tokenizer's files to the model's directory.",
            )
        if self.tokenizer.chat_template is None:
            raise GenerationError(
                "this model has no chat template: it was not taught to chat, or its template is "
                "lost.",
                hint="Use `generate`, or put the template of its training into its directory as "
                "chat_template.jinja.",
            )
        return ChatFormat.of(self.tokenizer)

    @cached_property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Every id that the checkpoint calls an end, and those that end a turn of its chats."""
        ids = {*end_ids_of(self.config, self._generation_config)}
        if self.tokenizer is not None:
            ids.update(self._ends_of_tokenizer(self.tokenizer))
        return tuple(sorted(ids))

    def _ends_of_tokenizer(self, tokenizer: Tokenizer) -> list[int]:
        try:
            ids = end_ids(tokenizer)
        except TokenizerError as error:  # what is no chat needs no template
            warnings.warn(
                f"what ends a turn is not known, so texts end at EOS alone: {error.message}",
                stacklevel=2,
            )
            ids = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
        return [token_id for token_id in ids if token_id < self.config.vocab_size]

    def _answered(self, result: Generation) -> Generation:
        text = self.chat_format.answer_text(result.token_ids)
        if isinstance(result.stop_reason, str):
            text = text.partition(result.stop_reason)[0]
        return replace(result, message=self.chat_format.parse(text))

    def _prompts(self, prompt: object) -> tuple[list[list[int]], bool]:
        return read_prompts(prompt, self.tokenizer, self.config)

    def _events(
        self, prompts: list[list[int]], settings: Mapping[str, Any]
    ) -> Iterator[TokenEvent]:
        params = SamplingParams.from_settings(settings)
        if params.stop and self.tokenizer is None:
            raise GenerationError(
                f"stop is {params.stop!r}, but this model has no tokenizer to find text with.",
                hint="Use stop_token_ids.",
            )
        stop_token_ids = params.stop_token_ids
        if stop_token_ids is None:
            stop_token_ids = self.stop_token_ids
        check_token_ids(stop_token_ids, self.config.vocab_size, "stop_token_ids")
        stops = frozenset(stop_token_ids)
        requests = [Request(prompt, params, stops, row) for row, prompt in enumerate(prompts)]
        return self.engine.run(requests)

    def _input_ids(self, input_ids: Tensor | Sequence[Sequence[int]]) -> Tensor:
        ids = _matrix(input_ids, "input_ids")
        context = context_length(self.config)
        if ids.shape[1] > context:
            raise GenerationError(
                f"input_ids has {ids.shape[1]} tokens a row; the model's context holds {context}."
            )
        wrong = ids[(ids < 0) | (ids >= self.config.vocab_size)]
        check_token_ids(wrong[:1].tolist(), self.config.vocab_size, "input_ids")
        return ids.to(self.device)

    def _labels(self, labels: Tensor | Sequence[Sequence[int]], shape: torch.Size) -> Tensor:
        targets = _matrix(labels, "labels")
        if targets.shape != shape:
            raise GenerationError(
                f"labels has shape {list(targets.shape)}, input_ids has {list(shape)}.",
                hint="They must have the same shape; the shift by one happens inside.",
            )
        wrong = targets[((targets < 0) & (targets != -100)) | (targets >= self.config.vocab_size)]
        check_token_ids(wrong[:1].tolist(), self.config.vocab_size, "labels")
        return targets.to(self.device)


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
